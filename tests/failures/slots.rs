//! Slots while the store fails: those of the local one, and those that the store has.

use std::num::NonZeroU32;
use std::time::Duration;

use http::StatusCode;
use tokio::time::sleep;
use tollgate::test_util::ManualClock;
use tollgate::{OnFailure, Quota, Source};

use crate::rig::{Mood, Moody, ask, layer, ms, source};

const LIFE: Duration = Duration::from_secs(3);

fn at_once(limit: u64) -> Quota {
    Quota::concurrency(limit).slot_ttl(LIFE)
}

/// A store on the paused time of the runtime.
fn store(mood: Mood) -> Moody {
    Moody::with_clock(mood, &ManualClock::paused())
}

#[tokio::test]
async fn the_fallback_holds_slots_of_its_share_and_renews_them() {
    let store = store(Mood::Fails);
    let layer = layer(&store, at_once(7)).instances(NonZeroU32::new(3).expect("not 0"));
    let mut held = Vec::new();
    for _ in 0..3 {
        let response = ask(&layer, "ada").await;
        assert_eq!((response.status(), source(&response)), (StatusCode::OK, Source::Fallback));
        held.push(response);
    }
    for _ in 0..10 {
        assert_eq!(ask(&layer, "ada").await.status(), StatusCode::TOO_MANY_REQUESTS);
        sleep(LIFE / 3).await;
    }
    // They are released where they were taken, though the store decides again.
    store.becomes(Mood::Decides);
    sleep(Duration::from_secs(1)).await;
    let shared = ask(&layer, "ada").await;
    assert_eq!(source(&shared), Source::Store);
    held.clear();
    assert_eq!(store.settled(), 0);
    drop(shared);
    assert_eq!(store.settled(), 1);
}

#[tokio::test]
async fn slots_of_the_store_are_renewed_and_released_while_others_are_decided_without_it() {
    let store = store(Mood::Decides);
    let layer = layer(&store, at_once(2));
    let held = [ask(&layer, "ada").await, ask(&layer, "ada").await];
    store.becomes(Mood::Fails);
    for _ in 0..10 {
        ask(&layer, "ada").await;
        sleep(LIFE / 3).await;
    }
    store.becomes(Mood::Decides);
    sleep(Duration::from_secs(1)).await;
    drop(ask(&layer, "bob").await);
    assert_eq!(ask(&layer, "ada").await.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(held);
    let response = ask(&layer, "ada").await;
    assert_eq!((response.status(), source(&response)), (StatusCode::OK, Source::Store));
}

#[tokio::test]
async fn a_layer_that_admits_all_in_an_outage_holds_nothing() {
    let store = store(Mood::Fails);
    let layer = layer(&store, at_once(1)).on_failure(OnFailure::Allow);
    for _ in 0..5 {
        let response = ask(&layer, "ada").await;
        assert_eq!((response.status(), source(&response)), (StatusCode::OK, Source::FailOpen));
    }
    assert_eq!(store.settled(), 0);
}

#[tokio::test]
async fn slots_of_a_decision_that_comes_after_the_timeout_are_released() {
    let store = store(Mood::DecidesIn(ms(200)));
    let layer = layer(&store, at_once(3)).timeout(ms(50));
    let late = ask(&layer, "ada").await;
    assert_eq!((late.status(), source(&late)), (StatusCode::OK, Source::Fallback));
    sleep(ms(200)).await;
    store.becomes(Mood::Decides);
    let held = [ask(&layer, "ada").await, ask(&layer, "ada").await, ask(&layer, "ada").await];
    assert!(held.iter().all(|response| (response.status(), source(response)) == (StatusCode::OK, Source::Store)));
}
