//! A store that fails: what went wrong, who decides instead, and whether it is asked.

use tokio::time::{advance, sleep, timeout};
use tollgate::OnFailure;
use tollgate::store::BreakerState;

use super::watch::Watch;
use crate::rig::{MANY, Mood, Moody, ask, layer, ms};

const FAILED: (&str, i64) = ("store_failures_total{kind=store}", 1);

#[tokio::test]
async fn each_rule_for_failures_shows_in_who_decided() {
    for (rule, status, decided) in [
        (OnFailure::Fallback, 200, "decisions_total{source=fallback,verdict=allowed}"),
        (OnFailure::Allow, 200, "decisions_total{source=fail_open,verdict=allowed}"),
        (OnFailure::Deny, 503, "decisions_total{source=none,verdict=unavailable}"),
    ] {
        let (watch, store) = (Watch::start(), Moody::new(Mood::Fails));
        let layer = layer(&store, MANY).on_failure(rule);
        assert_eq!(ask(&layer, "ada").await.status(), status);
        watch.saw(&[(decided, 1), FAILED]);
        for _ in 1..5 {
            ask(&layer, "ada").await;
        }
        watch.changes();
        // It is not asked any more, so it does not fail any more.
        assert_eq!(ask(&layer, "ada").await.status(), status);
        watch.saw(&[(decided, 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_in_time_is_told_from_one_that_fails() {
    let (watch, store) = (Watch::start(), Moody::new(Mood::Hangs));
    let layer = layer(&store, MANY);
    ask(&layer, "ada").await;
    watch.saw(&[("decisions_total{source=fallback,verdict=allowed}", 1), ("store_failures_total{kind=timeout}", 1)]);
    store.becomes(Mood::Fails);
    ask(&layer, "ada").await;
    watch.saw(&[("decisions_total{source=fallback,verdict=allowed}", 1), FAILED]);
    // What can never be decided is no failure of the store.
    store.becomes(Mood::Refuses);
    ask(&layer, "ada").await;
    watch.saw(&[("decisions_total{source=fallback,verdict=allowed}", 1)]);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_server_that_is_gone_is_a_lost_connection() {
    use crate::rig::per_user;
    use crate::support::server::RedisServer;
    use tollgate::{RateLimitLayer, RedisStore};

    let (watch, mut redis) = (Watch::start(), RedisServer::start());
    let store = RedisStore::connect(&redis.url()).await.expect("the server was started");
    let layer = RateLimitLayer::new(store, per_user(MANY));
    ask(&layer, "ada").await;
    watch.changes();
    redis.kill();
    ask(&layer, "ada").await;
    watch.saw(&[("decisions_total{source=fallback,verdict=allowed}", 1), ("store_failures_total{kind=connection}", 1)]);
}

/// What has changed of circuit breakers: opened, closed, and open now more than before.
#[track_caller]
fn breakers(watch: &Watch) -> (i64, i64, i64) {
    let changes = watch.changes();
    let change = |series: &str| changes.get(series).copied().unwrap_or_default();
    let to = |state| change(&format!("tollgate_breaker_changes_total{{to={state}}}"));
    (to("open"), to("closed"), change("tollgate_breakers_open"))
}

#[tokio::test(start_paused = true)]
async fn an_outage_opens_a_breaker_once_and_its_end_closes_it_once() {
    let (watch, store) = (Watch::start(), Moody::new(Mood::Fails));
    let layer = layer(&store, MANY);
    for outage in 1..=2 {
        store.becomes(Mood::Fails);
        for request in 1..=100 {
            ask(&layer, "ada").await;
            let expected = if request == 5 { (1, 0, 1) } else { (0, 0, 0) };
            assert_eq!(breakers(&watch), expected, "outage {outage}, request {request}");
            advance(ms(20)).await;
        }
        assert_ne!(layer.clone().live().breaker_state(), BreakerState::Closed);
        store.becomes(Mood::Decides);
        advance(ms(500)).await;
        for request in 1..=10 {
            ask(&layer, "ada").await;
            let expected = if request == 1 { (0, 1, -1) } else { (0, 0, 0) };
            assert_eq!(breakers(&watch), expected, "outage {outage}, request {request} after it");
        }
        assert_eq!(layer.clone().live().breaker_state(), BreakerState::Closed);
    }
}

#[tokio::test(start_paused = true)]
async fn open_breakers_of_several_layers_add_up_and_go_with_their_layers() {
    let (watch, store) = (Watch::start(), Moody::new(Mood::Fails));
    let layers = [layer(&store, MANY), layer(&store, MANY)];
    for layer in &layers {
        for _ in 0..10 {
            ask(layer, "ada").await;
        }
    }
    assert_eq!(breakers(&watch), (2, 0, 2));
    let [first, second] = layers;
    drop(first);
    assert_eq!(breakers(&watch), (0, 0, -1));
    store.becomes(Mood::Decides);
    advance(ms(500)).await;
    ask(&second, "ada").await;
    drop(second);
    assert_eq!(breakers(&watch), (0, 1, -1));
}

#[tokio::test(start_paused = true)]
async fn what_became_of_a_probe_counts_though_its_client_went_away() {
    let (watch, store) = (Watch::start(), Moody::new(Mood::Fails));
    let layer = layer(&store, MANY);
    for _ in 0..5 {
        ask(&layer, "ada").await;
    }
    watch.changes();
    store.becomes(Mood::Hangs);
    advance(ms(50)).await;
    timeout(ms(1), ask(&layer, "ada")).await.expect_err("there is no answer yet");
    sleep(ms(101)).await;
    watch.saw(&[("store_failures_total{kind=timeout}", 1)]);
    store.becomes(Mood::DecidesIn(ms(30)));
    timeout(ms(1), ask(&layer, "ada")).await.expect_err("there is no answer yet");
    sleep(ms(31)).await;
    assert_eq!(breakers(&watch), (0, 1, -1));
}
