//! A store that fails, hangs and is slow as a test says.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;
use tollgate::store::{Ask, Change, Settlement, Store, StoreDecision};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Error, Key, Limiter, MemoryStore, OnFailure, Quota, Rule, Source};

use crate::support::checks::{check, counter};
use crate::support::doubles::Bounded;

const QUOTA: Quota = Quota::per_minute(10);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn decide(store: &impl Store, ask: Ask) -> Result<u64, Error> {
    let decided: StoreDecision = store.decide(&[check("ada", QUOTA, 1)], ask).wait().await?;
    Ok(decided.decision.outcomes()[0].remaining())
}

/// Checks that it is so many milliseconds since a time, or a few more.
#[track_caller]
fn assert_passed(since: Instant, millis: u128) {
    assert!((millis..millis + 10).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_failing_store_fails_in_each_kind_and_works_again() -> Result<(), Error> {
    let (store, ask) = (FailingStore::new(MemoryStore::new()), Ask::default());
    let twin = store.clone();
    assert_eq!(decide(&twin, ask).await?, 9);
    store.fail();
    assert!(decide(&twin, ask).await.is_err_and(|error| error.is_connection()));
    assert!(twin.adjust(&counter("ada", QUOTA), Change::Charge(1)).wait().await.is_err());
    store.fail_with(|| Error::timeout("slow"));
    assert!(decide(&twin, ask).await.is_err_and(|error| error.is_timeout()));
    store.fail_with(|| Error::store("full", std::io::Error::other("no memory")));
    assert!(decide(&twin, ask).await.is_err_and(|error| error.is_store()));
    store.work();
    assert_eq!(decide(&twin, ask).await?, 8, "what failed took nothing");
    Ok(())
}

#[tokio::test]
async fn a_layer_ends_what_hangs_and_decides_by_its_fallback() -> Result<(), Error> {
    let (_clock, start) = (ManualClock::paused(), Instant::now());
    let store = FailingStore::new(MemoryStore::new());
    let limiter = Limiter::new(store.clone(), [Rule::new("mail", QUOTA)]).on_failure(OnFailure::Fallback);
    store.hang();
    assert_eq!(limiter.timeout(ms(30)).check(&Key::new("user", "ada")).await?.source(), Source::Fallback);
    assert_passed(start, 30);
    Ok(())
}

#[tokio::test]
async fn what_hangs_or_is_slow_ends_by_the_budget_of_the_store_and_deadlines() {
    let (_clock, ask) = (ManualClock::paused(), Ask::default());
    let store = FailingStore::new(Bounded(MemoryStore::new(), Some(ms(50))));
    for make_late in [FailingStore::hang, |store: &FailingStore<_>| store.delay(ms(80))] {
        make_late(&store);
        let start = Instant::now();
        assert!(decide(&store, ask).await.is_err_and(|error| error.is_timeout()));
        assert_passed(start, 50);
        assert!(decide(&store, ask.within(ms(20))).await.is_err_and(|error| error.is_timeout()));
        assert_passed(start, 70);
    }
    store.work();
    store.delay(ms(40));
    let taken = store.decide(&[check("ada", QUOTA, 1)], ask).wait().await.expect("it is in time");
    store.hang();
    let start = Instant::now();
    let settling = store.settle(taken.receipt, &[Settlement::new(0, Change::Refund(1))]).wait();
    assert!(settling.await.is_err_and(|error| error.is_timeout()));
    assert!(store.adjust(&counter("ada", QUOTA), Change::Reset).wait().await.is_err_and(|error| error.is_timeout()));
    assert_passed(start, 100);
}

#[tokio::test]
async fn a_slow_store_decides_at_once_and_answers_after_its_delay() -> Result<(), Error> {
    let (_clock, start, ask) = (ManualClock::paused(), Instant::now(), Ask::default());
    let store = FailingStore::new(MemoryStore::new());
    store.delay(ms(30));
    drop(store.decide(&[check("ada", QUOTA, 1)], ask));
    assert_eq!(decide(&store, ask).await?, 8, "what was dropped was taken");
    assert_passed(start, 30);
    store.adjust(&counter("ada", QUOTA), Change::Reset).wait().await?;
    assert_passed(start, 60);
    store.fail();
    store.delay(ms(30));
    assert!(decide(&store, ask).await.is_err_and(|error| error.is_connection()));
    assert_passed(start, 90);
    store.work();
    assert_eq!(decide(&store, ask).now_or_never().expect("it is slow no more")?, 9);
    Ok(())
}

#[test]
fn answers_and_failures_are_held_until_they_are_released_in_any_order() {
    let store = FailingStore::new(MemoryStore::new());
    let decide = || Box::pin(decide(&store, Ask::default()));
    let first = store.hold();
    let mut held_first = decide();
    assert!(held_first.as_mut().now_or_never().is_none());
    store.fail();
    let second = store.hold();
    let mut failing = decide();
    assert!(failing.as_mut().now_or_never().is_none());
    store.work();
    let third = store.hold();
    let mut held_third = decide();
    assert!(held_third.as_mut().now_or_never().is_none());
    third.release();
    assert_eq!(held_third.now_or_never().expect("it is released").ok(), Some(8));
    assert_eq!(decide().now_or_never().expect("nothing is held any more").ok(), Some(7));
    assert!(held_first.as_mut().now_or_never().is_none() && failing.as_mut().now_or_never().is_none());
    second.release();
    assert!(failing.now_or_never().is_some_and(|decided| decided.is_err()), "it failed when it was called");
    drop(first);
    assert_eq!(held_first.now_or_never().expect("it is released").ok(), Some(9), "it was the first");
}
