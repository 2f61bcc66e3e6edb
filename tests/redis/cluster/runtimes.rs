//! One store on several runtimes, of which one has stopped while it asked for the slots.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::runtime::{Builder, Runtime};
use tollgate::RedisStore;
use tollgate::store::{Change, Settlement, Store};

use super::rig::{Cluster, remaining, take, time_to_decide, wait_for};
use crate::support::server::RedisServer;

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

/// Polls something once on a runtime that is not driven after that.
fn begin<T>(runtime: &Runtime, mut future: impl Future<Output = T> + Unpin) -> impl Future<Output = T> {
    runtime.block_on(poll_fn(|cx| {
        assert!(future.poll_unpin(cx).is_pending(), "it is not answered at once");
        Poll::Ready(())
    }));
    future
}

#[test]
fn the_first_decision_of_a_lazy_store_may_stop_and_those_of_other_runtimes_find_the_cluster() {
    let (cluster, stopped) = (Cluster::start(), current_thread());
    let store = RedisStore::builder().budget(BUDGET).without_deny_cache();
    let store = store.connect_cluster_lazy([cluster.nodes[0].url()]).expect("the URL is one");
    let own = store.clone();
    let _asked = begin(&stopped, Box::pin(async move { take(&own, "first", 1).await }));
    workers().block_on(async {
        for number in 0..20 {
            let decided = take(&store, &format!("k{number}"), 1).await;
            drop(decided.expect("it does not wait for a runtime that is not driven"));
        }
    });
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

#[test]
fn a_settlement_follows_its_slot_though_its_runtime_stopped_before_the_primary_became_a_replica() {
    let (cluster, stopped, runtime) = (Cluster::start_with_replicas(), current_thread(), workers());
    let store = runtime.block_on(cluster.store(BUDGET));
    let (key, old) = (cluster.key_on(1), format!("127.0.0.1:{}", cluster.nodes[1].port()));
    let receipt = stopped.block_on(take(&store, &key, 6)).expect("the Cluster is whole").receipt;
    drop(stopped.block_on(async { store.settle(receipt, &[Settlement::new(0, Change::Refund(3))]) }));
    let _: String = cluster.nodes[4].ask(&["CLUSTER", "FAILOVER"]);
    let nodes = |node: &RedisServer| node.ask::<String>(&["CLUSTER", "NODES"]);
    let is_replica = |nodes: String| nodes.lines().any(|line| line.contains(&old) && line.contains("slave"));
    wait_for("the failover is known", || cluster.nodes.iter().map(nodes).all(is_replica));
    wait_for("the store knows no node but the primaries", || {
        let _ = runtime.block_on(take(&store, &key, 0));
        store.breakers().iter().all(|(address, _)| *address != old)
    });
    assert_eq!(runtime.block_on(remaining(&store, &key)), 44, "its runtime has not sent it");
    let start = Instant::now();
    while runtime.block_on(remaining(&store, &key)) < 47 {
        assert!(start.elapsed() < RETURN, "it did not arrive");
        stopped.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
    }
}
