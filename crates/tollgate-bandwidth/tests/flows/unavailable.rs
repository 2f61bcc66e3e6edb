//! Flows whose store fails, and comes back.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate::{Key, OnFailure, Quota, Source};
use tollgate_bandwidth::Flow;

use super::audit::failing;

const QUOTA: Quota = Quota::per_second(1_000);

#[track_caller]
fn source(flow: &Flow) -> Source {
    flow.decision().expect("there was one").source()
}

#[tokio::test(start_paused = true)]
async fn a_local_store_goes_on_by_default_and_the_flow_says_so() {
    let (store, flow, ..) = failing(QUOTA, OnFailure::Fallback).await;
    assert_eq!(source(&flow), Source::Store);
    store.fail();
    for _ in 0..400 {
        flow.acquire(10).await.expect("the local store decides");
    }
    assert_eq!(source(&flow), Source::Fallback);
    store.work();
    sleep(Duration::from_secs(2)).await;
    for _ in 0..100 {
        flow.acquire(10).await.expect("a store decides");
    }
    assert_eq!(source(&flow), Source::Store);
}

#[tokio::test(start_paused = true)]
async fn deny_ends_what_waits_and_not_what_is_leased() {
    let (store, flow, limiter, counts) = failing(QUOTA, OnFailure::Deny).await;
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
    assert!(Flow::of(&limiter, &Key::new("user", "bob")).await.is_err());
    store.work();
    sleep(Duration::from_secs(2)).await;
    flow.acquire(10).await.expect("it is back");
    drop(flow);
    assert_eq!(counts.taken(), 260);
}

#[tokio::test(start_paused = true)]
async fn allow_admits_all_that_a_number_holds_and_refunds_nothing() {
    let (store, _other, limiter, counts) = failing(QUOTA, OnFailure::Allow).await;
    store.fail();
    let flow = Flow::of(&limiter, &Key::new("user", "bob")).await.expect("a flow");
    for units in [10, 1_000_000, u64::MAX, u64::MAX - 5] {
        flow.acquire(units).await.expect("everything is admitted");
    }
    assert_eq!(source(&flow), Source::FailOpen);
    assert!(counts.calls() <= 10, "{} calls", counts.calls());
    drop(flow);
    assert_eq!((counts.taken(), counts.refunded()), (250, 0), "of the other flow");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_is_one_that_fails() {
    for delay in [Duration::ZERO, Duration::from_millis(20)] {
        let (store, flow, ..) = failing(QUOTA, OnFailure::Deny).await;
        flow.acquire(250).await.expect("it is leased");
        store.fail_with(|| panic!("a store of a test"));
        let taking = flow.clone();
        if !delay.is_zero() {
            store.delay(delay);
        }
        let taken = timeout(Duration::from_secs(1), tokio::spawn(async move { taking.acquire(500).await }));
        let taken = taken.await.expect("in time");
        assert!(taken.is_err() || taken.is_ok_and(|taken| taken.is_err()), "it fails");
        store.work();
        timeout(Duration::from_secs(5), flow.acquire(500)).await.expect("in time").expect("it is back");
    }
}
