//! The keeper over a store that records what it is sent.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance, sleep, sleep_until};

use super::*;
use crate::core::{Decision, Error, Key, Quota, Source};
use crate::store::{Answer, Applied, Change, Counter, Decided, Receipt, StoreId, Taken};

const LIFE: Duration = Duration::from_secs(6);

/// What was sent, in order.
type Log = Arc<Mutex<Vec<Change>>>;

/// How the store replies.
#[derive(Clone, Copy)]
enum Replies {
    AtOnce,
    Later,
    Never,
}

fn keeper(replies: Replies) -> (Arc<SlotRenewer>, Log) {
    let log = Log::default();
    let sent = Arc::clone(&log);
    let keeper = SlotRenewer::new(move |receipt, changes| {
        let [settlement] = changes else { panic!("one change at a time") };
        sent.lock().expect("nothing panics").push(settlement.change);
        let applied = Ok(vec![Applied::new(receipt.taken()[0].units, receipt.taken()[0].stamp + 1)]);
        match replies {
            Replies::AtOnce => Answer::Ready(applied),
            Replies::Later => Answer::pending(async {
                sleep(Duration::from_millis(5)).await;
                applied
            }),
            Replies::Never => Answer::pending(pending()),
        }
    });
    (keeper, log)
}

fn receipt(units: u64) -> Receipt {
    let quota = Quota::concurrency(1_000).slot_life(LIFE).hold_at_most(Duration::from_secs(60));
    let counter = Counter::new("streams".try_into().expect("a valid name"), Key::new("user", "ada"), quota);
    Receipt::new(StoreId::new(), [Taken::new(counter, units, 1)])
}

fn sent(log: &Log) -> Vec<Change> {
    std::mem::take(&mut log.lock().expect("nothing panics"))
}

fn threads(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().expect("it starts")
}

#[test]
fn what_takes_no_slots_is_not_held() {
    let (keeper, log) = keeper(Replies::AtOnce);
    assert!(keeper.hold(&receipt(0)).is_none());
    let counter = Counter::new("all".try_into().expect("a valid name"), Key::new("user", "ada"), Quota::per_hour(5));
    assert!(keeper.hold(&Receipt::new(StoreId::new(), [Taken::new(counter, 1, 1)])).is_none());
    assert!(sent(&log).is_empty());
}

#[tokio::test(start_paused = true)]
async fn held_slots_are_renewed_in_thirds_and_the_timer_ends_with_the_last_of_them() {
    let (keeper, log) = keeper(Replies::Later);
    let weak = Arc::downgrade(&keeper);
    let held = keeper.hold(&receipt(3));
    drop(keeper);
    sleep(3 * LIFE + Duration::from_millis(500)).await;
    let renewed = sent(&log);
    assert!(
        (6..=9).contains(&renewed.len()) && renewed.iter().all(|change| *change == Change::Renew(3)),
        "{renewed:?}"
    );
    drop(held);
    assert_eq!(sent(&log), [Change::Refund(3)], "at once");
    sleep(3 * LIFE).await;
    assert!(sent(&log).is_empty());
    assert!(weak.upgrade().is_none(), "no timer keeps the keeper, nor its store");
}

