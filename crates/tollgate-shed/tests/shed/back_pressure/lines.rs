//! Waiting in line: who is ready when, and what that costs.

use futures::FutureExt;
use tokio::time::Instant;
use tollgate::Quota;
use tollgate_shed::BackPressureLayer;
use tower::{Layer, Service, ServiceExt};
use tower_test::mock;

use super::{SECOND, decides, echo, is_ready, key, layer, left, limiter};

#[tokio::test(start_paused = true)]
async fn a_service_is_ready_as_often_as_its_quota_allows_or_when_its_turn_in_a_queue_comes() {
    for (quota, ready_at) in [
        (Quota::per_second(2).burst(2), [0, 0, 500, 1_000, 1_500]),
        (Quota::leaky_bucket(10, SECOND).queue(5), [0, 100, 200, 300, 400]),
    ] {
        let (start, mut service) = (Instant::now(), layer(quota).layer(echo()));
        for (job, least) in (0..).zip(ready_at) {
            assert_eq!(service.ready().await.unwrap().call(job).await, Ok(job));
            let time = start.elapsed().as_millis();
            // Each wait is up to a tenth longer, and by the timer's grain.
            assert!((least..=least + least / 10 + 5).contains(&time), "{quota}: {time} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_has_to_wait_for_itself() {
    let (limiter, _) = limiter(Quota::per_hour(2));
    let mut service = BackPressureLayer::new(limiter.clone(), key()).layer(echo());
    assert!(is_ready(&mut service));
    assert_eq!(left(&limiter).await, 1);
    let mut clone = service.clone();
    assert_eq!(left(&limiter).await, 1, "a clone has taken nothing");
    assert!(is_ready(&mut clone));
    assert!(is_ready(&mut service), "it still is");
    assert_eq!(left(&limiter).await, 0);
    assert!(!is_ready(&mut service.clone()));
}

#[tokio::test(start_paused = true)]
async fn what_was_ready_and_is_dropped_is_refunded_and_the_next_in_line_wakes() {
    // What was called stays taken; a slot is free when the call has ended.
    for (quota, at_last) in [(Quota::per_hour(1), 0), (Quota::concurrency(1), 1)] {
        let (limiter, _) = limiter(quota);
        let layer = BackPressureLayer::new(limiter.clone(), key());
        let mut first = layer.layer(echo());
        assert!(is_ready(&mut first));
        let mut second = layer.layer(echo());
        let start = Instant::now();
        let waiting = tokio::spawn(async move { second.ready().await.unwrap().call(2).await });
        tokio::time::sleep(SECOND).await;
        assert!(!waiting.is_finished());
        drop(first);
        assert_eq!(waiting.await.unwrap(), Ok(2));
        assert_eq!(start.elapsed(), SECOND, "at once");
        assert_eq!(left(&limiter).await, at_last);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_gives_up_its_place() {
    let layer = layer(Quota::per_second(1).burst(1));
    let mut first = layer.layer(echo());
    assert_eq!(first.ready().await.unwrap().call(1).await, Ok(1));
    let mut gone = layer.layer(echo());
    assert!(!is_ready(&mut gone));
    drop(gone);
    let start = Instant::now();
    assert_eq!(first.ready().await.unwrap().call(2).await, Ok(2));
    assert!(start.elapsed() <= SECOND * 12 / 10, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_that_wait_are_ready_in_their_order_and_call_the_store_as_often_as_one() {
    let (limiter, store) = limiter(Quota::per_second(1).burst(1));
    let layer = BackPressureLayer::new(limiter, key());
    let workers: Vec<_> = (0..1_000)
        .map(|number| {
            let mut service = layer.layer(echo());
            tokio::spawn(async move { service.ready().await.unwrap().call(number).await })
        })
        .collect();
    tokio::time::sleep(10 * SECOND).await;
    let decides = decides(&store);
    let done = workers.iter().take_while(|worker| worker.is_finished()).count();
    assert!(!workers[done..].iter().any(tokio::task::JoinHandle::is_finished), "{done} came first");
    assert!((9..=11).contains(&done), "{done}");
    assert!(decides <= 3 * 10, "{decides}");
    workers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_is_polled_only_when_the_call_is_admitted() {
    let layer = layer(Quota::per_second(1).burst(1));
    let (mut service, mut handle) = mock::spawn_with(|inner| layer.layer(inner));
    handle.allow(2);
    tokio_test::assert_ready_ok!(service.poll_ready());
    let _first = service.call("first");
    assert_eq!(handle.next_request().await.expect("a request").0, "first");

    tokio_test::assert_pending!(service.poll_ready());
    handle.send_error("broken");
    tokio_test::assert_pending!(service.poll_ready(), "the service has not seen the error of the inner one");
    tokio::time::sleep(2 * SECOND).await;
    tokio_test::assert_ready_err!(service.poll_ready());
    let _: () = drop::<mock::Handle<&str, ()>>(handle);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ready_yet_keeps_what_was_admitted() {
    let (limiter, store) = limiter(Quota::per_hour(5));
    let layer = BackPressureLayer::new(limiter.clone(), key());
    let (mut service, mut handle) = mock::spawn_with::<&str, (), _, _>(|inner| layer.layer(inner));
    handle.allow(0);
    for _ in 0..3 {
        tokio_test::assert_pending!(service.poll_ready());
    }
    assert_eq!(decides(&store), 1);
    handle.allow(1);
    tokio_test::assert_ready_ok!(service.poll_ready());
    assert_eq!(left(&limiter).await, 4);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "`poll_ready` must return ready before each `call`")]
async fn a_call_without_readiness_panics() {
    let mut service = layer(Quota::per_hour(5)).layer(echo());
    assert!(is_ready(&mut service));
    assert!(service.call(1).now_or_never().is_some());
    drop(service.call(2));
}
