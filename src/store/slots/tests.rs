//! Slots over a store that records what it is sent.

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance, sleep, sleep_until};

use super::*;
use crate::core::{Decision, Error, Key, Quota, Source};
use crate::store::{Change, ChangeResult, Counter, MaybeFuture, Receipt, ReceiptItem, StoreDecision, StoreId};

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

fn renewer(replies: Replies) -> (Arc<SlotRenewer>, Log) {
    let log = Log::default();
    let sent = Arc::clone(&log);
    let renewer = SlotRenewer::new(move |receipt, changes| {
        let [settlement] = changes else { panic!("one change at a time") };
        sent.lock().expect("nothing panics").push(settlement.change);
        let applied = Ok(vec![ChangeResult::new(receipt.items()[0].units, receipt.items()[0].stamp + 1)]);
        match replies {
            Replies::AtOnce => MaybeFuture::Ready(applied),
            Replies::Later => MaybeFuture::pending(async {
                sleep(Duration::from_millis(5)).await;
                applied
            }),
            Replies::Never => MaybeFuture::pending(pending()),
        }
    });
    (renewer, log)
}

fn receipt(units: u64) -> Receipt {
    let quota = Quota::concurrency(1_000).slot_ttl(LIFE).max_hold(Duration::from_secs(60));
    let counter = Counter::new("streams".try_into().expect("a valid name"), Key::new("user", "ada"), quota);
    Receipt::new(StoreId::new(), [ReceiptItem::new(counter, units, 1)])
}

fn sent(log: &Log) -> Vec<Change> {
    std::mem::take(&mut log.lock().expect("nothing panics"))
}

fn threads(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().expect("it starts")
}

#[test]
fn what_takes_no_slots_is_not_held() {
    let (renewer, log) = renewer(Replies::AtOnce);
    assert!(renewer.hold(&receipt(0)).is_none());
    let counter = Counter::new("all".try_into().expect("a valid name"), Key::new("user", "ada"), Quota::per_hour(5));
    assert!(renewer.hold(&Receipt::new(StoreId::new(), [ReceiptItem::new(counter, 1, 1)])).is_none());
    assert!(sent(&log).is_empty());
}

#[tokio::test(start_paused = true)]
async fn held_slots_are_renewed_in_thirds_and_the_task_ends_with_the_last_of_them() {
    let (renewer, log) = renewer(Replies::Later);
    let weak = Arc::downgrade(&renewer);
    let held = renewer.hold(&receipt(3));
    drop(renewer);
    sleep(3 * LIFE + Duration::from_millis(500)).await;
    let changes = sent(&log);
    assert!(
        (6..=9).contains(&changes.len()) && changes.iter().all(|change| *change == Change::Renew(3)),
        "{changes:?}"
    );
    drop(held);
    assert_eq!(sent(&log), [Change::Refund(3)], "at once");
    sleep(3 * LIFE).await;
    assert!(sent(&log).is_empty());
    assert!(weak.upgrade().is_none(), "no task keeps the renewer, nor its store");
}

