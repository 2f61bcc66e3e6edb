//! A database that fails: typed errors, bounded waits, and nothing admitted that was not counted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::time::Duration;

use futures::executor::block_on;
use tokio::time::{Instant, sleep};
use tollgate::Quota;
use tollgate::store::{Ask, Change, Receipt, ReceiptItem, Settlement, Store};

use crate::support::table::Next;
use crate::support::{check, counter};
use crate::{BUDGET, Rig, runtime};

const THREE: Quota = Quota::fixed_window(3, Duration::from_secs(3_600));

#[tokio::test(start_paused = true)]
async fn each_failure_has_its_kind_and_takes_nothing() {
    let rig = Rig::new(Duration::from_millis(1));
    let one = check("ada", THREE, 1);
    let fails = async |next| {
        rig.table.next(next);
        rig.decide(slice::from_ref(&one)).await.expect_err("it fails")
    };
    assert!(fails(Next::FailsToLoad).await.is_connection());
    let start = Instant::now();
    assert!(fails(Next::HangsToLoad).await.is_timeout());
    assert!(start.elapsed() <= BUDGET + Duration::from_millis(2), "{:?}", start.elapsed());
    let fewer = fails(Next::ForgetsOne).await;
    assert!(fewer.is_store());
    assert_eq!(fewer.to_string(), "the database returned 0 states for 1 ids");
    let none = fails(Next::ReturnsNoState).await;
    assert_eq!(none.to_string(), "a state is of version 2 of its format, and this crate reads 1");
    assert!(fails(Next::PanicsInLoad).await.is_store());
    for _ in 0..3 {
        assert!(rig.is_allowed(&one).await, "nothing was taken");
    }
    assert!(!rig.is_allowed(&one).await);
}

#[tokio::test(start_paused = true)]
async fn a_state_that_cannot_be_read_fails_its_own_requests_until_it_is_reset() {
    let rig = Rig::new(Duration::from_millis(1));
    let (ada, eve) = (check("ada", THREE, 1), check("eve", THREE, 1));
    assert!(rig.is_allowed(&ada).await && rig.is_allowed(&eve).await);
    rig.table.spoil("eve");
    let error = rig.decide(&[ada.clone(), eve.clone()]).await.expect_err("one of them is spoilt");
    assert!(error.is_store(), "{error}");
    let (one, other) = tokio::join!(rig.decide(slice::from_ref(&eve)), rig.decide(slice::from_ref(&ada)));
    assert!(one.is_err() && other.is_ok());
    rig.store.adjust(&eve.counter, Change::Reset).wait().await.expect("it is forgotten, whatever it was");
    assert!(rig.is_allowed(&eve).await);
}

#[tokio::test(start_paused = true)]
async fn requests_behind_a_commit_that_hangs_begin_when_its_budget_is_over() {
    let rig = Rig::new(Duration::from_millis(1));
    let one = check("ada", THREE, 1);
    rig.table.next(Next::CommitsAfter(Duration::from_secs(5)));
    let (first, second) = tokio::join!(rig.decide(slice::from_ref(&one)), async {
        sleep(BUDGET / 2).await;
        let start = Instant::now();
        (rig.decide(slice::from_ref(&one)).await, start.elapsed())
    });
    assert!(first.expect_err("it is late").is_timeout());
    assert!(second.0.is_ok() && second.1 < BUDGET, "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_reply_is_lost_is_an_error_and_is_not_made_again() {
    let rig = Rig::new(Duration::from_millis(1));
    let one = check("ada", THREE, 1);
    rig.table.next(Next::LosesCommit);
    assert!(rig.decide(slice::from_ref(&one)).await.expect_err("it is lost").is_connection());
    assert_eq!(rig.table.calls(), (1, 1));
    for _ in 0..2 {
        assert!(rig.is_allowed(&one).await);
    }
    assert!(!rig.is_allowed(&one).await, "it was counted");
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_comes_too_late_is_refunded() {
    let rig = Rig::new(Duration::from_millis(1));
    let one = check("ada", THREE, 3);
    rig.table.next(Next::CommitsAfter(Duration::from_secs(2)));
    let start = Instant::now();
    assert!(rig.decide(slice::from_ref(&one)).await.expect_err("it is late").is_timeout());
    assert!(start.elapsed() <= BUDGET + Duration::from_millis(2), "{:?}", start.elapsed());
    sleep(Duration::from_secs(3)).await;
    assert!(rig.is_allowed(&one).await, "what came late was refunded");
    assert!(!rig.is_allowed(&one).await);
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_decided_again_and_not_for_ever() {
    let rig = Rig::new(Duration::from_millis(1));
    let one = check("ada", THREE, 1);
    rig.table.next(Next::Conflicts(15));
    assert!(rig.is_allowed(&one).await);
    rig.table.next(Next::Conflicts(16));
    let error = rig.decide(slice::from_ref(&one)).await.expect_err("it always conflicts");
    assert_eq!(error.to_string(), "other transactions changed the same states again and again");
    assert_eq!(rig.table.calls(), (32, 32));
    rig.table.next(Next::Works);
    for _ in 0..2 {
        assert!(rig.is_allowed(&one).await, "what conflicted took nothing");
    }
    assert!(!rig.is_allowed(&one).await);
}

#[test]
fn without_a_runtime_a_database_that_waits_is_an_error() {
    let rig = Rig::new(Duration::ZERO);
    rig.table.next(Next::HangsToLoad);
    let one = check("ada", THREE, 1);
    let error = block_on(rig.decide(slice::from_ref(&one))).expect_err("it hangs");
    assert!(error.is_store(), "{error}");
    assert!(block_on(rig.decide(slice::from_ref(&one))).is_ok(), "and nothing is stuck");
}

#[test]
fn a_database_that_panics_on_its_callers_thread_or_when_it_is_dropped_stops_nobody_else() {
    let one = check("ada", THREE, 1);
    for next in [Next::PanicsInLoad, Next::PanicsWhenDropped] {
        let rig = Rig::new(Duration::ZERO);
        let begin = || rig.store.decide(slice::from_ref(&one), Ask::default());
        rig.table.next(next);
        // Without a runtime a load is dropped when it has to wait.
        catch_unwind(AssertUnwindSafe(begin)).expect_err("it panics");
        let threads = runtime();
        let later = [(); 2].map(|()| {
            let _entered = threads.enter();
            begin()
        });
        for next in later {
            assert!(threads.block_on(next.wait()).expect("a decision").decision.is_allowed());
        }
        assert!(block_on(begin().wait()).expect("a decision").decision.is_allowed(), "also without a runtime");
    }
}

#[tokio::test(start_paused = true)]
async fn a_settlement_whose_load_panics_returns_an_error() {
    for trip in [Duration::from_millis(1), Duration::ZERO] {
        let rig = Rig::new(trip);
        let id = rig.store.capabilities(&[]).expect("it supports nothing").id.expect("it has one");
        let receipt = Receipt::new(id, [ReceiptItem::new(counter("ada", THREE), 1, 0)]);
        rig.table.next(Next::PanicsInLoad);
        let settled = rig.store.settle(receipt, &[Settlement::new(0, Change::Refund(1))]).wait().await;
        assert!(settled.is_err(), "nothing was refunded");
    }
}
