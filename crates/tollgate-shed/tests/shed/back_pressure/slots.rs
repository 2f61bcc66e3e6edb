//! Slots: held while a call is in progress, and whoever waits for one wakes when it is free.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::time::{Instant, sleep};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Limiter, Quota, Rule};
use tollgate_shed::BackPressureLayer;
use tollgate_test::{Recorded, RecordingStore};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{SECOND, key, left, limiter, memory};

/// Has five calls of a second in turn over one slot, of a store that takes so long; returns what it was called for.
async fn in_turn(delay: Duration) -> Vec<Recorded> {
    let slow = FailingStore::new(memory(&ManualClock::paused()));
    slow.delay(delay);
    let store = RecordingStore::new(slow);
    let layer = BackPressureLayer::new(Limiter::new(store.clone(), [Rule::new("mail", Quota::concurrency(1))]), key());
    let work = service_fn(async |time| {
        sleep(time).await;
        Ok::<_, Infallible>(())
    });
    let start = Instant::now();
    let workers = (1..=5).map(|number| {
        let mut service = layer.layer(work);
        async move {
            service.ready().await.unwrap().call(SECOND).await.unwrap();
            let late = start.elapsed().checked_sub(number * SECOND).expect("no call begins before another has ended");
            // The timer's grain is a millisecond.
            assert!(late <= number * (4 * delay + SECOND / 500), "{number}: {late:?} late");
        }
    });
    join_all(workers).await;
    store.take()
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_slot_wakes_when_a_call_ends_also_where_the_store_takes_a_while() {
    for delay in [Duration::ZERO, SECOND / 100] {
        let calls = in_turn(delay).await;
        let decides = calls.iter().filter(|call| matches!(call, Recorded::Decide(_))).count();
        let is_empty = |call: &Recorded| matches!(call, Recorded::Settle(_, changes) if changes.is_empty());
        assert!(!calls.iter().any(is_empty), "what stays taken is not settled");
        assert!(decides <= 10, "each is refused once at most: {decides}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_when_a_call_has_resolved_failed_or_was_dropped() {
    let (limiter, _) = limiter(Quota::concurrency(1));
    let layer = BackPressureLayer::new(limiter.clone(), key());
    let mut service = layer.layer(service_fn(async |fails: bool| if fails { Err("broken") } else { Ok(()) }));
    for fails in [false, true] {
        let mut call = Box::pin(service.ready().await.unwrap().call(fails));
        assert_eq!(left(&limiter).await, 0, "it has begun");
        assert_eq!(call.as_mut().await.is_err(), fails);
        assert_eq!(left(&limiter).await, 1, "it has ended, and its future is still there");
    }
    let mut service = layer.layer(service_fn(async |()| pending::<Result<(), Infallible>>().await));
    let mut call = Box::pin(service.ready().await.unwrap().call(()));
    assert!(call.as_mut().now_or_never().is_none());
    assert_eq!(left(&limiter).await, 0);
    drop(call);
    assert_eq!(left(&limiter).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_panics_frees_its_slot() {
    let (limiter, _) = limiter(Quota::concurrency(1));
    let layer = BackPressureLayer::new(limiter.clone(), key());
    let in_call = layer.layer(service_fn(|()| -> std::future::Ready<Result<(), Infallible>> { panic!("in call") }));
    let in_future = layer.layer(service_fn(async |()| -> Result<(), Infallible> { panic!("in the future") }));
    let both = [tokio::spawn(in_call.oneshot(())), tokio::spawn(in_future.oneshot(()))];
    for one in both {
        assert!(one.await.expect_err("it panics").is_panic());
    }
    assert_eq!(left(&limiter).await, 1);
}
