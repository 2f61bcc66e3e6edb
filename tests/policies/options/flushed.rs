//! When it is settled what a handler charges and refunds: with the response, at a flush, and with the last handle.

use std::thread;

use futures::FutureExt;
use futures::future::join_all;
use http::{Request, Response};
use tollgate::response::ActualCost;
use tollgate::store::Change::{Charge, Refund};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer};
use tollgate_test::RecordingStore;
use tower::ServiceExt;

use crate::rig::{HOUR, Text, get, handle, line, over, send, settled};
use crate::support::time::memory;

type Watched = RecordingStore<FailingStore<MemoryStore>>;

/// A layer on a store that records what is settled, and fails where a test says so.
fn watched() -> (Watched, FailingStore<MemoryStore>, RateLimitLayer) {
    let failing = FailingStore::new(memory(&ManualClock::new()));
    let store = RecordingStore::new(failing.clone());
    let policy = Policy::new("metered", Quota::fixed_window(10, HOUR)).metered().refund_dropped();
    (store.clone(), failing, RateLimitLayer::new(store, policy))
}

/// The only handle of a request that was served.
fn handle_of(layer: &RateLimitLayer) -> RateLimitHandle {
    let service = over(layer, async |request: Request<Text>| {
        let mut response = Response::new(Text::default());
        response.extensions_mut().insert(handle(&request));
        response
    });
    send(&service, get()).extensions_mut().remove().expect("it was kept")
}

fn really(units: u64) -> Response<Text> {
    let mut response = Response::new(Text::default());
    response.extensions_mut().insert(ActualCost(units));
    response
}

/// Lets what happens in the background be done.
async fn background() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn what_a_handler_changes_is_settled_once_with_the_response() {
    let (store, _, layer) = watched();
    for (charges, refund, left, all) in [([3, 2], 1, "5", &[Charge(4)][..]), ([3, 0], 3, "4", &[Charge(4)])] {
        let seen = store.clone();
        let service = over(&layer, move |request| {
            let before = settled(&seen);
            for units in charges {
                handle(&request).charge(units);
            }
            handle(&request).refund(refund);
            assert_eq!(settled(&seen), before, "not yet");
            async { Response::new(Text::default()) }
        });
        assert_eq!(line(&send(&service, get()), "x-ratelimit-remaining"), left);
        assert_eq!(settled(&store), all, "what has not changed is not settled");
    }
}

#[tokio::test]
async fn what_changes_after_the_response_waits_for_a_flush_or_the_end_of_the_last_handle() {
    let (store, _, layer) = watched();
    let handle = handle_of(&layer);
    handle.charge(2);
    handle.charge(3);
    background().await;
    assert_eq!(settled(&store), []);
    handle.flush().await.expect("the store works");
    handle.flush().await.expect("nothing has changed");
    assert_eq!(settled(&store), [Charge(5)]);
    let last = handle.clone();
    last.refund(2);
    drop(handle);
    background().await;
    assert_eq!(settled(&store), [Charge(5)]);
    drop(last);
    assert_eq!(settled(&store), [Charge(5), Refund(2)]);
}

#[tokio::test]
async fn of_units_that_were_charged_at_different_times_the_latest_are_refunded() {
    let clock = ManualClock::new();
    let policy = Policy::new("metered", Quota::sliding_log(10, HOUR)).metered();
    let layer = RateLimitLayer::new(memory(&clock), policy);
    let handle = handle_of(&layer);
    for _ in 0..2 {
        clock.advance(HOUR / 3);
        handle.charge(1);
        handle.flush().await.expect("the store works");
    }
    handle.refund(2);
    handle.flush().await.expect("the store works");
    clock.advance(HOUR / 3);
    let service = over(&layer, async |_| Response::new(Text::default()));
    assert_eq!(line(&send(&service, get()), "x-ratelimit-remaining"), "9", "the first unit counts no more");
}

#[test]
fn a_handle_that_is_dropped_outside_of_a_runtime_or_by_a_panic_settles_all_the_same() {
    for panics in [false, true] {
        let (store, _, layer) = watched();
        let handle = handle_of(&layer);
        let dropped = thread::spawn(move || {
            handle.charge(2);
            assert!(!panics, "as the test wants");
        });
        assert_eq!(dropped.join().is_err(), panics);
        assert_eq!(settled(&store), [Charge(2)], "by a panic: {panics}");
    }
}

#[tokio::test]
async fn while_a_settlement_is_in_flight_changes_accumulate_and_each_flush_has_the_result_of_its_own() {
    for fails in [false, true] {
        let (store, failing, layer) = watched();
        let handle = handle_of(&layer);
        let held = failing.hold();
        let mut flushes = Vec::new();
        for units in [1, 2, 4] {
            handle.charge(units);
            let mut flush = Box::pin(handle.flush());
            assert!((&mut flush).now_or_never().is_none());
            flushes.push(flush);
        }
        assert_eq!(settled(&store), [Charge(1)]);
        if fails {
            failing.fail();
        }
        held.release();
        let results = join_all(flushes).await.into_iter().map(|flushed| flushed.is_ok());
        assert_eq!(results.collect::<Vec<_>>(), [true, !fails, !fails], "which were told that all is settled");
        assert_eq!(settled(&store), [Charge(1), Charge(6)]);
    }
}

#[tokio::test]
async fn the_result_of_a_flush_that_nobody_waits_for_is_applied() {
    for (charged, real, left, is_late) in
        [(4, 0, "10", false), (9, 0, "10", true), (9, 3, "7", true), (100, 5, "5", true)]
    {
        let (_, failing, layer) = watched();
        let service = over(&layer, move |request| {
            let held = failing.hold();
            handle(&request).charge(charged);
            assert!(handle(&request).flush().now_or_never().is_none());
            async move {
                let ends = tokio::spawn(async {
                    background().await;
                    held.release();
                });
                if !is_late {
                    ends.await.expect("it does not panic");
                    background().await;
                }
                really(real)
            }
        });
        let response = service.oneshot(get()).await.expect("the service does not fail");
        assert_eq!(line(&response, "x-ratelimit-remaining"), left, "{charged}, really {real}, after it: {is_late}");
    }
}

#[tokio::test]
async fn a_store_that_panics_as_a_panicking_handler_is_settled_does_not_end_the_process() {
    let (_, failing, layer) = watched();
    let service = over(&layer, move |_| {
        failing.fail_with(|| panic!("the store panics"));
        async { panic!("the handler panics") }
    });
    assert!(tokio::spawn(async move { service.oneshot(get()).await.is_ok() }).await.is_err());
}
