//! Flows whose store fails, and comes back.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::sleep;
use tollgate::test_util::FailingStore;
use tollgate::{OnFailure, Quota, Source};
use tollgate_bandwidth::Flow;

use super::audit::{ada, limiter};
use super::taking::memory;

#[tokio::test(start_paused = true)]
async fn a_local_store_goes_on_by_default_and_the_flow_says_so() {
    let store = FailingStore::new(memory());
    let (limiter, _) = limiter(store.clone(), Quota::per_second(1_000));
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    assert_eq!(flow.decision().map(|decision| decision.source()), Some(Source::Store));
    store.fail();
    for _ in 0..400 {
        flow.acquire(10).await.expect("the local store decides");
    }
    assert_eq!(flow.decision().map(|decision| decision.source()), Some(Source::Fallback));
    store.work();
    sleep(Duration::from_secs(2)).await;
    for _ in 0..100 {
        flow.acquire(10).await.expect("a store decides");
    }
    assert_eq!(flow.decision().map(|decision| decision.source()), Some(Source::Store));
}

#[tokio::test(start_paused = true)]
async fn deny_ends_what_waits_and_not_what_is_leased() {
    let store = FailingStore::new(memory());
    let (limiter, counts) = limiter(store.clone(), Quota::per_second(1_000));
    let limiter = limiter.on_failure(OnFailure::Deny);
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    store.fail();
    let mut passed = 0;
    let error = loop {
        match flow.acquire(10).await {
            Ok(()) => passed += 10,
            Err(error) => break error,
        }
    };
    assert!(error.is_unavailable() && std::error::Error::source(&error).is_some(), "{error}");
    assert_eq!(passed, 250, "what was leased has passed");
    assert!(flow.try_acquire(1).expect_err("nothing is leased").is_unavailable());
    assert!(flow.check(1).await.expect_err("nothing is leased").is_unavailable());
    assert!(Flow::of(&limiter, &tollgate::Key::new("user", "bob")).await.is_err());
    store.work();
    sleep(Duration::from_secs(2)).await;
    flow.acquire(10).await.expect("it is back");
    drop(flow);
    assert_eq!(counts.taken(), 260);
}

#[tokio::test(start_paused = true)]
async fn allow_admits_all_and_refunds_nothing() {
    let store = FailingStore::new(memory());
    let (limiter, counts) = limiter(store.clone(), Quota::per_second(10));
    let limiter = limiter.on_failure(OnFailure::Allow);
    store.fail();
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    for _ in 0..100 {
        flow.acquire(10).await.expect("everything is admitted");
    }
    assert_eq!(flow.decision().map(|decision| decision.source()), Some(Source::FailOpen));
    drop(flow);
    assert_eq!((counts.taken(), counts.refunded()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_keeps_nobody_waiting_for_longer_than_the_budget() {
    let store = FailingStore::new(memory());
    let (limiter, _) = limiter(store.clone(), Quota::per_second(1_000));
    let limiter = limiter.on_failure(OnFailure::Deny);
    let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
    store.hang();
    let start = tokio::time::Instant::now();
    flow.acquire(250).await.expect("it is leased");
    flow.acquire(1).await.expect_err("it hangs");
    assert!(start.elapsed() <= Duration::from_millis(110), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_is_one_that_fails() {
    for delay in [Duration::ZERO, Duration::from_millis(20)] {
        let store = FailingStore::new(memory());
        let (limiter, _) = limiter(store.clone(), Quota::per_second(1_000));
        let flow = Flow::of(&limiter.on_failure(OnFailure::Deny), &ada()).await.expect("a flow");
        flow.acquire(250).await.expect("it is leased");
        store.fail_with(|| panic!("a store of a test"));
        let taking = flow.clone();
        if !delay.is_zero() {
            store.delay(delay);
        }
        let taken =
            tokio::time::timeout(Duration::from_secs(1), tokio::spawn(async move { taking.acquire(500).await }));
        let taken = taken.await.expect("in time");
        assert!(taken.is_err() || taken.is_ok_and(|taken| taken.is_err()), "it fails");
        store.work();
        let taken = tokio::time::timeout(Duration::from_secs(5), flow.acquire(500)).await;
        taken.expect("in time").expect("it is back");
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_polled_after_the_store_is_back_waits_on() {
    let store = FailingStore::new(memory());
    let (limiter, counts) = limiter(store.clone(), Quota::per_second(1_000));
    let flow = Flow::of(&limiter.on_failure(OnFailure::Deny), &ada()).await.expect("a flow");
    flow.acquire(1_000).await.expect("the burst");
    let mut idle = Box::pin(flow.acquire(500));
    assert!(idle.as_mut().now_or_never().is_none());
    store.fail();
    sleep(Duration::from_secs(1)).await;
    store.work();
    sleep(Duration::from_secs(2)).await;
    flow.acquire(1).await.expect("it is back");
    idle.await.expect("it is back");
    drop(flow);
    assert_eq!(counts.taken(), 1_501);
}
