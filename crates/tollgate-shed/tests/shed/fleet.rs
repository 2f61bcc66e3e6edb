//! What a fleet shedder sheds, by counters in memory and in Redis, and while its store fails.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep};
use tollgate::store::{BreakerState, Store};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{
    Decision, MemoryStore, OnFailure, Policy, Quota, RateLimitHandle, RateLimitLayer, RedisStore, Source, key,
};
use tollgate_shed::{Class, FleetShedLayer};
use tower::ServiceExt;
use tracing::Level;

use super::rig::{Service, Text, behind, hello, is_shed, of_class, said, serving, taken, text};
use crate::log::Log;
use crate::server::RedisServer;

/// Ten at once, of which two are kept.
const TEN: Quota = Quota::concurrency(10);

fn shedder(store: &Arc<dyn Store>, name: &str, quota: Quota) -> FleetShedLayer {
    FleetShedLayer::new(Arc::clone(store), name, quota, 0.2).classify(said)
}

/// Waits until so many slots are taken, of all requests and of those that are not critical: releases are sent in the
/// background.
async fn becomes(store: &Arc<dyn Store>, name: &str, expected: [u64; 2]) {
    for _ in 0..2_500 {
        if taken(store, name).await == expected {
            return;
        }
        sleep(Duration::from_millis(4)).await;
    }
    panic!("{:?} instead of {expected:?} are taken of {name}", taken(store, name).await);
}

