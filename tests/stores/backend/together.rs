//! Many at once: exact together, and in few transactions.

use std::time::Duration;

use futures::future::join_all;
use tollgate::store::{Ask, BackendStore, Change, Settlement};
use tollgate::{Quota, Store};

use super::Rig;
use crate::support::checks::check;
use crate::support::table::{Next, Table};

const HOURLY: Quota = Quota::fixed_window(1_000, Duration::from_secs(3_600));

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_over_one_key_share_transactions_and_admit_the_limit() {
    let rig = Rig::new(Duration::from_millis(1));
    let one = check("ada", HOURLY, 1);
    let patient = BackendStore::builder(rig.table.clone()).budget(Duration::from_secs(20));
    let patient = patient.build().expect("valid settings");
    let calls = (0..1_500).map(|_| {
        let (store, one) = (patient.clone(), one.clone());
        tokio::spawn(async move { store.decide(&[one], Ask::default()).wait().await })
    });
    let decided = join_all(calls).await;
    let allowed = decided.into_iter().map(|one| one.expect("no panic").expect("a decision"));
    assert_eq!(allowed.filter(|one| one.decision.is_allowed()).count(), 1_000);
    assert!(rig.table.calls().0 < 100, "{:?}", rig.table.calls());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_stores_on_one_table_admit_the_limit_together() {
    let rig = Rig::new(Duration::ZERO);
    let table = rig.table.clone();
    let stores: Vec<_> = (0..4)
        .map(|_| BackendStore::builder(table.clone()).budget(Duration::from_secs(20)).build().expect("valid settings"))
        .collect();
    let calls = (0..400).map(|place| {
        let (store, one) = (stores[place % stores.len()].clone(), check("ada", Quota::per_hour(100), 1));
        tokio::spawn(async move { store.decide(&[one], Ask::default()).wait().await })
    });
    let decided = join_all(calls).await;
    let allowed = decided.into_iter().filter_map(|one| one.expect("no panic").ok());
    assert_eq!(allowed.filter(|one| one.decision.is_allowed()).count(), 100);
}

#[tokio::test(start_paused = true)]
async fn other_keys_do_not_wait_for_a_hanging_one() {
    let rig = Rig::new(Duration::from_millis(1));
    rig.table.next(Next::HangsToLoad);
    let (ada, bob) = (check("ada", HOURLY, 1), check("bob", HOURLY, 1));
    let (hangs, goes) = tokio::join!(rig.decide(std::slice::from_ref(&ada)), async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let start = tokio::time::Instant::now();
        assert!(rig.is_allowed(&bob).await);
        start.elapsed()
    });
    assert!(hangs.expect_err("it hangs").is_timeout());
    assert!(goes < Duration::from_millis(10), "{goes:?}");
    assert!(rig.is_allowed(&ada).await, "it works again");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_polls_once_and_leaves_stops_nobody_and_keeps_its_units() {
    let rig = Rig::new(Duration::from_millis(1));
    let two = check("ada", Quota::per_hour(2), 1);
    {
        let mut left = Box::pin(rig.decide(std::slice::from_ref(&two)));
        assert!(futures::poll!(left.as_mut()).is_pending());
        tokio::time::sleep(Duration::from_micros(1_500)).await;
    }
    assert!(rig.is_allowed(&two).await);
    assert!(!rig.is_allowed(&two).await, "the first took one, too");
}

/// A store on the same table with a budget that a busy machine does not use up, and that no retry waits for.
fn patient(rig: &Rig) -> BackendStore<Table> {
    let settings = BackendStore::builder(rig.table.clone()).budget(Duration::from_secs(20));
    settings.build().expect("valid settings")
}

#[test]
fn a_runtime_that_stops_stops_no_other() {
    let rig = Rig::new(Duration::from_millis(5));
    let build =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (first, second) = (build(), build());
    let (patient, one) = (patient(&rig), check("ada", HOURLY, 1));
    for round in 0..20 {
        let stopped = build();
        let (store, check) = (patient.clone(), one.clone());
        drop(stopped.spawn(async move { store.decide(&[check], Ask::default()).wait().await }));
        let (store, check) = (patient.clone(), one.clone());
        let waits = first.spawn(async move { store.decide(&[check], Ask::default()).wait().await });
        std::thread::sleep(Duration::from_millis(1));
        stopped.shutdown_background();
        let decided = second.block_on(waits).expect("no panic");
        assert!(decided.is_ok(), "round {round}: {decided:?}");
    }
}

/// Jobs over one key share a round, which a runtime of one of them runs.
#[test]
fn a_runtime_that_stops_fails_no_request_of_another_that_shares_its_round() {
    let rig = Rig::new(Duration::from_millis(5));
    let build = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().expect("a runtime")
    };
    let (first, stops, other) = (build(), build(), build());
    let (patient, one, many) = (patient(&rig), check("ada", HOURLY, 1), 40);
    let begin = |runtime: &tokio::runtime::Runtime| {
        let _entered = runtime.enter();
        patient.decide(std::slice::from_ref(&one), Ask::default())
    };
    for round in 0..20 {
        let stopping = build();
        let busy = begin(&first);
        // These wait for it, and go together, those of the runtime that stops first.
        let lost: Vec<_> = (0..many).map(|_| begin(if round % 2 == 0 { &stopping } else { &stops })).collect();
        let kept: Vec<_> = (0..many).map(|_| begin(&other)).collect();
        stopping.shutdown_background();
        let decided = other.block_on(async {
            drop(busy.wait().await);
            join_all(kept.into_iter().map(tollgate::store::Answer::wait)).await
        });
        assert!(decided.iter().all(Result::is_ok), "round {round}: {decided:?}");
        drop(lost);
    }
}

