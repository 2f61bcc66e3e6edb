//! Lines in which somebody leaves, stops polling, or needs more than can be taken at once.

use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, sleep, timeout};
use tollgate::{MemoryStore, Quota};
use tollgate_bandwidth::Flow;

use super::audit::{ada, flow, limiter};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn who_needs_little_does_not_wait_for_what_somebody_needed_who_left() {
    let (flow, _, counts) = flow(Quota::token_bucket(10, SECOND).burst(1_000)).await;
    flow.acquire(1_000).await.expect("the burst");
    let other = flow.clone();
    let large = tokio::spawn(async move { timeout(SECOND, other.acquire(500)).await });
    tokio::task::yield_now().await;
    let start = Instant::now();
    flow.acquire(1).await.expect("memory decides");
    assert!(start.elapsed() <= SECOND * 3 / 2, "{:?}", start.elapsed());
    large.await.expect("no panic").expect_err("it takes 50 s");
    drop(flow);
    assert_eq!(counts.taken(), 1_001);
}

#[tokio::test(start_paused = true)]
async fn what_was_gained_for_somebody_who_left_is_not_passed_by_others_at_once() {
    let (flow, ..) = flow(Quota::per_second(10)).await;
    timeout(30 * SECOND, flow.acquire(10_000)).await.expect_err("it takes 1000 s");
    let mut passed = 0;
    while flow.check(1).await.is_ok() {
        passed += 1;
    }
    // The burst, and a second of what was gained.
    assert!(passed <= 20, "{passed} at once");
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_claims_is_refunded_and_keeps_no_other_waiting() {
    let (flow, _, counts) = flow(Quota::per_second(4)).await;
    flow.acquire(4).await.expect("the burst");
    let mut idle = Box::pin(flow.acquire(1));
    assert!(idle.as_mut().now_or_never().is_none());
    sleep(5 * SECOND).await;
    // It was granted long ago, and never polled since.
    assert_eq!(counts.taken(), 4);
    for _ in 0..3 {
        flow.acquire(1).await.expect("memory decides");
    }
    idle.await.expect("it joins the line again");
    drop(flow);
    assert_eq!(counts.taken(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_flow_begins_and_a_check_ends_although_somebody_waits_for_much() {
    let (flow, limiter, _) = flow(Quota::per_second(10)).await;
    let other = flow.clone();
    let large = tokio::spawn(async move { other.acquire(1_000).await });
    sleep(Duration::from_millis(1_234)).await;
    let other = timeout(SECOND, Flow::of(&limiter, &ada())).await.expect("it does not wait").expect("a flow");
    let error = timeout(SECOND, other.check(1)).await.expect("a call at most").expect_err("others wait");
    assert!(error.is_denied(), "{error}");
    large.abort();
}

/// A task whose waker is all that is left of it: it holds a flow, and takes a unit in its destructor.
struct LastWaker(Flow);

impl Wake for LastWaker {
    fn wake(self: Arc<Self>) {}
}

impl Drop for LastWaker {
    fn drop(&mut self) {
        let _ = self.0.try_acquire(1);
    }
}

#[test]
fn a_waker_may_drop_a_task_that_holds_a_flow_of_the_same_key() {
    let (sender, receiver) = mpsc::channel();
    // If it came to a deadlock, the test could not end.
    thread::spawn(move || {
        let (limiter, _) = limiter(MemoryStore::new(), Quota::per_hour(1));
        let flow = Flow::of(&limiter, &ada()).now_or_never().expect("memory decides").expect("a flow");
        flow.try_acquire(1).expect("it is leased");
        let waker = || Waker::from(Arc::new(LastWaker(flow.clone())));
        let mut other = pin!(flow.acquire(1));
        for _ in 0..2 {
            assert!(other.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        }
        let mut left = Box::pin(flow.acquire(1));
        assert!(left.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        drop(left);
        sender.send(()).expect("it is received");
    });
    receiver.recv_timeout(20 * SECOND).expect("no lock is held while wakers are dropped");
}