async fn on_each_store(test: impl AsyncFn(Arc<dyn Store>)) {
    test(Arc::new(MemoryStore::new())).await;
    let server = RedisServer::start();
    let settings = RedisStore::builder().timeout(Duration::from_secs(10));
    test(Arc::new(settings.connect(&server.url()).await.expect("the server was started"))).await;
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
    on_each_store(async |store| {
        // How many critical requests are in progress, and how many others are served then, of 10.
        for (critical, others) in [(0, 8), (2, 8), (3, 7), (9, 1), (10, 0), (15, 0)] {
            let name = format!("fleet-{critical}");
            let service = behind(&shedder(&store, &name, TEN), hello());
            let first = served(&service, critical, Class::Critical).await;
            assert_eq!(first.len(), critical);
            let rest = served(&service, 10, Class::Write).await;
            assert_eq!(rest.len(), others, "with {critical} critical requests");
            assert_eq!(served(&service, 5, Class::Critical).await.len(), 5);
            becomes(&store, &name, [(critical + others) as u64, others as u64]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn of_a_thousand_at_once_exactly_those_are_served_that_fit() {
    on_each_store(async |store| {
        let service = behind(&shedder(&store, "fleet", Quota::concurrency(100)), hello());
        let responses = join_all((0..1_000).map(|_| ask(&service, of_class(Class::Write)))).await;
        assert_eq!(responses.iter().filter(|response| !is_shed(*response)).count(), 80);
        drop(responses);
        becomes(&store, "fleet", [0, 0]).await;
    })
    .await;
}

#[tokio::test]
async fn without_a_class_a_request_is_what_its_method_says() {
    let layer = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(2), 0.5);
    let service = behind(
        &layer,
        serving(|request| {
            let mut response = Response::new(text("hello"));
            response.extensions_mut().insert(*request.extensions().get::<Class>().expect("a class"));
            response
        }),
    );
    let of = |method: &str| Request::builder().method(method);
    for (methods, class) in
        [(&["GET", "HEAD", "OPTIONS", "TRACE"][..], Class::Read), (&["POST", "DELETE", "PURGE"], Class::Write)]
    {
        for method in methods {
            let response = ask(&service, of(method).body(String::new()).expect("a request")).await;
            assert_eq!(response.extensions().get(), Some(&class), "{method}");
        }
    }
}

#[test]
fn what_can_never_work_is_an_error() {
    let new = |quota, reserve, name: &str| FleetShedLayer::try_new(MemoryStore::new(), name, quota, reserve);
    let (rate, long) = (Quota::per_minute(100), "a".repeat(58));
    for (quota, reserve, name, told) in [
        (rate, 0.2, "fleet", format!("a fleet shedder counts requests at once, not {rate}: use Quota::concurrency")),
        (TEN, 0.0, "fleet", "reserve 0 is not allowed: use a fraction above 0 and below 1".to_owned()),
        (TEN, 1.0, "fleet", "reserve 1 is not allowed".to_owned()),
        (TEN, -0.5, "fleet", "reserve -0.5 is not allowed".to_owned()),
        (TEN, f64::NAN, "fleet", "reserve NaN is not allowed".to_owned()),
        (Quota::concurrency(1), 0.2, "fleet", "reserve 0.2 of 1 leaves nothing for requests that are not".to_owned()),
        (TEN, 0.2, &long, format!("shedder name {long:?} has 58 characters: at most 57 are allowed")),
        (TEN, 0.2, "two words", "\"two words\"".to_owned()),
    ] {
        let error = new(quota, reserve, name).expect_err("it can never work");
        assert!(error.is_invalid() && error.to_string().contains(&told), "{error}");
    }
    assert!(new(TEN, 0.2, &"a".repeat(57)).is_ok());
}

/// 20 at once, of which 4 are kept, in two processes: 8 others in each, while they cannot share.
fn of_two(store: impl Store) -> FleetShedLayer {
    let quota = Quota::concurrency(20).slot_ttl(Duration::from_secs(3));
    FleetShedLayer::new(store, "fleet", quota, 0.2).classify(said).instances(NonZeroU32::new(2).expect("not 0"))
}

/// A store that a test has fail, by tokio's paused time, a shedder over it, and its service, which responds with its
/// decision.
fn failing() -> (FailingStore<MemoryStore>, FleetShedLayer, Service) {
    let store = FailingStore::new(MemoryStore::builder().clock(ManualClock::paused()).build());
    let layer = of_two(store.clone());
    let decided = serving(|request| {
        let mut response = Response::new(text("hello"));
        let handle = request.extensions().get::<RateLimitHandle>().expect("of the shedder");
        response.extensions_mut().insert(handle.decision());
        response
    });
    let service = behind(&layer, decided);
    (store, layer, service)
}

#[tokio::test]
async fn without_the_store_others_get_the_share_of_this_process_and_critical_requests_are_served() {
    let fails: [fn(&FailingStore<MemoryStore>); 3] =
        [FailingStore::fail, FailingStore::hang, |store| store.delay(Duration::from_millis(300))];
    for fail in fails {
        let (store, _, service) = failing();
        fail(&store);
        let mut held = Vec::new();
        for class in [Class::Write, Class::Critical, Class::Write] {
            for _ in 0..30 {
                let began = Instant::now();
                held.extend(served(&service, 1, class).await);
                assert!(began.elapsed() <= Duration::from_millis(102), "{:?}", began.elapsed());
            }
        }
        assert_eq!(held.len(), 8 + 30);
        let decision = held[0].extensions().get::<Decision>().expect("a decision");
        assert_eq!(decision.source(), Source::Fallback);
    }
}

#[tokio::test]
async fn slots_are_shared_again_within_a_second_of_the_store_being_back_and_the_episode_is_logged_once() {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let (store, layer, service) = failing();
    assert_eq!(served(&service, 16, Class::Read).await.len(), 16);
    store.fail();
    drop(served(&service, 30, Class::Read).await);
    let began = log.lines("code=\"shedding\"");
    assert!(began.len() == 1 && began[0].contains("policy=\"fleet\" class=\"read\""), "{began:?}");
    assert_eq!(layer.breaker_state(), BreakerState::Open);
    sleep(Duration::from_secs(61)).await;
    drop(served(&service, 2, Class::Read).await);
    let ended = log.lines("code=\"shedding_ended\"");
    assert!(ended.len() == 1 && ended[0].contains("shed=22"), "{ended:?}");
    store.work();
    for _ in 0..20 {
        sleep(Duration::from_millis(50)).await;
        drop(served(&service, 1, Class::Read).await);
    }
    assert_eq!(layer.breaker_state(), BreakerState::Closed);
    assert_eq!(served(&service, 30, Class::Read).await.len(), 16, "none was lost");
}

#[tokio::test]
async fn a_limit_inside_that_denies_without_its_store_is_no_shedder_and_keeps_no_slot() {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let away = FailingStore::new(MemoryStore::new());
    away.fail();
    let policy = Policy::new("user", Quota::per_second(1_000)).key(key::header("x-user"));
    let limits = RateLimitLayer::new(away, policy).on_failure(OnFailure::Deny);
    let layer = of_two(MemoryStore::new());
    let service = behind(&layer, behind(&limits, hello()));
    for number in 0..80 {
        let mut request = of_class([Class::Critical, Class::Read][number % 2]);
        request.headers_mut().insert("x-user", HeaderValue::from_static("ada"));
        let response = ask(&service, request).await;
        assert_eq!(
            (response.status().as_u16(), response.extensions().get::<tollgate_shed::Shed>().is_some()),
            (503, false)
        );
        let document = response.into_body().collect().await.expect("a body").to_bytes();
        let document = String::from_utf8_lossy(&document).into_owned();
        assert!(!document.contains("violated-policies"), "no policy and no shedder is named: {document}");
    }
    assert_eq!(log.count("code=\"shedding\""), 0, "{}", log.text());
    assert_eq!(served(&behind(&layer, hello()), 30, Class::Write).await.len(), 16, "all slots are free");
}
