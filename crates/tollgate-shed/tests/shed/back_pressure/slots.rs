//! Slots: held while a call is in progress, and whoever waits for one wakes when it is free.

use std::convert::Infallible;
use std::future::pending;

use futures::FutureExt;
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep};
use tollgate::Quota;
use tollgate_shed::BackPressureLayer;
use tollgate_test::Recorded;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{SECOND, key, left, limiter};

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
        let call = service.ready().await.unwrap().call(fails);
        assert_eq!(left(&limiter).await, 0, "it has begun");
        assert_eq!(call.await.is_err(), fails);
        assert_eq!(left(&limiter).await, 1, "it has ended");
    }
    let mut service = layer.layer(service_fn(async |()| pending::<Result<(), Infallible>>().await));
    let mut call = Box::pin(service.ready().await.unwrap().call(()));
    assert!(call.as_mut().now_or_never().is_none());
    assert_eq!(left(&limiter).await, 0);
    drop(call);
    assert_eq!(left(&limiter).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_resolved_future_that_is_kept_holds_nothing() {
    let (limiter, _) = limiter(Quota::concurrency(1));
    let mut service =
        BackPressureLayer::new(limiter.clone(), key()).layer(service_fn(async |()| Ok::<_, Infallible>(())));
    let mut call = Box::pin(service.ready().await.unwrap().call(()));
    assert_eq!(call.as_mut().await, Ok(()));
    assert_eq!(left(&limiter).await, 1);
    drop(call);
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

#[tokio::test(start_paused = true)]
async fn a_slot_of_a_service_that_was_never_called_is_free_when_that_is_dropped() {
    let (limiter, _) = limiter(Quota::concurrency(1));
    let layer = BackPressureLayer::new(limiter.clone(), key());
    let work = service_fn(async |(): ()| Ok::<_, Infallible>(()));
    let mut first = layer.layer(work);
    first.ready().await.unwrap();
    let (sender, receiver): (Sender<()>, Receiver<()>) = channel();
    let mut second = layer.layer(work);
    let waiting = tokio::spawn(async move {
        second.ready().await.unwrap();
        sender.send(()).unwrap();
        second
    });
    sleep(SECOND / 10).await;
    let start = Instant::now();
    drop(first);
    receiver.await.unwrap();
    assert!(start.elapsed().is_zero());
    assert_eq!(left(&limiter).await, 0);
    drop(waiting.await.unwrap());
    assert_eq!(left(&limiter).await, 1);
}
