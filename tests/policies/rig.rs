//! Stores and their clock, services behind a layer, and what is sent to them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tollgate::body::ResponseBody;
use tollgate::store::{Ask, Check, Counter, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Key, Policy, Quota, RateLimitLayer, RedisStore};
use tollgate_test::{Recorded, RecordingStore};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::server::RedisServer;
use crate::support::soon::soon;
use crate::support::time::memory;

pub(crate) type Text = Full<Bytes>;
pub(crate) type Answer = Response<ResponseBody<Text>>;
pub(crate) type Service = BoxCloneService<Request<Text>, Answer, Infallible>;

pub(crate) const S: u64 = 1_000_000;
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// A store under test, which records what it is asked.
pub(crate) struct Rig {
    pub(crate) name: &'static str,
    pub(crate) clock: ManualClock,
    pub(crate) store: RecordingStore<Arc<dyn Store>>,
    _server: Option<RedisServer>,
}

/// Runs a test on each kind of store.
pub(crate) async fn on_each_store(test: impl AsyncFn(&Rig)) {
    test(&Rig::memory()).await;
    test(&Rig::redis().await).await;
}

impl Rig {
    pub(crate) fn memory() -> Self {
        let clock = ManualClock::new();
        let store = RecordingStore::<Arc<dyn Store>>::new(Arc::new(memory(&clock)));
        Self { name: "memory", clock, store, _server: None }
    }

    pub(crate) async fn redis() -> Self {
        let (clock, server) = (ManualClock::new(), RedisServer::start());
        let settings = RedisStore::builder().clock(clock.clone()).timeout(Duration::from_secs(10));
        let store = settings.connect(&server.url()).await.expect("the server was started");
        let store = RecordingStore::<Arc<dyn Store>>::new(Arc::new(store));
        Self { name: "Redis", clock, store, _server: Some(server) }
    }

    pub(crate) fn layer(&self, policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
        RateLimitLayer::composite(self.store.clone()).policies(policies).expose_decisions()
    }

    pub(crate) fn service(&self, policies: impl IntoIterator<Item = Policy>) -> Service {
        hello(&self.layer(policies))
    }

    /// What a counter has left, past any layer.
    pub(crate) async fn left(&self, policy: &str, key: &Key, quota: Quota) -> u64 {
        let counter = Counter::new(policy.try_into().expect("a valid name"), key.clone(), quota);
        let decided = self.store.decide(&[Check::new(counter, 0)], Ask::default()).wait().await;
        decided.expect("the store is there").decision.outcomes()[0].remaining()
    }

    /// What a counter of all requests has left.
    pub(crate) async fn left_of_all(&self, policy: &str, quota: Quota) -> u64 {
        self.left(policy, &Key::new("global", ""), quota).await
    }

    /// Waits until a counter of all requests has so many left.
    pub(crate) async fn until_left_of_all(&self, policy: &str, quota: Quota, left: u64) {
        let wait = async {
            while self.left_of_all(policy, quota).await != left {
                background().await;
            }
        };
        soon(wait).await;
    }

    /// How often the store decided, and how often it looked.
    pub(crate) fn asked(&self) -> (usize, usize) {
        let (mut decided, mut looked) = (0, 0);
        for call in self.store.recorded() {
            let Recorded::Decide(checks) = call else { continue };
            let looks = checks.iter().all(|check| check.cost == 0);
            *if looks { &mut looked } else { &mut decided } += 1;
        }
        (decided, looked)
    }
}

/// Lets what happens in the background be sent: the store's connection keeps the order of what is sent.
pub(crate) async fn background() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// A layer over a closure.
pub(crate) fn over(
    layer: &RateLimitLayer,
    answer: impl Fn(Request<Text>) -> Response<Text> + Clone + Send + 'static,
) -> Service {
    BoxCloneService::new(layer.layer(service_fn(move |request| std::future::ready(Ok(answer(request))))))
}

/// A layer over a service that says hello.
pub(crate) fn hello(layer: &RateLimitLayer) -> Service {
    over(layer, |_| Response::new(Text::from("hello")))
}

/// A layer over a service that answers with the status in `x-status`.
pub(crate) fn as_told(layer: &RateLimitLayer) -> Service {
    over(layer, |request| {
        let status = request.headers().get("x-status").map_or("200", |value| value.to_str().expect("ASCII"));
        let mut response = Response::new(Text::default());
        *response.status_mut() = StatusCode::from_bytes(status.as_bytes()).expect("a status");
        response
    })
}

pub(crate) fn get() -> Request<Text> {
    Request::new(Text::default())
}

pub(crate) fn method(method: Method) -> Request<Text> {
    let mut request = get();
    *request.method_mut() = method;
    request
}

/// A request with a header.
pub(crate) fn with(name: &'static str, value: &str) -> Request<Text> {
    and(get(), name, value)
}

/// A request with one more header.
pub(crate) fn and(mut request: Request<Text>, name: &'static str, value: &str) -> Request<Text> {
    let value = HeaderValue::from_str(value).expect("a header value");
    request.headers_mut().insert(HeaderName::from_static(name), value);
    request
}

/// A request from a peer.
pub(crate) fn from(peer: &str) -> Request<Text> {
    let mut request = get();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().expect("an address"), 4711)));
    request
}

/// The response of a service that may have to wait, and what is sent in the background after it.
pub(crate) async fn send(service: &Service, request: Request<Text>) -> Answer {
    let response = soon(service.clone().oneshot(request)).await;
    background().await;
    response.expect("the service does not fail")
}

/// The statuses of some requests, one after the other.
pub(crate) async fn statuses(service: &Service, requests: impl IntoIterator<Item = Request<Text>>) -> Vec<u16> {
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(send(service, request).await.status().as_u16());
    }
    statuses
}

/// The response of a service that answers at once.
#[track_caller]
pub(crate) fn now(service: &Service, request: Request<Text>) -> Answer {
    let response = service.clone().oneshot(request).now_or_never().expect("an answer at once");
    response.expect("the service does not fail")
}

/// Sends requests one after the other, each of which is answered at once with this status.
#[track_caller]
pub(crate) fn expect(service: &Service, rows: impl IntoIterator<Item = (Request<Text>, u16)>) {
    for (place, (request, status)) in rows.into_iter().enumerate() {
        let what = format!("request {place}: {} {} {:?}", request.method(), request.uri(), request.headers());
        assert_eq!(now(service, request).status(), status, "{what}");
    }
}

/// The one line of a field; empty if there is none.
#[track_caller]
pub(crate) fn line<'a, B>(response: &'a Response<B>, name: &str) -> &'a str {
    let mut lines = response.headers().get_all(name).iter().map(|value| value.to_str().expect("ASCII"));
    let line = lines.next().unwrap_or_default();
    assert_eq!(lines.next(), None, "{name} is one line");
    line
}

#[track_caller]
pub(crate) fn body(response: Answer) -> String {
    let collected = response.into_body().collect().now_or_never().expect("a body at once").expect("a body");
    String::from_utf8(collected.to_bytes().into()).expect("text")
}
