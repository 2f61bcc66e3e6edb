//! How long a decision may take.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::{Instant, advance};
use tollgate::store::{DenyCache, LeaseStore, Store};
use tollgate::{Key, MemoryStore, OnFailure, RateLimitLayer, Source};
use tower::{Layer, Service, service_fn};

use super::rig::{MANY, Mood, Moody, ask, decided_by, header, layer, ms, per_user, source};
use crate::support::doubles::Bounded;

/// Timers count milliseconds, and round up.
const GRAIN: Duration = ms(1);

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_costs_a_request_the_budget() {
    for (mood, timeout, waits) in [
        (Mood::Hangs, None, 100),
        (Mood::Hangs, Some(ms(7)), 7),
        (Mood::Hangs, Some(ms(3_000)), 3_000),
        (Mood::Hangs, Some(Duration::ZERO), 1),
        (Mood::FailsIn(ms(5_000)), None, 100),
        (Mood::DecidesIn(ms(101)), None, 100),
    ] {
        let layer = layer(&Moody::new(mood), MANY);
        let layer = if let Some(timeout) = timeout { layer.timeout(timeout) } else { layer };
        let start = Instant::now();
        assert_eq!(decided_by(&layer).await, Source::Fallback);
        let waited = start.elapsed();
        assert!((ms(waits)..=ms(waits) + GRAIN).contains(&waited), "{mood:?}: {waited:?} of {timeout:?}");
    }
    assert_eq!(decided_by(&layer(&Moody::new(Mood::DecidesIn(ms(99))), MANY)).await, Source::Store);
}

/// As of several requests that are made together, and awaited one after the other.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_awaited_late_has_all_its_budget_from_then() {
    let layer = layer(&Moody::new(Mood::DecidesIn(ms(99))), MANY).expose_decisions();
    let serve =
        service_fn(async |_: Request<Full<Bytes>>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())));
    let request = Request::builder().header("x-user", "ada").body(Full::default()).expect("a request");
    let response = layer.layer(serve).call(request);
    advance(ms(200)).await;
    assert_eq!(source(&response.await.expect("a response")), Source::Store);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_goes_nowhere_and_what_it_took_stays_taken() {
    let store = Moody::new(Mood::DecidesIn(ms(101)));
    let layer = layer(&store, MANY);
    assert_eq!(decided_by(&layer).await, Source::Fallback);
    store.becomes(Mood::Decides);
    let response = ask(&layer, "ada").await;
    assert_eq!(header(&response, "x-ratelimit-remaining"), "998");
    assert_eq!(store.settled(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_to_its_own_budget_is_left_to_it() {
    let own = |budget| Moody::around(Mood::DecidesIn(ms(150)), Bounded(MemoryStore::new(), Some(budget)));
    let patient = layer(&own(ms(200)), MANY);
    assert_eq!(decided_by(&patient).await, Source::Store, "the store's is the layer's");
    // Only the claim is 20 ms: the store within does not know of it.
    let claims = Bounded(Moody::new(Mood::DecidesIn(ms(150))).store(), Some(ms(20)));
    let longer = RateLimitLayer::new(claims, per_user(MANY)).timeout(ms(100));
    assert_eq!(decided_by(&longer).await, Source::Store, "it says that it keeps to 20 ms: no other timer runs");
    let shorter = layer(&own(ms(200)), MANY).timeout(ms(50));
    let start = Instant::now();
    assert_eq!(decided_by(&shorter).await, Source::Fallback);
    assert!(start.elapsed() <= ms(50) + GRAIN);
}

#[test]
fn stores_around_a_store_keep_to_its_budget() {
    let store = |budget| Moody::around(Mood::Decides, Bounded(MemoryStore::new(), budget)).store();
    let budget = |store: &dyn Store| store.capabilities(&[]).expect("nothing is required").timeout;
    for (given, told) in [(None, None), (Some(ms(30)), Some(ms(30)))] {
        assert_eq!(budget(&DenyCache::new(store(given))), told);
        assert_eq!(budget(&LeaseStore::new(store(given))), told);
        assert_eq!(budget(&std::sync::Arc::new(store(given))), told);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_is_told_of_a_timeout() {
    let layer = layer(&Moody::new(Mood::Hangs), MANY).on_failure(OnFailure::Deny).timeout(ms(20));
    let start = Instant::now();
    let ada = Key::hashed("header x-user", "ada");
    let error = layer.live().limiter().check(&ada).await.expect_err("nobody decides");
    assert!(error.is_timeout() && error.to_string().contains("20ms"), "{error}");
    assert!(start.elapsed() <= ms(20) + GRAIN);
}

#[test]
fn outside_of_a_runtime_there_are_no_timers_and_no_panics() {
    let layer = layer(&Moody::new(Mood::Hangs), MANY);
    assert!(ask(&layer, "ada").now_or_never().is_none());
    let at_once = RateLimitLayer::new(Moody::new(Mood::Decides).store(), per_user(MANY)).timeout(Duration::MAX);
    assert_eq!(ask(&at_once, "ada").now_or_never().expect("an answer at once").status(), 200);
}
