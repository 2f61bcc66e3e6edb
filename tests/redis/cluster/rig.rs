//! A Cluster of a test's own, and what is asked of stores on it.

use std::time::{Duration, Instant};
use std::{iter, thread};

use tollgate::deadpool_redis::redis::Value;
use tollgate::store::{Ask, Check, Counter, Store, StoreDecision};
use tollgate::{Error, Key, Quota, RedisStore};

use crate::support::checks::check;
use crate::support::server::RedisServer;

/// After so long without an answer a node is taken for dead.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// A budget that a busy machine does not use up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

const LIMIT: Duration = Duration::from_secs(20);

/// Hardly a unit returns during a test.
pub(crate) const FIFTY: Quota = quota(50);

pub(crate) const fn quota(limit: u64) -> Quota {
    Quota::fixed_window(limit, Duration::from_secs(30 * 86_400))
}

/// Primaries that share all slots, then a replica of each if there are any.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<RedisServer>,
    primaries: usize,
}

impl Cluster {
    /// Three primaries.
    pub(crate) fn start() -> Self {
        Self::start_with(3, 0)
    }

    /// Three primaries, and a replica of each.
    pub(crate) fn start_with_replicas() -> Self {
        Self::start_with(3, 3)
    }

    fn start_with(primaries: usize, replicas: usize) -> Self {
        let nodes = iter::repeat_with(node).take(primaries + replicas).collect();
        let cluster = Self { nodes, primaries };
        cluster.share_slots();
        cluster.meet();
        for replica in 0..replicas {
            let (replica, primary) = (&cluster.nodes[primaries + replica], id(&cluster.nodes[replica]));
            wait_for("a primary is known to its replica", || knows(replica, &primary));
            let _: String = replica.ask(&["CLUSTER", "REPLICATE", &primary]);
        }
        for node in &cluster.nodes {
            wait_for("a node sees the whole Cluster", || is_whole(node));
        }
        for replica in &cluster.nodes[primaries..] {
            let up = || replica.ask::<String>(&["INFO", "replication"]).contains("master_link_status:up");
            wait_for("a replica follows", up);
        }
        cluster
    }

    fn share_slots(&self) {
        let primaries = &self.nodes[..self.primaries];
        for (place, node) in primaries.iter().enumerate() {
            let bound = |place: usize| (16_384 * place / self.primaries).to_string();
            let last = (16_384 * (place + 1) / self.primaries - 1).to_string();
            let _: String = node.ask(&["CLUSTER", "ADDSLOTSRANGE", &bound(place), &last]);
            let _: String = node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]);
        }
    }

    fn meet(&self) {
        for (place, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[..place] {
                let _: String = node.ask(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
            }
        }
        for node in &self.nodes {
            let all = || node.ask::<String>(&["CLUSTER", "INFO"]).contains(&known(self.nodes.len()));
            wait_for("the nodes have met", all);
        }
    }

    /// Adds a primary that has no slots.
    pub(crate) fn add(&mut self) -> usize {
        let new = node();
        let all = self.nodes.len() + 1;
        let _: String = new.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(all + 10).to_string()]);
        for other in &self.nodes {
            let _: String = new.ask(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
        }
        self.nodes.push(new);
        for node in &self.nodes {
            wait_for("the new node is known", || node.ask::<String>(&["CLUSTER", "INFO"]).contains(&known(all)));
            wait_for("a node sees the whole Cluster", || is_whole(node));
        }
        all - 1
    }

    pub(crate) fn primaries(&self) -> &[RedisServer] {
        &self.nodes[..self.primaries]
    }

    /// A store that knows one node.
    pub(crate) async fn store(&self, budget: Duration) -> RedisStore {
        let store = RedisStore::builder().timeout(budget).without_deny_cache();
        store.connect_cluster([self.nodes[0].url()]).await.expect("the Cluster was started")
    }

    /// The primary that a key's counters are on, by its place, as slots were shared at first.
    pub(crate) fn place_of(&self, key: &str) -> usize {
        let slot = self.slot_of(key);
        (0..self.primaries).find(|place| slot < 16_384 * (place + 1) / self.primaries).expect("every slot has a node")
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
        let keys = (0..10_000).map(|number| format!("k{number}")).filter(|key| self.place_of(key) == place);
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

fn known(nodes: usize) -> String {
    format!("cluster_known_nodes:{nodes}\r")
}

fn knows(node: &RedisServer, id: &str) -> bool {
    node.ask::<String>(&["CLUSTER", "NODES"]).contains(id)
}

fn is_whole(node: &RedisServer) -> bool {
    let info: String = node.ask(&["CLUSTER", "INFO"]);
    let slots: Vec<Value> = node.ask(&["CLUSTER", "SLOTS"]);
    info.contains("cluster_state:ok") && slots.len() >= 3
}

#[track_caller]
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "waited for {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) async fn take(store: &RedisStore, key: &str, cost: u64) -> Result<StoreDecision, Error> {
    store.decide(&[check(key, FIFTY, cost)], Ask::default()).wait().await
}

/// What remains of [`FIFTY`].
pub(crate) async fn remaining(store: &RedisStore, key: &str) -> u64 {
    take(store, key, 0).await.expect("the Cluster is whole").decision.outcomes()[0].remaining()
}

/// A check of a policy of its own.
pub(crate) fn check_of(policy: &str, key: &str, quota: Quota) -> Check {
    Check::new(Counter::new(policy.try_into().expect("a valid name"), Key::new("key", key), quota), 1)
}

/// Asks until a decision is made; returns how long after the replica took over that was.
pub(crate) async fn time_to_decide(store: &RedisStore, key: &str, replica: &RedisServer) -> Duration {
    let (start, mut took_over) = (Instant::now(), None);
    while start.elapsed() < LIMIT {
        if took_over.is_none() && replica.ask::<String>(&["INFO", "replication"]).contains("role:master") {
            took_over = Some(Instant::now());
        }
        if take(store, key, 1).await.is_ok() {
            return took_over.map_or(Duration::ZERO, |then| then.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no decision was made in {:?}", start.elapsed());
}
