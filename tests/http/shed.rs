//! What a fleet shedder sheds, by counters in memory and in Redis.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
#[cfg(feature = "redis")]
use tollgate::RedisStore;
use tollgate::store::{Ask, Check, Counter, Store};
use tollgate::{Key, MemoryStore, Quota, RateLimitHandle};
use tollgate_shed::{Class, FleetShedLayer, WorkerShedLayer};
use tower::ServiceExt;

use self::rig::{Service, Text, behind, hello, is_shed, of_class, said, serving, text};
use crate::rig::{by, with};
#[cfg(feature = "redis")]
use crate::support::server::RedisServer;

#[allow(dead_code, reason = "the crate's own tests use more of it")]
#[path = "../../crates/tollgate-shed/tests/shed/rig.rs"]
mod rig;

/// Ten at once, of which two are kept.
const TEN: Quota = Quota::concurrency(10);

/// A store that may be shared by several layers.
struct Shared {
    name: &'static str,
    store: Arc<dyn Store>,
    #[cfg(feature = "redis")]
    _server: Option<RedisServer>,
}

impl Shared {
    fn shedder(&self, name: &str, quota: Quota) -> FleetShedLayer {
        FleetShedLayer::new(Arc::clone(&self.store), name, quota, 0.2).classify(said)
    }

    /// How many slots are taken: of all requests, and of those that are not critical.
    async fn taken(&self, name: &str) -> [u64; 2] {
        let mut taken = [0; 2];
        for (place, policy) in [name.to_owned(), format!("{name}.others")].into_iter().enumerate() {
            let policy = policy.as_str().try_into().expect("a name");
            let counter = Counter::new(policy, Key::new("global", ""), Quota::concurrency(1_000));
            let look = self.store.decide(&[Check::new(counter, 0)], Ask::default()).wait().await;
            taken[place] = 1_000 - look.expect("the store is there").decision.outcomes()[0].remaining();
        }
        taken
    }

