//! Stores that do as a test says.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;
use tollgate::policy::PolicyName;
use tollgate::store::{Ask, AskMode, Change, Check, Counter, MaybeFuture, Mode, Settlement, Store, StoreDecision};
use tollgate::test_util::{FailingStore, ManualClock, Recorded, RecordingStore, StoreFn};
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
async fn a_closure_decides_each_check_and_refuses_all_of_a_request() -> Result<(), Error> {
    let store = StoreFn::new(|check| check.cost < 5);
    let decide = |checks: &[Check]| store.decide(checks, Ask::default()).wait();

    let decided = decide(&[check(4), check(3)]).await?;
    assert!(decided.decision.is_allowed());
    assert_eq!(decided.decision.outcomes()[0].remaining(), 6);
    assert_eq!(decided.receipt.items().iter().map(|taken| taken.units).collect::<Vec<_>>(), [4, 3]);
    let applied = store.settle(decided.receipt, &[Settlement::new(1, Change::Refund(9))]).wait().await?;
    assert_eq!(applied[0].units, 3, "no more than was taken");

    let refused = decide(&[check(4), check(5)]).await?;
    assert!(!refused.decision.is_allowed() && refused.receipt.items().is_empty());
    assert_eq!(refused.decision.retry_after(), Some(Duration::from_secs(60)));

    let shadow = decide(&[check(5).mode(Mode::Shadow)]).await?;
    assert!(shadow.decision.is_allowed());
    assert_eq!(shadow.receipt.items()[0].units, 0);
    Ok(())
}

#[tokio::test]
async fn a_closure_ignores_receipts_of_other_stores() -> Result<(), Error> {
    let (store, other) = (StoreFn::new(|_| true), StoreFn::new(|_| true));
    let decided = other.decide(&[check(3)], Ask::default()).wait().await?;
    assert!(store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(3))]).wait().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_closures_decisions_have_the_source_and_the_wait_that_a_test_sets() -> Result<(), Error> {
    let store = StoreFn::new(|check| check.cost < 5).source(Source::Lease).retry_after(Duration::from_secs(3));
    let fits = store.decide(&[check(4)], Ask::default()).wait().await?.decision;
    assert_eq!((fits.is_allowed(), fits.source()), (true, Source::Lease));
    let refused = store.decide(&[check(5)], Ask::default()).wait().await?.decision;
    assert_eq!((refused.source(), refused.retry_after()), (Source::Lease, Some(Duration::from_secs(3))));
    Ok(())
}

#[tokio::test]
async fn a_look_fits_whatever_the_closure_returns() -> Result<(), Error> {
    let store = StoreFn::new(|_| false);
    let looked = store.decide(&[check(0)], Ask::default()).wait().await?;
    assert!(looked.decision.is_allowed());
    assert_eq!(looked.decision.outcomes()[0].remaining(), 0);
    Ok(())
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

#[tokio::test]
async fn calls_are_recorded_in_their_order_and_passed_on() -> Result<(), Error> {
    let store = RecordingStore::new(MemoryStore::new());
    let decided = store.decide(&[check(3)], Ask::default()).wait().await?;
    store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(2))]).wait().await?;
    store.adjust(&counter(), Change::Charge(4)).wait().await?;
    let looked = store.decide(&[check(0)], Ask::default().mode(AskMode::Probe)).wait().await?;
    assert_eq!(looked.decision.outcomes()[0].remaining(), 5);
    store.adjust(&counter(), Change::Reset).wait().await?;

    let calls = store.clone().take();
    let [
        Recorded::Decide(decided),
        Recorded::Settle(taken, changes),
        Recorded::Adjust(adjusted, Change::Charge(4)),
        Recorded::Probe(probed),
        Recorded::Adjust(reset, Change::Reset),
    ] = &calls[..]
    else {
        panic!("{calls:?}")
    };
    assert_eq!((decided[0].cost, taken[0].units, probed[0].cost), (3, 3, 0));
    assert_eq!(changes, &[Settlement::new(0, Change::Refund(2))]);
    assert_eq!((adjusted, reset), (&counter(), &counter()));
    assert!(store.recorded().is_empty());
    Ok(())
}
