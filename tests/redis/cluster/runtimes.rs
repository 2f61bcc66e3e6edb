//! One store on several runtimes, of which one has stopped while it asked for the slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::runtime::{Builder, Runtime};
use tollgate::RedisStore;

use super::rig::{Cluster, take, time_to_decide};

const BUDGET: Duration = Duration::from_millis(300);
/// Limiting goes on within this time of a replica's taking over.
const RETURN: Duration = Duration::from_secs(1);
/// A handler blocks its thread until the test is over, or for so long.
const LONGEST: Duration = Duration::from_secs(25);
/// Failures after which a primary is not asked.
const FAILURES: usize = 8;

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime can be built")
}

fn workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime can be built")
}

#[test]
fn a_failover_is_followed_though_the_runtime_that_saw_it_first_has_stopped() {
    let (mut cluster, stopped, runtime) = (Cluster::start_with_replicas(), current_thread(), workers());
    let store = runtime.block_on(cluster.store(BUDGET));
    let key = cluster.key_on(1);
    drop(stopped.block_on(take(&store, &key, 1)).expect("the Cluster is whole"));
    cluster.nodes[1].kill();
    stopped.block_on(take(&store, &key, 1)).expect_err("its primary is dead");
    let waited = runtime.block_on(time_to_decide(&store, &key, &cluster.nodes[4]));
    assert!(waited < RETURN, "{waited:?}");
}

/// A handler that decides, as often as it takes to be the one who looks for the slots, and then blocks
/// its thread.
fn block(runtime: &Runtime, store: &RedisStore, key: &str, is_over: &Arc<AtomicBool>) {
    let (store, key, is_over) = (store.clone(), key.to_owned(), Arc::clone(is_over));
    runtime.spawn(async move {
        let start = Instant::now();
        while start.elapsed() < LONGEST && !is_over.load(Ordering::SeqCst) {
            if start.elapsed() < 2 * BUDGET {
                let _ = take(&store, &key, 1).now_or_never();
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_failover_is_followed_though_the_handlers_that_saw_it_first_block_their_threads() {
    let (mut cluster, runtime) = (Cluster::start_with_replicas(), workers());
    let store = runtime.block_on(cluster.store(BUDGET));
    let (key, is_over) = (cluster.key_on(1), Arc::new(AtomicBool::new(false)));
    drop(runtime.block_on(take(&store, &key, 1)).expect("the Cluster is whole"));
    cluster.nodes[1].kill();
    for _ in 0..FAILURES {
        runtime.block_on(take(&store, &key, 1)).expect_err("its primary is dead");
    }
    (0..2).for_each(|_| block(&runtime, &store, &key, &is_over));
    let waited = runtime.block_on(time_to_decide(&store, &key, &cluster.nodes[4]));
    is_over.store(true, Ordering::SeqCst);
    assert!(waited < RETURN, "{waited:?}");
}
