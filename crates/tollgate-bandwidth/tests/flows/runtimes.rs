//! Flows whose runtime ends, or whose threads are busy.

use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tollgate::test_util::FailingStore;
use tollgate::{MemoryStore, OnFailure, Quota};
use tollgate_bandwidth::Flow;

use super::audit::{ada, flow_of, limiter};
use crate::support::soon::soon;

#[test]
fn a_flow_goes_on_after_its_runtime_has_ended() {
    let runtime = || Builder::new_current_thread().enable_all().build().expect("a runtime");
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
#[test]
fn a_handler_that_blocks_its_thread_fails_no_other_flow() {
    let mut runtimes = vec![Builder::new_current_thread()];
    for workers in [2, 4] {
        let mut threads = Builder::new_multi_thread();
        threads.worker_threads(workers);
        runtimes.push(threads);
    }
    for mut runtime in runtimes {
        let store = FailingStore::new(MemoryStore::new());
        store.delay(Duration::from_millis(5));
        let (limiter, _) = limiter(store, Quota::per_second(1_000_000));
        let limiter = limiter.on_failure(OnFailure::Deny);
        runtime.enable_all().build().expect("a runtime").block_on(async {
            let flow = flow_of(&limiter).await;
            let other = flow.clone();
            let blocking = tokio::spawn(async move {
                let _ = other.try_acquire(250_000);
                let _ = other.try_acquire(1);
                thread::sleep(Duration::from_millis(150));
            });
            for _ in 0..10 {
                let flow = flow.clone();
                let taking = tokio::spawn(async move { flow.acquire(50_000).await });
                soon(taking).await.expect("no panic").expect("it passes");
            }
            blocking.await.expect("no panic");
        });
    }
}
