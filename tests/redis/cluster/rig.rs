//! A Cluster of a test's own, and what is asked of stores on it.

use std::iter;
use std::ops::Range;
use std::time::Duration;

use tollgate::deadpool_redis::redis::Value;
use tollgate::store::{Check, Counter};
use tollgate::{Key, Quota, RedisStore};

use crate::stores::{MONTH, settings, wait_for};
use crate::support::server::RedisServer;

/// After so long without an answer a node is taken for dead.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(1);

const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;

/// Servers before Redis 7 have no `ADDSLOTSRANGE`.
pub(crate) fn add_slots(node: &RedisServer, slots: Range<usize>) {
    let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
    let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
    let _: String = node.ask(&[&["CLUSTER", "ADDSLOTS"], &slots[..]].concat());
}

/// Hardly a unit returns during a test.
pub(crate) const fn quota(limit: u64) -> Quota {
    Quota::fixed_window(limit, MONTH)
}

/// Primaries that share all slots, then a replica of each if there are any.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<RedisServer>,
}

impl Cluster {
    /// Three primaries.
    pub(crate) fn start() -> Self {
        Self::start_with(0)
    }

    /// Three primaries, and a replica of each.
    pub(crate) fn start_with_replicas() -> Self {
        Self::start_with(PRIMARIES)
    }

    fn start_with(replicas: usize) -> Self {
        let nodes: Vec<_> = iter::repeat_with(node).take(PRIMARIES + replicas).collect();
        for (place, node) in nodes.iter().enumerate() {
            if place < PRIMARIES {
                let [first, next] = [place, place + 1].map(|place| SLOTS * place / PRIMARIES);
                add_slots(node, first..next);
                let _: String = node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &next.to_string()]);
            }
            for other in &nodes[..place] {
                let _: String = node.ask(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
            }
        }
        let info = |node: &RedisServer| node.ask::<String>(&["CLUSTER", "INFO"]);
        let known = format!("cluster_known_nodes:{}\r", nodes.len());
        for node in &nodes {
            wait_for("the nodes have met", || info(node).contains(&known));
        }
        for (replica, primary) in nodes[PRIMARIES..].iter().zip(&nodes) {
            let primary = id(primary);
            let sees = || replica.ask::<String>(&["CLUSTER", "NODES"]).contains(&primary);
            wait_for("a primary is known to its replica", sees);
            let _: String = replica.ask(&["CLUSTER", "REPLICATE", &primary]);
        }
        for node in &nodes {
            let slots = || node.ask::<Vec<Value>>(&["CLUSTER", "SLOTS"]).len();
            wait_for("a node sees the whole Cluster", || info(node).contains("cluster_state:ok") && slots() >= 3);
        }
        for replica in &nodes[PRIMARIES..] {
            let up = || replica.ask::<String>(&["INFO", "replication"]).contains("master_link_status:up");
            wait_for("a replica follows", up);
        }
        Self { nodes }
    }

    pub(crate) fn primaries(&self) -> &[RedisServer] {
        &self.nodes[..PRIMARIES]
    }

    /// A store that knows one node.
    pub(crate) async fn store(&self, budget: Duration) -> RedisStore {
        settings().timeout(budget).connect_cluster([self.nodes[0].url()]).await.expect("the Cluster was started")
    }

    pub(crate) fn slot_of(&self, key: &str) -> usize {
        self.nodes[0].ask(&["CLUSTER", "KEYSLOT", Key::new("key", key).as_str()])
    }

    /// A key whose counters are on a primary.
    pub(crate) fn key_on(&self, place: usize) -> String {
        self.keys_on(place, 1).remove(0)
    }

    /// So many of them.
    pub(crate) fn keys_on(&self, place: usize, count: usize) -> Vec<String> {
        let slots = SLOTS * place / PRIMARIES..SLOTS * (place + 1) / PRIMARIES;
        let keys = (0..10_000).map(|number| format!("k{number}")).filter(|key| slots.contains(&self.slot_of(key)));
        let keys: Vec<_> = keys.take(count).collect();
        assert_eq!(keys.len(), count, "keys are spread over all primaries");
        keys
    }
}

fn node() -> RedisServer {
    let timeout = NODE_TIMEOUT.as_millis().to_string();
    let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", &timeout];
    // Else all nodes refuse everything while one slot has no primary.
    let partial = ["--cluster-require-full-coverage", "no"];
    let replicas = ["--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0"];
    RedisServer::start_with_settings(&[&settings[..], &partial[..], &replicas[..]].concat())
}

pub(crate) fn id(node: &RedisServer) -> String {
    node.ask(&["CLUSTER", "MYID"])
}

/// A check of a policy of its own.
pub(crate) fn check_of(policy: &str, key: &str, quota: Quota) -> Check {
    Check::new(Counter::new(policy.try_into().expect("a valid name"), Key::new("key", key), quota), 1)
}