#[tokio::test(start_paused = true)]
async fn slots_are_released_when_they_were_held_for_as_long_as_they_may() {
    let (keeper, log) = keeper(Replies::Later);
    let start = Instant::now();
    let held = keeper.hold(&receipt(3));
    sleep_until(start + Duration::from_millis(59_900)).await;
    assert!(!sent(&log).contains(&Change::Refund(3)));
    sleep_until(start + Duration::from_millis(61_100)).await;
    assert_eq!(sent(&log).last(), Some(&Change::Refund(3)));
    drop(held);
    sleep(LIFE).await;
    assert!(sent(&log).is_empty(), "released once");
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_renews_once() {
    let (keeper, log) = keeper(Replies::Later);
    let _held = keeper.hold(&receipt(1));
    sleep(Duration::from_millis(1)).await;
    advance(Duration::from_secs(50)).await;
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(sent(&log), [Change::Renew(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_nobody_receives_releases_its_slots() {
    let (keeper, log) = keeper(Replies::Later);
    let decided = || Decided::new(Decision::new([], Source::Store), receipt(2));
    drop(Unclaimed::new(Arc::clone(&keeper), Ok(decided())));
    assert_eq!(sent(&log), [Change::Refund(2)]);
    drop(Unclaimed::new(Arc::clone(&keeper), Err(Error::invalid("nothing was taken"))));
    let claimed = Unclaimed::new(Arc::clone(&keeper), Ok(decided())).claim().expect("it is a decision");
    assert!(sent(&log).is_empty());
    drop(keeper.hold(&claimed.receipt));
    assert_eq!(sent(&log), [Change::Refund(2)]);
}

#[test]
fn a_handler_that_blocks_its_thread_does_not_keep_slots_from_being_renewed() {
    let ((keeper, log), runtime) = (keeper(Replies::Later), threads(2));
    let blocking = runtime.spawn(async move {
        let held = keeper.hold(&receipt(1));
        thread::sleep(Duration::from_millis(3_600));
        held
    });
    let held = runtime.block_on(blocking).expect("it does not panic");
    assert_eq!(sent(&log), [Change::Renew(1)]);
    drop(held);
}

#[test]
fn a_runtime_that_ends_releases_what_its_tasks_hold() {
    for replies in [Replies::AtOnce, Replies::Later, Replies::Never] {
        let ((keeper, log), runtime) = (keeper(replies), threads(1));
        let holding = Arc::clone(&keeper);
        let held = runtime.spawn(async move {
            let _held: Vec<_> = (0..5_000).map(|_| holding.hold(&receipt(1))).collect();
            pending::<()>().await;
        });
        runtime.block_on(async { sleep(Duration::from_millis(50)).await });
        drop(runtime);
        drop(held);
        let released = sent(&log).into_iter().map(|change| if let Change::Refund(units) = change { units } else { 0 });
        assert_eq!(released.sum::<u64>(), 5_000);
        assert_eq!(Arc::strong_count(&keeper), 1, "its timer has ended");
    }
}

#[test]
fn slots_outlive_the_runtime_that_took_them_and_are_renewed_by_another() {
    let ((keeper, log), first) = (keeper(Replies::Later), threads(1));
    let held = first.block_on(async { keeper.hold(&receipt(1)) });
    drop(first);
    let second = Builder::new_current_thread().enable_all().start_paused(true).build().expect("it starts");
    second.block_on(async {
        let other = keeper.hold(&receipt(2));
        sleep(LIFE).await;
        let renewed = sent(&log);
        assert!(renewed.contains(&Change::Renew(1)) && renewed.contains(&Change::Renew(2)), "{renewed:?}");
        drop(other);
    });
    drop(second);
    sent(&log);
    drop(held);
    assert_eq!(sent(&log), [Change::Refund(1)]);
}

#[test]
fn without_a_runtime_slots_are_released_all_the_same() {
    for replies in [Replies::AtOnce, Replies::Never] {
        let (keeper, log) = keeper(replies);
        let held: Vec<_> = (0..5_000).map(|_| keeper.hold(&receipt(1))).collect();
        drop(held);
        assert_eq!(sent(&log).len(), 5_000);
        assert_eq!(Arc::strong_count(&keeper), 1);
    }
}

#[test]
fn a_runtime_that_nobody_drives_does_not_keep_slots_from_being_renewed_by_others() {
    let ((keeper, log), driven) = (keeper(Replies::Later), threads(1));
    let idle = Builder::new_current_thread().enable_all().build().expect("it starts");
    let held = idle.block_on(async { keeper.hold(&receipt(1)) });
    driven.block_on(async {
        let _other = keeper.hold(&receipt(2));
        sleep(LIFE / 3 + Duration::from_millis(1_100)).await;
    });
    let renewed = sent(&log);
    assert!(renewed.contains(&Change::Renew(1)), "{renewed:?}");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn renewals_and_releases_of_many_counters_need_no_deep_stack() {
    for replies in [Replies::AtOnce, Replies::Later] {
        let (keeper, log) = keeper(replies);
        let held: Vec<_> = (0..50_000).map(|_| keeper.hold(&receipt(1))).collect();
        sleep(LIFE / 2).await;
        assert_eq!(sent(&log).len(), 50_000);
        drop(held);
        sleep(LIFE / 2).await;
        assert_eq!(sent(&log).len(), 50_000);
    }
}

/// A runtime that nobody drives any more, and what it holds when a renewal of that has just been sent.
fn stopped_in_a_renewal(keeper: &Arc<SlotRenewer>, log: &Log, units: u64) -> (Runtime, Option<SlotHold>) {
    let still = Builder::new_current_thread().enable_all().build().expect("it starts");
    let held = still.block_on(async {
        let held = keeper.hold(&receipt(units));
        while log.lock().expect("nothing panics").is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        held
    });
    (still, held)
}

#[test]
fn a_renewal_whose_runtime_stands_still_is_sent_by_another() {
    let (keeper, log) = keeper(Replies::Later);
    let (still, held) = stopped_in_a_renewal(&keeper, &log, 1);
    assert_eq!(sent(&log), [Change::Renew(1)]);
    let other = threads(1);
    let others = other.block_on(async { keeper.hold(&receipt(2)) });
    thread::sleep(Duration::from_millis(4_500));
    let renewed = sent(&log);
    assert!(renewed.contains(&Change::Renew(1)) && renewed.contains(&Change::Renew(2)), "{renewed:?}");
    // Results that come late change nothing.
    still.block_on(async { sleep(Duration::from_millis(50)).await });
    sent(&log);
    drop((held, others));
    let released = sent(&log);
    assert!(released.contains(&Change::Refund(1)) && released.contains(&Change::Refund(2)), "{released:?}");
    assert_eq!(released.len(), 2);
}

#[test]
fn results_that_a_runtime_leaves_unread_do_not_slow_down_releases_of_others() {
    let (keeper, log) = keeper(Replies::Later);
    let still = Builder::new_current_thread().enable_all().build().expect("it starts");
    let unread: Vec<_> = still.block_on(async { (0..1_023).map(|_| keeper.hold(&receipt(1))).collect() });
    let entered = still.enter();
    drop((unread, entered));
    assert_eq!(sent(&log).len(), 1_023);
    let other = threads(1);
    other.block_on(async {
        let others: Vec<_> = (0..3_000).map(|_| keeper.hold(&receipt(2))).collect();
        drop(others);
        sleep(Duration::from_millis(4_500)).await;
    });
    let released = sent(&log).into_iter().filter(|change| *change == Change::Refund(2)).count();
    assert_eq!(released, 3_000);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_does_not_end_the_timer_of_others() {
    let panicking = SlotRenewer::new(|_, _| panic!("as the test wants"));
    let (keeper, log) = keeper(Replies::Later);
    let (broken, _held) = (panicking.hold(&receipt(1)), keeper.hold(&receipt(2)));
    sleep(2 * LIFE).await;
    assert!(sent(&log).len() >= 3);
    drop(broken);
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_is_received_when_its_slots_may_have_expired_is_a_timeout() {
    let (keeper, log) = keeper(Replies::Later);
    let decided = || Ok(Decided::new(Decision::new([], Source::Store), receipt(2)));
    let (soon, late) = (Unclaimed::new(Arc::clone(&keeper), decided()), Unclaimed::new(Arc::clone(&keeper), decided()));
    sleep(LIFE / 3).await;
    let _decided = soon.claim().expect("its slots are there");
    sleep(Duration::from_millis(2)).await;
    assert!(late.claim().expect_err("it is too late").is_timeout());
    assert_eq!(sent(&log), [Change::Refund(2)]);
}
