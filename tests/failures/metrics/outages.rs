//! A store that fails: what went wrong, who decides instead, and whether it is asked.

use tokio::time::advance;
use tollgate::OnFailure;
use tollgate::store::BreakerState;

use super::watch::Watch;
use crate::rig::{MANY, Mood, Moody, ask, layer, ms, state};

#[tokio::test(start_paused = true)]
async fn each_failure_has_its_kind_and_each_rule_shows_in_who_decided() {
    for (rule, mood, status, decided, kind) in [
        (OnFailure::Fallback, Mood::Fails, 200, "source=fallback,verdict=allowed", Some("store")),
        (OnFailure::Allow, Mood::Fails, 200, "source=fail_open,verdict=allowed", Some("store")),
        (OnFailure::Deny, Mood::Fails, 503, "source=none,verdict=unavailable", Some("store")),
        (OnFailure::Fallback, Mood::Hangs, 200, "source=fallback,verdict=allowed", Some("timeout")),
        (OnFailure::Fallback, Mood::Closes, 200, "source=fallback,verdict=allowed", Some("connection")),
        // What can never be decided is no failure of the store.
        (OnFailure::Fallback, Mood::Refuses, 200, "source=fallback,verdict=allowed", None),
    ] {
        let (watch, layer) = (Watch::start(), layer(&Moody::new(mood), MANY).on_failure(rule));
        assert_eq!(ask(&layer, "ada").await.status(), status);
        let decided = format!("decisions_total{{{decided}}}");
        let failed = kind.map(|kind| format!("store_failures_total{{kind={kind}}}"));
        let expected: Vec<_> = failed.iter().chain([&decided]).map(|series| (&series[..], 1)).collect();
        watch.saw(&format!("{mood:?}"), &expected);
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
        assert_ne!(state(&layer), BreakerState::Closed);
        store.becomes(Mood::Decides);
        advance(ms(500)).await;
        for request in 1..=10 {
            ask(&layer, "ada").await;
            let expected = if request == 1 { (0, 1, -1) } else { (0, 0, 0) };
            assert_eq!(breakers(&watch), expected, "outage {outage}, request {request} after it");
        }
        assert_eq!(state(&layer), BreakerState::Closed);
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