#[tokio::test(start_paused = true)]
async fn slots_are_released_when_they_were_held_for_as_long_as_they_may() {
    let (renewer, log) = renewer(Replies::Later);
    let start = Instant::now();
    let held = renewer.hold(&receipt(3));
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
    let (renewer, log) = renewer(Replies::Later);
    let _held = renewer.hold(&receipt(1));
    sleep(Duration::from_millis(1)).await;
    advance(Duration::from_secs(50)).await;
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(sent(&log), [Change::Renew(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_nobody_receives_releases_its_slots() {
    let (renewer, log) = renewer(Replies::Later);
    let decided = || StoreDecision::new(Decision::new([], Source::Store), receipt(2));
    drop(Unclaimed::new(Arc::clone(&renewer), Ok(decided())));
    assert_eq!(sent(&log), [Change::Refund(2)]);
    drop(Unclaimed::new(Arc::clone(&renewer), Err(Error::invalid("nothing was taken"))));
    let claimed = Unclaimed::new(Arc::clone(&renewer), Ok(decided())).claim().expect("it is a decision");
    assert!(sent(&log).is_empty());
    drop(renewer.hold(&claimed.receipt));
    assert_eq!(sent(&log), [Change::Refund(2)]);
}

#[test]
fn a_runtime_that_ends_releases_what_its_tasks_hold() {
    for replies in [Replies::AtOnce, Replies::Later, Replies::Never] {
        let ((renewer, log), runtime) = (renewer(replies), threads(1));
        let holding = Arc::clone(&renewer);
        let held = runtime.spawn(async move {
            let _held: Vec<_> = (0..5_000).map(|_| holding.hold(&receipt(1))).collect();
            pending::<()>().await;
        });
        runtime.block_on(async { sleep(Duration::from_millis(50)).await });
        drop(runtime);
        drop(held);
        let released = sent(&log).into_iter().map(|change| if let Change::Refund(units) = change { units } else { 0 });
        assert_eq!(released.sum::<u64>(), 5_000);
        assert_eq!(Arc::strong_count(&renewer), 1, "its task has ended");
    }
}

#[test]
fn slots_outlive_the_runtime_that_took_them_and_are_renewed_by_another() {
    let ((renewer, log), first) = (renewer(Replies::Later), threads(1));
    let held = first.block_on(async { renewer.hold(&receipt(1)) });
    drop(first);
    let second = Builder::new_current_thread().enable_all().start_paused(true).build().expect("it starts");
    second.block_on(async {
        let other = renewer.hold(&receipt(2));
        sleep(LIFE).await;
        let changes = sent(&log);
        assert!(changes.contains(&Change::Renew(1)) && changes.contains(&Change::Renew(2)), "{changes:?}");
        drop(other);
    });
    drop(second);
    sent(&log);
    drop(held);
    assert_eq!(sent(&log), [Change::Refund(1)]);
}

#[test]
fn a_release_in_another_runtime_has_the_rest_renewed_there() {
    let ((renewer, log), first) = (renewer(Replies::Later), threads(1));
    let [one, _other] = first.block_on(async { [1, 2].map(|units| renewer.hold(&receipt(units))) });
    drop(first);
    let second = Builder::new_current_thread().enable_all().start_paused(true).build().expect("it starts");
    second.block_on(async {
        drop(one);
        sleep(LIFE).await;
    });
    let sent = sent(&log);
    assert!(sent.len() > 1 && sent[0] == Change::Refund(1) && sent[1..].iter().all(|sent| *sent == Change::Renew(2)));
}

#[test]
fn what_waits_when_a_runtime_ends_is_sent_with_the_next_release() {
    let ((renewer, log), first) = (renewer(Replies::Never), threads(1));
    first.block_on(async { drop((0..3_000).map(|_| renewer.hold(&receipt(1))).collect::<Vec<_>>()) });
    assert!(sent(&log).len() < 3_000, "the rest waits");
    drop(first);
    drop(renewer.hold(&receipt(7)));
    let released = sent(&log).into_iter().map(|change| if let Change::Refund(units) = change { units } else { 0 });
    assert_eq!(released.sum::<u64>(), 3_000 - 1_024 + 7);
}

#[test]
fn without_a_runtime_slots_are_released_all_the_same() {
    for replies in [Replies::AtOnce, Replies::Never] {
        let (renewer, log) = renewer(replies);
        let held: Vec<_> = (0..5_000).map(|_| renewer.hold(&receipt(1))).collect();
        drop(held);
        assert_eq!(sent(&log).len(), 5_000);
        assert_eq!(Arc::strong_count(&renewer), 1);
    }
}

#[test]
fn a_release_that_is_refused_is_sent_again_though_its_thread_has_no_runtime() {
    let (log, runtime) = (Log::default(), threads(1));
    let sends = Arc::clone(&log);
    let renewer = SlotRenewer::new(move |_, changes| {
        let mut log = sends.lock().expect("nothing panics");
        log.push(changes[0].change);
        let is_refused = log.len() == 1;
        MaybeFuture::pending(async move {
            sleep(Duration::from_millis(5)).await;
            if is_refused { Err(Error::invalid("not now").unsent()) } else { Ok(vec![ChangeResult::new(1, 1)]) }
        })
    });
    drop(runtime.block_on(async { renewer.hold(&receipt(1)) }));
    thread::sleep(Duration::from_millis(2_500));
    assert_eq!(sent(&log), [Change::Refund(1); 2]);
}

#[tokio::test(start_paused = true)]
async fn renewals_and_releases_of_many_counters_need_no_deep_stack() {
    for replies in [Replies::AtOnce, Replies::Later] {
        let (renewer, log) = renewer(replies);
        let held: Vec<_> = (0..50_000).map(|_| renewer.hold(&receipt(1))).collect();
        sleep(LIFE / 2).await;
        assert_eq!(sent(&log).len(), 50_000);
        drop(held);
        sleep(LIFE / 2).await;
        assert_eq!(sent(&log).len(), 50_000);
    }
}

/// A renewer whose store panics when it is first called.
fn panicking() -> (Arc<SlotRenewer>, Log) {
    let log = Log::default();
    let (sends, panics) = (Arc::clone(&log), AtomicBool::new(true));
    let renewer = SlotRenewer::new(move |_, changes| {
        assert!(!panics.swap(false, Ordering::Relaxed), "as the test wants");
        sends.lock().expect("nothing panics").push(changes[0].change);
        MaybeFuture::Ready(Ok(vec![ChangeResult::new(1, 2)]))
    });
    (renewer, log)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_in_a_release_loses_it_and_nothing_else() {
    let (renewer, log) = panicking();
    let [lost, held] = [1, 2].map(|units| renewer.hold(&receipt(units)));
    assert!(std::panic::catch_unwind(AssertUnwindSafe(|| drop(lost))).is_err());
    sleep(LIFE / 2).await;
    assert_eq!(sent(&log), [Change::Renew(2)]);
    drop(held);
    assert_eq!(sent(&log), [Change::Refund(2)]);
}

#[tokio::test(start_paused = true)]
async fn after_a_store_that_panics_in_a_renewal_the_next_request_has_it_sent_again() {
    let (renewer, log) = panicking();
    let _held = renewer.hold(&receipt(1));
    sleep(LIFE / 2).await;
    assert!(sent(&log).is_empty(), "it panicked");
    let _other = renewer.hold(&receipt(2));
    sleep(LIFE / 2).await;
    let changes = sent(&log);
    assert!(changes.contains(&Change::Renew(1)) && changes.contains(&Change::Renew(2)), "{changes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_is_received_when_its_slots_may_have_expired_is_a_timeout() {
    let (renewer, log) = renewer(Replies::Later);
    let decided = || Ok(StoreDecision::new(Decision::new([], Source::Store), receipt(2)));
    let (soon, late) =
        (Unclaimed::new(Arc::clone(&renewer), decided()), Unclaimed::new(Arc::clone(&renewer), decided()));
    sleep(LIFE / 3).await;
    let _decided = soon.claim().expect("its slots are there");
    sleep(Duration::from_millis(2)).await;
    assert!(late.claim().expect_err("it is too late").is_timeout());
    assert_eq!(sent(&log), [Change::Refund(2)]);
}

#[test]
fn a_runtime_that_stands_still_does_not_keep_slots_of_others_from_being_renewed() {
    let (renewer, log) = renewer(Replies::Later);
    let still = Builder::new_current_thread().enable_all().build().expect("it starts");
    let _first = still.block_on(async { renewer.hold(&receipt(1)) });
    let other = Builder::new_current_thread().enable_all().start_paused(true).build().expect("it starts");
    other.block_on(async {
        let _held = renewer.hold(&receipt(2));
        sleep(LIFE).await;
        let changes = sent(&log);
        assert!(changes.contains(&Change::Renew(2)), "{changes:?}");
    });
}

#[test]
fn a_store_that_panics_as_a_panicking_handler_releases_does_not_end_the_process() {
    let (renewer, _log) = panicking();
    let unwound = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let _held = renewer.hold(&receipt(1));
        panic!("the handler");
    }));
    assert!(unwound.is_err());
}
