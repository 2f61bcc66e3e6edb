//! Slots: held while a call is in progress, and whoever waits for one wakes when it is free.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::FutureExt;
use futures::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tollgate::{Limiter, Quota, RedisStore, Rule};
use tollgate_shed::BackPressureLayer;
use tollgate_test::Recorded;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{SECOND, key, left, limiter};
use crate::server::RedisServer;

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_slot_wakes_when_a_call_ends() {
    let (limiter, store) = limiter(Quota::concurrency(1));
    let layer = BackPressureLayer::new(limiter, key());
    let work = service_fn(async |time| {
        sleep(time).await;
        Ok::<_, Infallible>(())
    });
    let start = Instant::now();
    let workers: Vec<_> = (1..=5)
        .map(|number| {
            let mut service = layer.layer(work);
            tokio::spawn(async move {
                service.ready().await.unwrap().call(SECOND / 4).await.unwrap();
                (number, start.elapsed())
            })
        })
        .collect();
    for worker in workers {
        let (number, time) = worker.await.unwrap();
        // The timer's grain is a millisecond.
        let late = time.checked_sub(number * SECOND / 4).expect("no call begins before another has ended");
        assert!(late <= SECOND / 100, "{number}: {time:?}");
    }
    let calls = store.take();
    let decides = calls.iter().filter(|call| matches!(call, Recorded::Decide(_))).count();
    let is_empty = |call: &Recorded| matches!(call, Recorded::Settle(_, changes) if changes.is_empty());
    assert!(!calls.iter().any(is_empty), "what stays taken is not settled");
    assert!(decides <= 10, "each is refused once at most: {decides}");
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

#[tokio::test]
async fn on_redis_no_more_calls_are_in_progress_than_there_are_slots_and_all_are_made() {
    let server = RedisServer::start();
    let store =
        RedisStore::builder().timeout(10 * SECOND).connect(&server.url()).await.expect("the server was started");
    let limiter = Limiter::new(store, [Rule::new("slots", Quota::concurrency(3))]);
    let layer = BackPressureLayer::new(limiter.clone(), key());
    let (running, most) = (&AtomicU32::new(0), &AtomicU32::new(0));
    let workers = (0..10).map(|_| {
        let work = service_fn(move |(): ()| async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // The first ones go on once all slots are taken, however slow the store is.
            while most.load(Ordering::SeqCst) < 3 {
                sleep(SECOND / 1_000).await;
            }
            sleep(SECOND / 200).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Infallible>(())
        });
        let mut service = layer.layer(work);
        async move {
            for _ in 0..5 {
                service.ready().await.unwrap().call(()).await.unwrap();
            }
        }
    });
    // The slots of 50 calls in turn are free at once: without that each is a pause of a second.
    timeout(10 * SECOND, join_all(workers)).await.expect("none waits for ever");
    assert_eq!(most.load(Ordering::SeqCst), 3);
    let free = async {
        while left(&limiter).await != 3 {
            sleep(SECOND / 1_000).await;
        }
    };
    timeout(10 * SECOND, free).await.expect("all slots are free again");
}