    /// Waits until so many slots are taken, as releases are sent in the background.
    async fn becomes(&self, name: &str, expected: [u64; 2]) {
        for _ in 0..2_500 {
            if self.taken(name).await == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
        panic!("{}: {:?} instead of {expected:?}", self.name, self.taken(name).await);
    }
}

async fn on_each_store(test: impl AsyncFn(&Shared)) {
    let memory = Arc::new(MemoryStore::new());
    test(&Shared {
        name: "memory",
        store: memory,
        #[cfg(feature = "redis")]
        _server: None,
    })
    .await;
    #[cfg(feature = "redis")]
    {
        let server = RedisServer::start();
        let settings = RedisStore::builder().timeout(Duration::from_secs(10));
        let store = Arc::new(settings.connect(&server.url()).await.expect("the server was started"));
        test(&Shared { name: "Redis", store, _server: Some(server) }).await;
    }
}

async fn ask(service: &Service, request: Request<String>) -> Response<Text> {
    service.clone().oneshot(request).await.expect("the service does not fail")
}

/// Sends requests of a class, and returns the responses of those that were served, whose bodies hold their slots.
async fn served(service: &Service, requests: usize, class: Class) -> Vec<Response<Text>> {
    let mut served = Vec::new();
    for _ in 0..requests {
        let response = ask(service, of_class(class)).await;
        if !is_shed(&response) {
            served.push(response);
        }
    }
    served
}

#[tokio::test]
async fn others_get_what_is_not_reserved_and_critical_requests_are_always_served() {
    on_each_store(async |shared: &Shared| {
        // How many critical requests are in progress, and how many others are served then, of 10.
        for (round, (critical, others)) in
            [(0, 8), (1, 8), (2, 8), (3, 7), (9, 1), (10, 0), (15, 0)].into_iter().enumerate()
        {
            let name = format!("round-{round}");
            let service = behind(&shared.shedder(&name, TEN), hello());
            let first = served(&service, critical, Class::Critical).await;
            assert_eq!(first.len(), critical, "{}", shared.name);
            let rest = served(&service, 10, Class::Write).await;
            assert_eq!(rest.len(), others, "{} with {critical} critical requests", shared.name);
            assert_eq!(served(&service, 5, Class::Critical).await.len(), 5);
            shared.becomes(&name, [(critical + others) as u64, others as u64]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn layers_of_one_name_share_their_slots_and_of_two_names_none() {
    on_each_store(async |shared: &Shared| {
        let [one, two] = [(); 2].map(|()| behind(&shared.shedder("fleet", TEN), hello()));
        let first = served(&one, 5, Class::Read).await;
        let second = served(&two, 5, Class::Read).await;
        assert_eq!((first.len(), second.len()), (5, 3));
        let other = behind(&shared.shedder("other", TEN), hello());
        assert_eq!(served(&other, 10, Class::Read).await.len(), 8);
        drop((first, second));
        shared.becomes("fleet", [0, 0]).await;
        assert_eq!(served(&two, 10, Class::Read).await.len(), 8);
    })
    .await;
}

#[tokio::test]
async fn of_a_thousand_at_once_exactly_those_are_served_that_fit() {
    on_each_store(async |shared: &Shared| {
        let service = behind(&shared.shedder("fleet", Quota::concurrency(100)), hello());
        let responses = join_all((0..1_000).map(|_| ask(&service, of_class(Class::Write)))).await;
        assert_eq!(responses.iter().filter(|response| !is_shed(*response)).count(), 80, "{}", shared.name);
        drop(responses);
        shared.becomes("fleet", [0, 0]).await;
    })
    .await;
}

#[tokio::test]
async fn slots_of_clients_that_vanish_are_released() {
    on_each_store(async |shared: &Shared| {
        let layer = shared.shedder("fleet", TEN);
        let service = behind(&layer, hello());
        // Before the decision.
        for _ in 0..20 {
            let mut response = Box::pin(ask(&service, of_class(Class::Critical)));
            let _ = response.as_mut().now_or_never();
        }
        shared.becomes("fleet", [0, 0]).await;
        // While the handler works.
        let never = tower::service_fn(|_: Request<String>| std::future::pending());
        let never = behind(&layer, Service::new(never));
        for class in [Class::Critical, Class::Read] {
            assert!(tokio::time::timeout(Duration::from_millis(50), ask(&never, of_class(class))).await.is_err());
        }
        shared.becomes("fleet", [0, 0]).await;
        // In the body, or after it.
        let mut response = ask(&service, of_class(Class::Read)).await;
        shared.becomes("fleet", [1, 1]).await;
        assert!(response.body_mut().frame().await.is_some());
        shared.becomes("fleet", [0, 0]).await;
        drop(ask(&service, of_class(Class::Read)).await);
        shared.becomes("fleet", [0, 0]).await;
    })
    .await;
}

#[tokio::test]
async fn the_class_of_a_request_is_determined_once_and_found_further_inside() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let class = move |_: &http::request::Parts| {
        counted.fetch_add(1, Ordering::Relaxed);
        Class::Critical
    };
    let fleet = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(2), 0.5);
    let worker = WorkerShedLayer::new("worker", NonZeroU32::MIN).classify(class);
    let inner = serving(|request| {
        assert_eq!(request.extensions().get(), Some(&Class::Critical));
        Response::new(text("hello"))
    });
    let service = behind(&worker, behind(&fleet, inner));
    let responses = served(&service, 5, Class::Read).await;
    assert_eq!((responses.len(), calls.load(Ordering::Relaxed)), (5, 5));
}

#[tokio::test]
async fn without_a_class_in_its_extensions_a_request_is_what_its_method_says_and_a_preflight_takes_no_slot() {
    let layer = || FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(2), 0.5);
    let reads = ["GET", "HEAD", "OPTIONS", "TRACE"].map(|method| (method, Class::Read));
    for (method, class) in reads.into_iter().chain(["POST", "DELETE", "PURGE"].map(|method| (method, Class::Write))) {
        let inner = serving(move |request| {
            assert_eq!(request.extensions().get(), Some(&class));
            Response::new(text("hello"))
        });
        let request = Request::builder().method(method).body(String::new()).expect("a request");
        assert_eq!(ask(&behind(&layer(), inner), request).await.status(), 200, "{method}");
    }
    let service = behind(&layer(), hello());
    let _held = ask(&service, Request::new(String::new())).await;
    assert!(is_shed(&ask(&service, Request::new(String::new())).await));
    let preflight = with(by(Method::OPTIONS), "origin", "https://example.com");
    assert!(!is_shed(&ask(&service, with(preflight, "access-control-request-method", "GET")).await));
}

#[tokio::test]
async fn a_handle_holds_the_slots_of_an_upgrade() {
    on_each_store(async |shared: &Shared| {
        let (guards, mut taken) = futures::channel::mpsc::unbounded();
        let inner = serving(move |request| {
            let handle = request.extensions().get::<RateLimitHandle>().expect("of the shedder");
            guards.unbounded_send(handle.slots()).expect("the test waits");
            Response::new(text(""))
        });
        drop(ask(&behind(&shared.shedder("fleet", TEN), inner), of_class(Class::Read)).await);
        assert_eq!(shared.taken("fleet").await, [1, 1]);
        drop(taken.try_recv().expect("the service was called"));
        shared.becomes("fleet", [0, 0]).await;
    })
    .await;
}