/// A round belongs to the runtime that runs it, and nothing runs this one after its first poll.
#[test]
fn a_runtime_that_nothing_drives_keeps_no_key_for_longer_than_the_budget() {
    let rig = Rig::new(Duration::from_millis(5));
    let build = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (left, other) = (build(), build());
    let one = check("ada", Quota::per_hour(3), 1);
    let entered = left.enter();
    let mut polled = Box::pin(rig.store.decide(std::slice::from_ref(&one), Ask::default()).wait());
    drop(entered);
    left.block_on(async { assert!(futures::poll!(&mut polled).is_pending()) });
    let decide = || other.block_on(rig.decide(std::slice::from_ref(&one)));
    let early = decide().expect_err("the key is in the round that nothing drives");
    assert!(early.is_timeout(), "{early}");
    std::thread::sleep(Duration::from_millis(10));
    assert!(decide().expect("the budget of that round is over").decision.is_allowed());
    // Driven again, it is one of several that the database keeps apart: no unit is lost or invented.
    let late = left.block_on(polled);
    let taken = 1 + u64::from(late.is_ok_and(|decided| decided.decision.is_allowed()));
    left.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
    let left_over = (0..4).filter(|_| decide().expect("a decision").decision.is_allowed()).count() as u64;
    assert_eq!(taken + left_over, 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_settled_is_there_for_the_next_request() {
    let rig = Rig::new(Duration::from_millis(1));
    let two = check("ada", Quota::per_hour(2), 2);
    for _ in 0..3 {
        let decided = rig.decide(std::slice::from_ref(&two)).await.expect("a decision");
        assert!(decided.decision.is_allowed());
        drop(rig.store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(2))]));
    }
    assert!(rig.is_allowed(&two).await);
    assert!(!rig.is_allowed(&two).await);
    let counter = two.counter.clone();
    rig.store.adjust(&counter, Change::Reset).wait().await.expect("it is there");
    assert_eq!(rig.table.len(), 0, "a reset leaves no state");
    assert!(rig.is_allowed(&two).await);
}
