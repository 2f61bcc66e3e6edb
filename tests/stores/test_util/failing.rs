//! A store that fails, hangs and is slow as a test says.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;
use tollgate::policy::PolicyName;
use tollgate::store::{Ask, Change, Check, Counter, MaybeFuture, Settlement, Store, StoreDecision};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Error, Key, Limiter, MemoryStore, OnFailure, Quota, Rule, Source};

use crate::support::doubles::Bounded;

fn counter() -> Counter {
    let policy = PolicyName::try_from("mail").expect("a valid name");
    Counter::new(policy, Key::new("user", "ada"), Quota::per_minute(10))
}

fn check(cost: u64) -> Check {
    Check::new(counter(), cost)
}

#[tokio::test]
async fn a_failing_store_fails_in_each_kind_and_works_again() -> Result<(), Error> {
    let store = FailingStore::new(MemoryStore::new());
    let twin = store.clone();
    let decide = || twin.decide(&[check(1)], Ask::default()).wait();
    assert!(decide().await.is_ok());
    store.fail();
    assert!(decide().await.is_err_and(|error| error.is_connection()));
    assert!(twin.adjust(&counter(), Change::Charge(1)).wait().await.is_err());
    assert!(twin.adjust(&counter(), Change::Reset).wait().await.is_err());
    store.fail_with(|| Error::timeout("slow"));
    assert!(decide().await.is_err_and(|error| error.is_timeout()));
    store.fail_with(|| Error::store("full", std::io::Error::other("no memory")));
    assert!(decide().await.is_err_and(|error| error.is_store()));
    store.work();
    assert_eq!(decide().await?.decision.outcomes()[0].remaining(), 8, "what failed took nothing");
    Ok(())
}

#[test]
fn a_closure_of_a_failing_store_may_own_what_calls_the_store_when_it_is_dropped() {
    struct Mends(FailingStore<MemoryStore>);
    impl Drop for Mends {
        fn drop(&mut self) {
            self.0.work();
        }
    }

    let (done, waits) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let store = FailingStore::new(MemoryStore::new());
        let mends = Mends(store.clone());
        store.fail_with(move || {
            let _own = &mends;
            Error::timeout("slow")
        });
        store.hang();
        done.send(()).expect("the test waits");
    });
    waits.recv_timeout(Duration::from_secs(10)).expect("it does not wait for itself");
}

