//! Stores that record, or decide by a closure.

use std::time::Duration;

use tollgate::policy::PolicyName;
use tollgate::store::{Ask, Change, Check, Counter, Mode, Settlement, Store};
use tollgate::{Error, Key, MemoryStore, Quota};
use tollgate_test::{Recorded, RecordingStore, StoreFn};

fn counter() -> Counter {
    let policy = PolicyName::try_from("mail").expect("a valid name");
    Counter::new(policy, Key::new("user", "ada"), Quota::per_minute(10))
}

fn check(cost: u64) -> Check {
    Check::new(counter(), cost)
}

#[tokio::test]
async fn a_closure_decides_each_check_and_denies_all_of_a_request() -> Result<(), Error> {
    let store = StoreFn::new(|check| check.cost < 5);
    let decide = |checks: &[Check]| store.decide(checks, Ask::default()).wait();

    let decided = decide(&[check(4), check(3)]).await?;
    assert!(decided.decision.is_allowed());
    assert_eq!(decided.decision.outcomes()[0].remaining(), 6);
    assert_eq!(decided.receipt.items().iter().map(|taken| taken.units).collect::<Vec<_>>(), [4, 3]);
    let applied = store.settle(decided.receipt, &[Settlement::new(1, Change::Refund(9))]).wait().await?;
    assert_eq!(applied[0].units, 3, "no more than was taken");

    let denied = decide(&[check(4), check(5)]).await?;
    assert!(!denied.decision.is_allowed() && denied.receipt.items().is_empty());
    assert_eq!(denied.decision.retry_after(), Some(Duration::from_secs(60)));

    let shadow = decide(&[check(5).mode(Mode::Shadow)]).await?;
    assert!(shadow.decision.is_allowed());
    assert_eq!(shadow.receipt.items()[0].units, 0);
    Ok(())
}

#[tokio::test]
async fn a_peek_fits_whatever_the_closure_returns() -> Result<(), Error> {
    let store = StoreFn::new(|_| false);
    let peek = store.decide(&[check(0)], Ask::default()).wait().await?;
    assert!(peek.decision.is_allowed());
    assert_eq!(peek.decision.outcomes()[0].remaining(), 0);
    Ok(())
}

#[tokio::test]
async fn calls_are_recorded_in_their_order_and_passed_on() -> Result<(), Error> {
    let store = RecordingStore::new(MemoryStore::new());
    let decided = store.decide(&[check(3)], Ask::default()).wait().await?;
    store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(2))]).wait().await?;
    store.adjust(&counter(), Change::Charge(4)).wait().await?;
    let peek = store.decide(&[check(0)], Ask::default()).wait().await?;
    assert_eq!(peek.decision.outcomes()[0].remaining(), 5);
    store.adjust(&counter(), Change::Reset).wait().await?;

    let calls = store.clone().take();
    let [
        Recorded::Decide(decided),
        Recorded::Settle(taken, changes),
        Recorded::Adjust(adjusted, Change::Charge(4)),
        Recorded::Decide(peeked),
        Recorded::Adjust(reset, Change::Reset),
    ] = &calls[..]
    else {
        panic!("{calls:?}")
    };
    assert_eq!((decided[0].cost, taken[0].units, peeked[0].cost), (3, 3, 0));
    assert_eq!(changes, &[Settlement::new(0, Change::Refund(2))]);
    assert_eq!((adjusted, reset), (&counter(), &counter()));
    assert!(store.recorded().is_empty());
    Ok(())
}
