//! Slots over a store that records what it is sent.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use super::*;
use crate::core::{Decision, Error, Key, Quota, Source};
use crate::store::{Change, ChangeResult, Counter, MaybeFuture, Receipt, ReceiptItem, StoreDecision, StoreId};

const LIFE: Duration = Duration::from_secs(6);

/// What was sent, in order.
type Log = Arc<Mutex<Vec<Change>>>;

/// How the store replies.
#[derive(Clone, Copy, Debug)]
enum Replies {
    AtOnce,
    Later,
    /// Later too, that it sends nothing.
    Refuses,
    Never,
    Panics,
}

/// A renewer whose store replies to the first settlement, and to all others.
fn renewer(first: Replies, others: Replies) -> (Arc<SlotRenewer>, Log) {
    let (log, is_first) = (Log::default(), Mutex::new(true));
    let sent = Arc::clone(&log);
    let renewer = SlotRenewer::new(move |receipt, changes| {
        let replies = if std::mem::take(&mut *is_first.lock().expect("nothing panics")) { first } else { others };
        assert!(!matches!(replies, Replies::Panics), "as the test wants");
        sent.lock().expect("nothing panics").extend(changes.iter().map(|settlement| settlement.change));
        let applied = Ok(vec![ChangeResult::new(receipt.items()[0].units, receipt.items()[0].stamp + 1)]);
        match replies {
            Replies::AtOnce | Replies::Panics => MaybeFuture::Ready(applied),
            Replies::Never => MaybeFuture::pending(pending()),
            Replies::Later | Replies::Refuses => MaybeFuture::pending(async move {
                sleep(Duration::from_millis(5)).await;
                if matches!(replies, Replies::Refuses) { Err(Error::invalid("not now").unsent()) } else { applied }
            }),
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

fn released(log: &Log) -> u64 {
    sent(log).into_iter().map(|change| if let Change::Refund(units) = change { units } else { 0 }).sum()
}

fn threads(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().expect("it starts")
}

#[tokio::test(start_paused = true)]
async fn held_slots_are_renewed_in_thirds_and_the_task_ends_with_the_last_of_them() {
    let (renewer, log) = renewer(Replies::Later, Replies::Later);
    let weak = Arc::downgrade(&renewer);
    let held = renewer.hold(&receipt(3));
    drop(renewer);
    sleep(3 * LIFE + Duration::from_millis(500)).await;
    let changes = sent(&log);
    let are_renewals = changes.iter().all(|change| *change == Change::Renew(3));
    assert!((6..=9).contains(&changes.len()) && are_renewals, "{changes:?}");
    drop(held);
    assert_eq!(sent(&log), [Change::Refund(3)], "at once");
    sleep(3 * LIFE).await;
    assert!(sent(&log).is_empty());
    assert!(weak.upgrade().is_none(), "no task keeps the renewer, nor its store");
}

#[tokio::test(start_paused = true)]
async fn a_decision_releases_its_slots_if_nobody_receives_it_before_they_may_have_expired() {
    let (renewer, log) = renewer(Replies::Later, Replies::Later);
    let unclaimed =
        || Unclaimed::new(Arc::clone(&renewer), Ok(StoreDecision::new(Decision::new([], Source::Store), receipt(2))));
    let [dropped, soon, late] = [(); 3].map(|()| unclaimed());
    drop(dropped);
    assert_eq!(sent(&log), [Change::Refund(2)]);
    sleep(LIFE / 3).await;
    let _ = soon.claim().expect("its slots are there");
    assert!(sent(&log).is_empty());
    sleep(Duration::from_millis(2)).await;
    assert!(late.claim().expect_err("it is too late").is_timeout());
    assert_eq!(sent(&log), [Change::Refund(2)]);
}

#[test]
fn slots_are_released_when_their_runtime_ends_and_where_there_is_none() {
    for replies in [Replies::AtOnce, Replies::Later, Replies::Never] {
        let ((renewer, log), runtime) = (renewer(replies, replies), threads(1));
        let holding = Arc::clone(&renewer);
        runtime.spawn(async move {
            let _held: Vec<_> = (0..5_000).map(|_| holding.hold(&receipt(1))).collect();
            pending::<()>().await;
        });
        runtime.block_on(async { sleep(Duration::from_millis(50)).await });
        drop(runtime);
        assert_eq!((released(&log), Arc::strong_count(&renewer)), (5_000, 1), "{replies:?}: its task has ended");
        drop((0..5_000).map(|_| renewer.hold(&receipt(1))).collect::<Vec<_>>());
        assert_eq!((released(&log), Arc::strong_count(&renewer)), (5_000, 1), "{replies:?}: without a runtime");
    }
}

#[test]
fn what_waits_when_a_runtime_ends_is_sent_with_the_next_release() {
    let ((renewer, log), first) = (renewer(Replies::Never, Replies::Never), threads(1));
    first.block_on(async { drop((0..3_000).map(|_| renewer.hold(&receipt(1))).collect::<Vec<_>>()) });
    let before = released(&log);
    assert!(before < 3_000, "the rest waits");
    drop(first);
    drop(renewer.hold(&receipt(7)));
    assert_eq!(before + released(&log), 3_007);
}

#[test]
fn slots_of_a_runtime_that_ends_or_stands_still_are_renewed_by_one_that_takes_or_releases_some() {
    for (ends, takes) in [(true, true), (true, false), (false, true)] {
        let (renewer, log) = renewer(Replies::Later, Replies::Later);
        let first = Builder::new_current_thread().enable_all().build().expect("it starts");
        let [released, _held] = first.block_on(async { [1, 2].map(|units| renewer.hold(&receipt(units))) });
        let _still = (!ends).then_some(first);
        let second = Builder::new_current_thread().enable_all().start_paused(true).build().expect("it starts");
        second.block_on(async {
            let _taken = if takes { renewer.hold(&receipt(4)) } else { None };
            drop(released);
            sleep(LIFE).await;
            let sent = sent(&log);
            assert!(sent.contains(&Change::Refund(1)) && sent.contains(&Change::Renew(2)), "{ends} {takes}: {sent:?}");
            assert_eq!(sent.contains(&Change::Renew(4)), takes, "{sent:?}");
        });
    }
}

#[test]
fn a_release_that_is_refused_is_sent_again_though_its_thread_has_no_runtime() {
    let ((renewer, log), runtime) = (renewer(Replies::Refuses, Replies::Later), threads(1));
    drop(runtime.block_on(async { renewer.hold(&receipt(1)) }));
    thread::sleep(Duration::from_millis(2_500));
    assert_eq!(sent(&log), [Change::Refund(1); 2]);
}

#[tokio::test(start_paused = true)]
async fn renewals_and_releases_of_many_counters_need_no_deep_stack() {
    for replies in [Replies::AtOnce, Replies::Later] {
        let (renewer, log) = renewer(replies, replies);
        let held: Vec<_> = (0..50_000).map(|_| renewer.hold(&receipt(1))).collect();
        sleep(LIFE / 2).await;
        assert_eq!(sent(&log).len(), 50_000);
        drop(held);
        sleep(LIFE / 2).await;
        assert_eq!(sent(&log).len(), 50_000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_loses_a_release_and_repeats_a_renewal_with_the_next_request() {
    let (released, log) = renewer(Replies::Panics, Replies::AtOnce);
    let [lost, held] = [1, 2].map(|units| released.hold(&receipt(units)));
    catch_unwind(AssertUnwindSafe(|| drop(lost))).expect_err("it panics");
    sleep(LIFE / 2).await;
    assert_eq!(sent(&log), [Change::Renew(2)]);
    drop(held);
    assert_eq!(sent(&log), [Change::Refund(2)]);

    let (renewed, log) = renewer(Replies::Panics, Replies::AtOnce);
    let _held = renewed.hold(&receipt(1));
    sleep(LIFE / 2).await;
    assert!(sent(&log).is_empty(), "it panicked");
    let _other = renewed.hold(&receipt(2));
    sleep(LIFE / 2).await;
    let changes = sent(&log);
    assert!(changes.contains(&Change::Renew(1)) && changes.contains(&Change::Renew(2)), "{changes:?}");
}

#[test]
fn a_store_that_panics_as_a_panicking_handler_releases_does_not_end_the_process() {
    let (renewer, _log) = renewer(Replies::Panics, Replies::AtOnce);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _held = renewer.hold(&receipt(1));
        panic!("the handler");
    }));
    assert!(unwound.is_err());
}
