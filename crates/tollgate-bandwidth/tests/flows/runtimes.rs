//! Flows whose runtime ends, or whose threads are busy.

use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate::test_util::FailingStore;
use tollgate::{MemoryStore, OnFailure, Quota};
use tollgate_bandwidth::Flow;

use super::audit::{ada, limiter};
use crate::support::soon::soon;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn a_flow_goes_on_after_its_runtime_has_ended() {
    let store = FailingStore::new(MemoryStore::new());
    let (limiter, counts) = limiter(store.clone(), Quota::per_second(1_000));
    let (first, second) = (runtime(), runtime());
    let flow = first.block_on(Flow::of(&limiter, &ada())).expect("a flow");
    let held = store.hold();
    first.block_on(async {
        assert!(flow.try_acquire(251).expect_err("a call is in flight").is_pending());
        tokio::task::yield_now().await;
    });
    let waiting = thread::spawn({
        let flow = flow.clone();
        move || second.block_on(soon(async { flow.acquire(600).await }))
    });
    thread::sleep(Duration::from_millis(50));
    drop(first);
    held.release();
    waiting.join().expect("no panic").expect("the second runtime asks anew");
    drop(flow);
    assert!(counts.taken() >= 600, "what passed was admitted");
}

/// The handler has a portion called for, and then blocks its thread for longer than a decision may take.
fn a_handler_blocks_on(runtime: &Runtime) {
    let store = FailingStore::new(MemoryStore::new());
    store.delay(Duration::from_millis(5));
    let (limiter, _) = limiter(store, Quota::per_second(1_000_000));
    let limiter = limiter.on_failure(OnFailure::Deny);
    runtime.block_on(async {
        let flow = Flow::of(&limiter, &ada()).await.expect("a flow");
        let blocking = tokio::spawn({
            let flow = flow.clone();
            async move {
                let _ = flow.try_acquire(250_000);
                let _ = flow.try_acquire(1);
                thread::sleep(Duration::from_millis(150));
            }
        });
        for _ in 0..10 {
            let flow = flow.clone();
            soon(tokio::spawn(async move { flow.acquire(50_000).await })).await.expect("no panic").expect("it passes");
        }
        blocking.await.expect("no panic");
    });
}

#[test]
fn a_handler_that_blocks_its_thread_fails_no_other_flow() {
    for workers in [2, 4] {
        let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build();
        a_handler_blocks_on(&runtime.expect("a runtime"));
    }
}

#[test]
fn nor_does_one_on_the_only_thread_of_a_runtime() {
    a_handler_blocks_on(&runtime());
}
