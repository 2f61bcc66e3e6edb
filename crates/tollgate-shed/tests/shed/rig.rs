//! Services behind a shedder, requests of each class, and bodies that a test holds.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tollgate::store::{Ask, Check, Counter, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Key, Quota};
use tollgate_shed::{Class, Shed, WorkerShedLayer};
use tower::util::BoxCloneService;
use tower::{Layer, Service as _, ServiceExt, service_fn};

/// The body of a response, whatever layers are around it.
pub(super) type Text = UnsyncBoxBody<Bytes, io::Error>;
pub(super) type Service = BoxCloneService<Request<String>, Response<Text>, Infallible>;

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn text(text: &'static str) -> Text {
    Full::from(text).map_err(|never| match never {}).boxed_unsync()
}

/// A service of a closure.
pub(super) fn serving(respond: impl Fn(Request<String>) -> Response<Text> + Clone + Send + 'static) -> Service {
    BoxCloneService::new(service_fn(move |request| std::future::ready(Ok(respond(request)))))
}

/// A service that says hello.
pub(super) fn hello() -> Service {
    serving(|_| Response::new(text("hello")))
}

/// A service behind a layer, without the types of that.
pub(super) fn behind<L, B>(layer: &L, inner: Service) -> Service
where
    L: Layer<Service>,
    L::Service: tower::Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    <L::Service as tower::Service<Request<String>>>::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let boxed = |response: Response<B>| response.map(|body| body.map_err(io::Error::other).boxed_unsync());
    BoxCloneService::new(layer.layer(inner).map_response(boxed))
}

/// The class that a request says it has. No service should do that.
pub(super) fn said(parts: &Parts) -> Class {
    match parts.headers.get("x-class").map(http::HeaderValue::as_bytes) {
        Some(b"critical") => Class::Critical,
        Some(b"write") => Class::Write,
        Some(b"test") => Class::Test,
        _ => Class::Read,
    }
}

pub(super) fn of_class(class: Class) -> Request<String> {
    Request::get("/").header("x-class", class.as_str()).body(String::new()).expect("a request")
}

/// The response to a request, which is there at once.
#[track_caller]
pub(super) fn send(service: &mut Service, request: Request<String>) -> Response<Text> {
    assert!(service.ready().now_or_never().is_some());
    service.call(request).now_or_never().expect("a response at once").expect("the service does not fail")
}

/// Whether a request was shed.
pub(super) fn is_shed<B>(response: &Response<B>) -> bool {
    assert_eq!(response.status() == 503, response.extensions().get::<Shed>().is_some());
    response.status() == 503
}

/// How many of some requests of a class are shed.
#[track_caller]
pub(super) fn shed_of(service: &mut Service, requests: u32, class: Class) -> u32 {
    (0..requests).map(|_| u32::from(is_shed(&send(service, of_class(class))))).sum()
}

/// A utilization that a test sets, in percent.
#[derive(Clone, Default)]
pub(super) struct Load(Arc<AtomicU64>);

impl Load {
    pub(super) fn set(&self, percent: u64) {
        self.0.store(percent, Ordering::Relaxed);
    }

    #[allow(clippy::cast_precision_loss, reason = "it is small")]
    pub(super) fn get(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / 100.0
    }
}

/// A worker shedder by a load that the test sets, and its service.
pub(super) fn measured(load: &Load, clock: &ManualClock) -> (WorkerShedLayer, Service) {
    let load = load.clone();
    let layer = WorkerShedLayer::measured("worker", move || load.get()).classify(said).clock(clock.clone());
    let service = behind(&layer, hello());
    (layer, service)
}

/// A shedder after so many seconds of a load of 100 %.
pub(super) fn bad_for(seconds: u64) -> (WorkerShedLayer, Service) {
    let (load, clock) = (Load::default(), ManualClock::new());
    load.set(100);
    let (layer, mut service) = measured(&load, &clock);
    pass(&mut service, &clock, 0);
    pass(&mut service, &clock, seconds);
    (layer, service)
}

/// Lets seconds pass, with a critical request at the end of each; with one now if there are none.
pub(super) fn pass(service: &mut Service, clock: &ManualClock, seconds: u64) {
    for second in 0..seconds.max(1) {
        if second < seconds {
            clock.advance(SECOND);
        }
        assert!(!is_shed(&send(service, of_class(Class::Critical))));
    }
}

/// How many slots of a shedder are taken: of all requests, and of those that are not critical.
pub(super) async fn taken(store: &impl Store, name: &str) -> [u64; 2] {
    let mut taken = [0; 2];
    for (place, policy) in [name.to_owned(), format!("{name}.others")].into_iter().enumerate() {
        let policy = policy.as_str().try_into().expect("a name");
        let counter = Counter::new(policy, Key::new("global", ""), Quota::concurrency(1_000));
        let look = store.decide(&[Check::new(counter, 0)], Ask::default()).wait().await;
        taken[place] = 1_000 - look.expect("the store is there").decision.outcomes()[0].remaining();
    }
    taken
}
