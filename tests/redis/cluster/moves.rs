//! Slots that move to another primary.

use std::thread::sleep;
use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use tollgate::store::{Ask, BreakerState, Check, Store};

use super::rig::{Cluster, check_of, id, quota};
use crate::stores::{PATIENCE, all_remaining, decide, remaining, take};
use crate::support::server::RedisServer;

/// How long a slot stays on its way, before and after its keys.
const PAUSE: Duration = Duration::from_millis(150);

/// A slot on its way from one primary to another.
pub(super) struct Moving<'a> {
    from: &'a RedisServer,
    to: &'a RedisServer,
    slot: String,
}

impl<'a> Moving<'a> {
    pub(super) fn start(cluster: &'a Cluster, key: &str, [from, to]: [usize; 2]) -> Self {
        let (from, to) = (&cluster.nodes[from], &cluster.nodes[to]);
        let moving = Self { from, to, slot: cluster.slot_of(key).to_string() };
        set_slot(to, &moving.slot, &["IMPORTING", &id(from)]);
        set_slot(from, &moving.slot, &["MIGRATING", &id(to)]);
        moving
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.from.ask(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "9"])
    }

    pub(super) fn migrate(&self, key: &str) {
        let port = self.to.port().to_string();
        let _: String = self.from.ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    }

    pub(super) fn end(&self) {
        for node in [self.to, self.from] {
            set_slot(node, &self.slot, &["NODE", &id(self.to)]);
        }
    }
}

pub(super) fn set_slot(node: &RedisServer, slot: &str, what: &[&str]) {
    let (): () = node.ask(&[&["CLUSTER", "SETSLOT", slot], what].concat());
}

#[tokio::test]
async fn a_store_that_knows_an_old_place_asks_once_more_and_then_knows_the_new_one() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    let key = cluster.key_on(2);
    drop(take(&store, &key, 10).await.unwrap());
    let moving = Moving::start(&cluster, &key, [2, 0]);
    sleep(PAUSE);
    moving.keys().iter().for_each(|key| moving.migrate(key));
    sleep(PAUSE);
    moving.end();
    assert_eq!(remaining(&store, &key).await, 40);
    let errors = || cluster.nodes[2].ask::<String>(&["INFO", "errorstats"]);
    let moved = |stats: String| stats.lines().find(|line| line.starts_with("errorstat_MOVED")).map(str::to_owned);
    let before = moved(errors());
    for _ in 0..5 {
        drop(take(&store, &key, 1).await.unwrap());
    }
    assert_eq!(moved(errors()), before, "nobody else is asked");
    assert_eq!(remaining(&store, &key).await, 35);
}

/// Decisions over each half of a slot that is half moved, over another slot of the same primary, and over two primaries.
#[tokio::test]
async fn while_half_of_a_slot_moves_only_requests_over_both_halves_wait_and_every_counter_is_exact() {
    let cluster = Cluster::start();
    let (hasty, patient) = (cluster.store(Duration::from_millis(300)).await, cluster.store(PATIENCE).await);
    let (near, far) = (cluster.keys_on(0, 2), cluster.key_on(1));
    let ample = |policy, key: &str| check_of(policy, key, quota(20_000));
    let both = ["a", "b"].map(|policy| ample(policy, &near[0]));
    let others = [
        vec![both[0].clone()],
        vec![both[1].clone()],
        vec![ample("d", &near[1])],
        vec![ample("e", &near[1]), ample("f", &far)],
    ];
    drop(decide(&patient, &both).await);
    let moving = Moving::start(&cluster, &near[0], [0, 2]);
    let keys = moving.keys();
    let (moved, stays): (Vec<_>, Vec<_>) = keys.iter().partition(|key| key.contains(":a:"));
    for key in moved {
        moving.migrate(key);
    }
    let waiting = tokio::spawn(patient.decide(&both, Ask::default()).wait());
    for _ in 0..3 {
        let start = Instant::now();
        let of_both = join_all((0..20).map(|_| hasty.decide(&both, Ask::default()).wait()));
        // They come together, and share calls.
        let of_others = join_all(others.iter().cycle().take(80).map(|checks| decide(&hasty, checks)));
        let (of_both, of_others) = join(of_both, of_others).await;
        assert!(start.elapsed() < Duration::from_millis(800), "{:?}", start.elapsed());
        assert!(of_others.iter().all(|decided| decided.decision.is_allowed()));
        for decided in of_both {
            let error = decided.expect_err("no node has both");
            assert!(error.is_store() || error.is_timeout(), "{error:#}");
        }
        assert!(hasty.breakers().iter().all(|(_, state)| *state == BreakerState::Closed), "{:?}", hasty.breakers());
    }
    for key in stays {
        moving.migrate(key);
    }
    moving.end();
    assert!(waiting.await.unwrap().expect("one node has both").decision.is_allowed());
    let look = |checks: &[Check]| checks.iter().map(|check| check.clone().cost(0)).collect::<Vec<_>>();
    for (checks, taken) in [(&both[..], 62), (&others[2], 60), (&others[3], 60)] {
        let left = all_remaining(&decide(&patient, &look(checks)).await.decision);
        assert!(left.iter().all(|left| *left == 20_000 - taken), "{left:?}");
    }
}
