//! Flows whose runtime ends, or whose threads are busy.

use std::future::poll_fn;
use std::pin::pin;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate::test_util::FailingStore;
use tollgate::{MemoryStore, Quota};

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
    let flow = first.block_on(limiter.flow(&ada())).expect("a flow");
    let held = store.hold();
    first.block_on(async {
        assert!(flow.try_take(251).expect_err("a call is in flight").is_pending());
        tokio::task::yield_now().await;
    });
    let waiting = thread::spawn({
        let flow = flow.clone();
        move || second.block_on(soon(async { flow.take(600).await }))
    });
    thread::sleep(Duration::from_millis(50));
    drop(first);
    held.release();
    waiting.join().expect("no panic").expect("the second runtime asks anew");
    drop(flow);
    assert!(counts.taken() >= 600, "what passed was admitted");
}

#[test]
fn a_flow_of_a_runtime_that_stands_still_goes_on_in_another() {
    let (limiter, counts) = limiter(MemoryStore::new(), Quota::per_second(1_000));
    let (first, second) = (runtime(), runtime());
    let mut flow = first.block_on(limiter.flow(&ada())).expect("a flow");
    let more = first.block_on(async {
        flow.take(1_000).await.expect("the burst");
        let mut more = 0;
        // The timer that comes back for these is a task of the first runtime. On a machine that stalls they may be there.
        while futures::poll!(pin!(flow.take(300))).is_ready() {
            more += 300;
        }
        more
    });
    let start = Instant::now();
    second.block_on(async {
        for _ in 0..3 {
            soon(flow.take(100)).await.expect("memory decides");
        }
        soon(poll_fn(|cx| flow.poll_take(cx, 100))).await.expect("memory decides");
    });
    // A timeout polls once more when it is over.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    drop(flow);
    assert_eq!(counts.taken(), 1_400 + more, "what was leased in the first runtime is refunded");
}

#[test]
fn a_handler_that_blocks_its_thread_keeps_no_other_flow_waiting() {
    let store = FailingStore::new(MemoryStore::new());
    store.delay(Duration::from_millis(5));
    let (limiter, _) = limiter(store, Quota::per_second(1_000_000));
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let flow = limiter.flow(&ada()).await.expect("a flow");
        let (blocked, unblock) = std::sync::mpsc::channel::<()>();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let blocking = tokio::spawn({
            let flow = flow.clone();
            async move {
                // It has a portion be asked for, and then blocks.
                let _ = flow.try_take(250_000);
                let _ = flow.try_take(1);
                sender.send(()).expect("it is received");
                let _ = unblock.recv();
            }
        });
        receiver.await.expect("it blocks");
        for _ in 0..10 {
            let flow = flow.clone();
            soon(tokio::spawn(async move { flow.take(50_000).await })).await.expect("no panic").expect("it passes");
        }
        drop(blocked);
        blocking.await.expect("no panic");
    });
}