#[tokio::test]
async fn a_layer_ends_what_hangs_and_decides_by_its_fallback() -> Result<(), Error> {
    let (_clock, start) = (ManualClock::paused(), Instant::now());
    let store = FailingStore::new(MemoryStore::new());
    let limiter = Limiter::new(store.clone(), [Rule::new("mail", Quota::per_minute(10))])
        .on_failure(OnFailure::Fallback)
        .timeout(Duration::from_millis(30));
    store.hang();
    assert_eq!(limiter.check(&Key::new("user", "ada")).await?.source(), Source::Fallback);
    assert!((30..35).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    Ok(())
}

#[tokio::test]
async fn settlements_and_changes_that_hang_end_in_bounded_time() -> Result<(), Error> {
    let (_clock, start) = (ManualClock::paused(), Instant::now());
    let store = FailingStore::new(MemoryStore::new());
    let decided = store.decide(&[check(1)], Ask::default()).wait().await?;
    store.hang();
    let refund = Settlement::new(0, Change::Refund(1));
    assert!(store.settle(decided.receipt, &[refund]).wait().await.is_err_and(|error| error.is_timeout()));
    assert!(start.elapsed() < Duration::from_millis(110));
    assert!(store.adjust(&counter(), Change::Reset).wait().await.is_err_and(|error| error.is_timeout()));
    Ok(())
}

#[tokio::test]
async fn a_store_that_keeps_deadlines_keeps_them_while_it_hangs() {
    let (_clock, start) = (ManualClock::paused(), Instant::now());
    let store = FailingStore::new(Bounded(MemoryStore::new(), Some(Duration::from_millis(50))));
    store.hang();
    let checks = [check(1)];
    assert!(store.decide(&checks, Ask::default()).wait().await.is_err_and(|error| error.is_timeout()));
    assert!((50..55).contains(&start.elapsed().as_millis()));
    let sooner = Ask::default().within(Duration::from_millis(20));
    assert!(store.decide(&checks, sooner).wait().await.is_err_and(|error| error.is_timeout()));
    assert!((70..80).contains(&start.elapsed().as_millis()));
}

#[tokio::test]
async fn a_slow_store_decides_at_once_and_answers_after_its_delay() -> Result<(), Error> {
    let (_clock, start) = (ManualClock::paused(), Instant::now());
    let store = FailingStore::new(MemoryStore::new());
    let decide = || store.decide(&[check(1)], Ask::default());
    store.delay(Duration::from_millis(30));
    drop(decide());
    assert_eq!(decide().wait().await?.decision.outcomes()[0].remaining(), 8, "what was dropped was taken");
    assert!((30..35).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    store.adjust(&counter(), Change::Reset).wait().await?;
    assert!((60..70).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());

    store.fail();
    store.delay(Duration::from_millis(30));
    assert!(decide().wait().await.is_err_and(|error| error.is_connection()));
    assert!((90..105).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    store.work();
    assert!(matches!(decide(), MaybeFuture::Ready(Ok(_))), "it is slow no more");
    Ok(())
}

#[tokio::test]
async fn a_slow_store_keeps_its_budget_and_deadlines() {
    let (_clock, start) = (ManualClock::paused(), Instant::now());
    let store = FailingStore::new(Bounded(MemoryStore::new(), Some(Duration::from_millis(50))));
    let decide = |ask| store.decide(&[check(1)], ask).wait();
    store.delay(Duration::from_millis(80));
    assert!(decide(Ask::default()).await.is_err_and(|error| error.is_timeout()));
    assert!((50..55).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    let sooner = Ask::default().within(Duration::from_millis(20));
    assert!(decide(sooner).await.is_err_and(|error| error.is_timeout()));
    assert!((70..80).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    store.delay(Duration::from_millis(40));
    assert!(decide(Ask::default()).await.is_ok());
}

#[test]
fn answers_are_held_until_they_are_released_in_any_order() {
    let store = FailingStore::new(MemoryStore::new());
    let decide = || store.decide(&[check(1)], Ask::default()).wait();
    let left =
        |decided: Result<StoreDecision, Error>| decided.map(|decided| decided.decision.outcomes()[0].remaining());
    let first = store.hold();
    let mut held_first = Box::pin(decide());
    assert!(held_first.as_mut().now_or_never().is_none());
    let second = store.hold();
    let (mut held_second, mut held_too) = (Box::pin(decide()), Box::pin(decide()));
    second.release();
    assert!(held_first.as_mut().now_or_never().is_none(), "it is of the other");
    assert_eq!(left(held_second.as_mut().now_or_never().expect("it is released")).ok(), Some(8));
    assert_eq!(left(held_too.as_mut().now_or_never().expect("it is released")).ok(), Some(7));
    assert_eq!(left(decide().now_or_never().expect("nothing is held any more")).ok(), Some(6));
    drop(first);
    assert_eq!(left(held_first.as_mut().now_or_never().expect("it is released")).ok(), Some(9), "it was the first");
}

#[test]
fn a_failure_is_held_too_and_what_comes_after_it_is_not() {
    let store = FailingStore::new(MemoryStore::new());
    let decide = || store.decide(&[check(1)], Ask::default()).wait();
    store.fail();
    let held = store.hold();
    let mut failing = Box::pin(decide());
    store.work();
    assert!(decide().now_or_never().is_some_and(|decided| decided.is_ok()));
    assert!(failing.as_mut().now_or_never().is_none());
    held.release();
    assert!(failing.now_or_never().is_some_and(|decided| decided.is_err()), "it failed when it was called");
}
