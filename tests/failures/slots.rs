//! Slots while the store fails: those of the local one, and those that the store has.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::sleep;
use tollgate::test_util::ManualClock;
use tollgate::{OnFailure, Quota, Source};

use crate::rig::{Mood, Moody, ask, layer, ms, source, told};

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
        held.push(ask(&layer, "ada").await);
        assert_eq!(told(&held[held.len() - 1]), (200, Source::Fallback));
    }
    for _ in 0..10 {
        assert_eq!(ask(&layer, "ada").await.status(), 429);
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
    assert_eq!(ask(&layer, "ada").await.status(), 429);
    drop(held);
    assert_eq!(told(&ask(&layer, "ada").await), (200, Source::Store));
}

#[tokio::test]
async fn a_layer_that_admits_all_in_an_outage_holds_nothing() {
    let store = store(Mood::Fails);
    let layer = layer(&store, at_once(1)).on_failure(OnFailure::Allow);
    for _ in 0..5 {
        assert_eq!(told(&ask(&layer, "ada").await), (200, Source::FailOpen));
    }
    assert_eq!(store.settled(), 0);
}

#[tokio::test]
async fn slots_of_a_decision_that_comes_after_the_timeout_are_released() {
    let store = store(Mood::DecidesIn(ms(200)));
    let layer = layer(&store, at_once(3)).timeout(ms(50));
    assert_eq!(told(&ask(&layer, "ada").await), (200, Source::Fallback));
    sleep(ms(200)).await;
    store.becomes(Mood::Decides);
    let held = [ask(&layer, "ada").await, ask(&layer, "ada").await, ask(&layer, "ada").await];
    assert!(held.iter().all(|response| told(response) == (200, Source::Store)));
}
