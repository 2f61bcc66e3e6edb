//! A store that fails: what went wrong, who decides instead, and whether it is asked.

use std::io;

use tokio::time::{advance, sleep, timeout};
use tollgate::store::BreakerState;
use tollgate::{Error, OnFailure};

use super::watch::Watch;
use crate::rig::{MANY, Mood, Moody, ask, layer, ms};

#[tokio::test(start_paused = true)]
async fn each_failure_has_its_kind_and_each_rule_shows_in_who_decided() {
    for (rule, mood, status, decided, kind) in [
        (OnFailure::Fallback, Mood::Fails, 200, "source=fallback,verdict=allowed", Some("store")),
        (OnFailure::Allow, Mood::Fails, 200, "source=fail_open,verdict=allowed", Some("store")),
        (OnFailure::Deny, Mood::Fails, 503, "source=none,verdict=unavailable", Some("store")),
        (OnFailure::Fallback, Mood::Hangs, 200, "source=fallback,verdict=allowed", Some("timeout")),
        // What can never be decided is no failure of the store.
        (OnFailure::Fallback, Mood::Refuses, 200, "source=fallback,verdict=allowed", None),
    ] {
        let (watch, store) = (Watch::start(), Moody::new(mood));
        let layer = layer(&store, MANY).on_failure(rule);
        let decided = format!("decisions_total{{{decided}}}");
        let failed = kind.map(|kind| format!("store_failures_total{{kind={kind}}}"));
        // Then it is not asked any more, so it does not fail any more.
        for request in 1..=6 {
            assert_eq!(ask(&layer, "ada").await.status(), status);
            let failed = failed.as_ref().filter(|_| request <= 5).map(|failed| (&failed[..], 1));
            let expected: Vec<_> = [Some((&decided[..], 1)), failed].into_iter().flatten().collect();
            if request == 1 || request == 6 { watch.saw(&expected) } else { drop(watch.changes()) }
        }
        if mood == Mood::Refuses {
            store.fail_with(|| Error::connection("it is gone", io::Error::from(io::ErrorKind::ConnectionRefused)));
            ask(&layer, "ada").await;
            watch.saw(&[(&decided[..], 1), ("store_failures_total{kind=connection}", 1)]);
        }
    }
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
