//! Settlements while the database is unavailable: what surely was not made is tried again, and nothing else.

use std::slice;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tollgate::store::{Ask, Change, Receipt, ReceiptItem, Settlement, Store};
use tollgate::{Key, Limiter, Quota, Rule, Source};

use crate::Rig;
use crate::support::table::Next;
use crate::support::{check, counter};

const OUTAGE: Duration = Duration::from_millis(300);
/// The longest pause, and what a few transactions take.
const SOON: Duration = Duration::from_millis(300);

const LIFE: Duration = Duration::from_secs(60);
const HUNDRED: Quota = Quota::fixed_window(100, Duration::from_secs(3_600));
const TEN_SLOTS: Quota = Quota::concurrency(10).slot_ttl(LIFE);

/// Returns how long it takes until so many units of a key are left.
async fn until_left(rig: &Rig, quota: Quota, units: u64) -> Duration {
    let (start, look) = (Instant::now(), check("ada", quota, 0));
    let left =
        async || rig.decide(slice::from_ref(&look)).await.expect("it is there").decision.outcomes()[0].remaining();
    let all = async {
        while left().await < units {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), all).await.expect("they are free at last");
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn refunds_and_slots_of_an_outage_are_free_again_soon_after_it() {
    for refusal in [Next::RefusesLoads, Next::RefusesCommits] {
        let rig = Rig::new(Duration::from_millis(1));
        let limiter = Limiter::new(rig.store.clone(), [Rule::new("slots", TEN_SLOTS)]);
        let ada = Key::new("user", "ada");
        let acquire = async || limiter.acquire(&ada).await.expect("the fallback decides, if the table does not");
        let mut held = Vec::new();
        for _ in 0..10 {
            let (decision, slot) = acquire().await;
            assert!(decision.is_allowed());
            held.push(slot);
        }
        let taken = rig.decide(&[check("ada", HUNDRED, 100)]).await.expect("a decision");
        assert!(taken.decision.is_allowed());
        rig.table.next(refusal);
        drop(held);
        drop(rig.store.settle(taken.receipt, &[Settlement::new(0, Change::Refund(100))]));
        sleep(OUTAGE).await;
        rig.table.next(Next::Works);
        let took = until_left(&rig, HUNDRED, 100).await;
        assert!(took < SOON, "{refusal:?}: the units after {took:?}");
        let start = Instant::now();
        let mut again = Vec::new();
        while again.len() < 10 {
            let (decision, slot) = acquire().await;
            if decision.is_allowed() && decision.source() == Source::Store {
                again.push(slot);
            } else {
                sleep(Duration::from_millis(5)).await;
            }
            assert!(start.elapsed() < SOON, "{refusal:?}: {} slots after {:?}", again.len(), start.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_settlement_whose_commit_may_have_been_made_is_not_made_again() {
    let rig = Rig::new(Duration::from_millis(1));
    let taken = rig.decide(&[check("ada", HUNDRED, 100)]).await.expect("a decision");
    rig.table.next(Next::LosesCommit);
    let settled = rig.store.settle(taken.receipt, &[Settlement::new(0, Change::Refund(40))]).wait().await;
    assert!(settled.expect_err("its reply is lost").is_connection());
    sleep(Duration::from_secs(20)).await;
    assert_eq!(rig.table.calls(), (2, 2), "one decision, one settlement");
    assert_eq!(until_left(&rig, HUNDRED, 40).await.as_secs(), 0, "it was made");
}

#[tokio::test(start_paused = true)]
async fn a_settlement_is_tried_again_for_ten_seconds_and_then_fails() {
    let rig = Rig::new(Duration::from_millis(1));
    let taken = rig.decide(&[check("ada", HUNDRED, 100)]).await.expect("a decision");
    rig.table.next(Next::RefusesLoads);
    let start = Instant::now();
    let settled = rig.store.settle(taken.receipt, &[Settlement::new(0, Change::Refund(100))]).wait().await;
    assert!(settled.expect_err("there is no database").is_connection());
    assert!((10_000..10_500).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    assert!(rig.table.calls().0 < 60, "{:?}", rig.table.calls());
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_not_tried_again_after_an_error() {
    let rig = Rig::new(Duration::from_millis(1));
    rig.table.next(Next::RefusesLoads);
    rig.decide(&[check("ada", HUNDRED, 1)]).await.expect_err("there is no database");
    rig.table.next(Next::RefusesCommits);
    rig.decide(&[check("ada", HUNDRED, 1)]).await.expect_err("it is read-only");
    assert_eq!(rig.table.calls(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_refund_that_finds_too_many_waiting_is_made_when_there_is_room() {
    let rig = Rig::new(Duration::from_millis(1));
    let taken = rig.decide(&[check("ada", HUNDRED, 100)]).await.expect("a decision");
    rig.table.next(Next::HangsToLoad);
    let begin = || rig.store.decide(&[check("bob", HUNDRED, 1)], Ask::default());
    let waiting: Vec<_> = (0..=16_384).map(|_| begin()).collect();
    let crowd = begin().wait().await.expect_err("there is no room");
    assert_eq!(crowd.to_string(), "16384 requests wait for the database");
    drop(rig.store.settle(taken.receipt, &[Settlement::new(0, Change::Refund(100))]));
    drop(waiting);
    sleep(OUTAGE).await;
    assert_eq!(until_left(&rig, HUNDRED, 100).await.as_secs(), 0, "it was made");
}

#[tokio::test(start_paused = true)]
async fn a_settlement_of_too_many_counters_is_an_error_and_holds_up_nobody() {
    let rig = Rig::new(Duration::from_millis(1));
    let id = rig.store.capabilities(&[]).expect("it supports nothing").id.expect("it has one");
    let items = (0..129).map(|key| ReceiptItem::new(counter(&key.to_string(), Quota::per_hour(10)), 1, 0));
    let changes: Vec<_> = (0..129).map(|place| Settlement::new(place, Change::Refund(1))).collect();
    let error = rig.store.settle(Receipt::new(id, items), &changes).wait().await.expect_err("they are too many");
    assert!(error.is_invalid() && error.to_string().contains("129 counters"), "{error}");
    assert!(rig.is_allowed(&check("1", Quota::per_hour(10), 1)).await);
}
