//! Stores that do as a test says.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::store::{Change, Check, Counter, Deadline, Mode, Settlement};
use tollgate::test_util::{FailingStore, ManualClock, Recorded, RecordingStore, StoreFn};
use tollgate::{Error, Key, Limiter, MemoryStore, OnFailure, PolicyName, Quota, Rule, Source, Store};

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
    let decide = |checks: &[Check]| store.decide(checks, Deadline::none()).wait();

    let decided = decide(&[check(4), check(3)]).await?;
    assert!(decided.decision.is_allowed());
    assert_eq!(decided.decision.outcomes()[0].remaining(), 6);
    assert_eq!(decided.receipt.taken().iter().map(|taken| taken.units).collect::<Vec<_>>(), [4, 3]);
    let applied = store.settle(decided.receipt, &[Settlement::new(1, Change::Refund(9))]).wait().await?;
    assert_eq!(applied[0].units, 3, "no more than was taken");

    let refused = decide(&[check(4), check(5)]).await?;
    assert!(!refused.decision.is_allowed() && refused.receipt.taken().is_empty());
    assert_eq!(refused.decision.retry_after(), Some(Duration::from_secs(60)));

    let shadow = decide(&[check(5).mode(Mode::Shadow)]).await?;
    assert!(shadow.decision.is_allowed());
    assert_eq!(shadow.receipt.taken()[0].units, 0);
    Ok(())
}

#[tokio::test]
async fn a_closure_ignores_receipts_of_other_stores() -> Result<(), Error> {
    let (store, other) = (StoreFn::new(|_| true), StoreFn::new(|_| true));
    let decided = other.decide(&[check(3)], Deadline::none()).wait().await?;
    assert!(store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(3))]).wait().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_look_fits_whatever_the_closure_returns() -> Result<(), Error> {
    let store = StoreFn::new(|_| false);
    let looked = store.decide(&[check(0)], Deadline::none()).wait().await?;
    assert!(looked.decision.is_allowed());
    assert_eq!(looked.decision.outcomes()[0].remaining(), 0);
    Ok(())
}

#[tokio::test]
async fn a_failing_store_fails_in_each_kind_and_works_again() -> Result<(), Error> {
    let store = FailingStore::new(MemoryStore::new());
    let twin = store.clone();
    let decide = || twin.decide(&[check(1)], Deadline::none()).wait();
    assert!(decide().await.is_ok());
    store.fail();
    assert!(decide().await.is_err_and(|error| error.is_connection()));
    assert!(twin.adjust(&counter(), Change::Charge(1)).wait().await.is_err());
    assert!(twin.reset(&counter()).wait().await.is_err());
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
        .budget(Duration::from_millis(30));
    store.hang();
    assert_eq!(limiter.check(&Key::new("user", "ada")).await?.source(), Source::Fallback);
    assert!((30..35).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    Ok(())
}

#[tokio::test]
async fn settlements_and_changes_that_hang_end_in_bounded_time() -> Result<(), Error> {
    let (_clock, start) = (ManualClock::paused(), Instant::now());
    let store = FailingStore::new(MemoryStore::new());
    let decided = store.decide(&[check(1)], Deadline::none()).wait().await?;
    store.hang();
    let refund = Settlement::new(0, Change::Refund(1));
    assert!(store.settle(decided.receipt, &[refund]).wait().await.is_err_and(|error| error.is_timeout()));
    assert!(start.elapsed() < Duration::from_millis(110));
    assert!(store.reset(&counter()).wait().await.is_err_and(|error| error.is_timeout()));
    Ok(())
}

#[tokio::test]
async fn a_store_that_keeps_deadlines_keeps_them_while_it_hangs() {
    struct Bounded(MemoryStore);
    impl Store for Bounded {
        crate::support::doubles::passes_on!(0: decide, settle, adjust, reset);

        fn budget(&self) -> Option<Duration> {
            Some(Duration::from_millis(50))
        }
    }

    let (_clock, start) = (ManualClock::paused(), Instant::now());
    let store = FailingStore::new(Bounded(MemoryStore::new()));
    store.hang();
    let checks = [check(1)];
    assert!(store.decide(&checks, Deadline::none()).wait().await.is_err_and(|error| error.is_timeout()));
    assert!((50..55).contains(&start.elapsed().as_millis()));
    let sooner = Deadline::after(Duration::from_millis(20));
    assert!(store.decide(&checks, sooner).wait().await.is_err_and(|error| error.is_timeout()));
    assert!((70..80).contains(&start.elapsed().as_millis()));
}

#[tokio::test]
async fn calls_are_recorded_in_their_order_and_passed_on() -> Result<(), Error> {
    let store = RecordingStore::new(MemoryStore::new());
    let decided = store.decide(&[check(3)], Deadline::none()).wait().await?;
    store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(2))]).wait().await?;
    store.adjust(&counter(), Change::Charge(4)).wait().await?;
    let looked = store.probe(&[check(0)], Deadline::none()).wait().await?;
    assert_eq!(looked.decision.outcomes()[0].remaining(), 5);
    store.reset(&counter()).wait().await?;

    let calls = store.clone().take();
    let [
        Recorded::Decide(decided),
        Recorded::Settle(taken, changes),
        Recorded::Adjust(adjusted, Change::Charge(4)),
        Recorded::Probe(probed),
        Recorded::Reset(reset),
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
