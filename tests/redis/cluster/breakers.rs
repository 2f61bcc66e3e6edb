//! Primaries that are away, and not asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tollgate::store::BreakerState;
use tollgate::{Decision, Key, Limiter, OnFailure, Policy, RateLimitLayer, RedisStore, Source};
use tracing::Level;

use super::rig::Cluster;
use crate::stores::{FIFTY, PATIENCE, cut, wait_for};
use crate::support::log::Log;
use crate::support::server::RedisServer;

const BUDGET: Duration = Duration::from_millis(300);
/// What a busy machine adds to the waits of a test.
const BUSY: Duration = Duration::from_secs(1);
/// A primary that is back is asked again within this time.
const RETURN: Duration = Duration::from_secs(1);
/// Decisions on a primary that is away, one after the other, until it is not asked.
const MOST: u32 = 5;

/// A Cluster of which no replica takes over by itself, nor is a primary taken for dead.
fn cluster_that_stays() -> Cluster {
    let cluster = Cluster::start_with_replicas();
    for node in &cluster.nodes {
        let (): () = node.ask(&["CONFIG", "SET", "cluster-node-timeout", "60000"]);
        let (): () = node.ask(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]);
    }
    cluster
}

/// A layer and what asks by its breaker.
struct App {
    store: RedisStore,
    layer: RateLimitLayer,
    limiter: Limiter,
}

impl App {
    async fn of(cluster: &Cluster, budget: Duration) -> Self {
        Self::with(cluster, budget, |layer| layer).await
    }

    async fn with(cluster: &Cluster, budget: Duration, set: impl FnOnce(RateLimitLayer) -> RateLimitLayer) -> Self {
        let store = cluster.store(budget).await;
        let layer = set(RateLimitLayer::new(store.clone(), Policy::new("policy", FIFTY)));
        Self { store, limiter: layer.clone().live().limiter().only(["policy"]).expect("it is there"), layer }
    }

    async fn ask(&self, key: &str) -> Decision {
        self.limiter.check(&Key::new("key", key)).await.expect("the layer decides")
    }

    async fn source(&self, key: &str) -> Source {
        self.ask(key).await.source()
    }

    /// Asks until a primary is not asked any more.
    async fn break_open(&self, cluster: &Cluster, place: usize, own: &str) {
        // Looking for the slots may fail on it as well. A decision that shares a connection attempt
        // with that look fails with it, and both count once.
        for _ in 0..2 * MOST {
            if self.state(cluster, place) != BreakerState::Closed {
                return;
            }
            assert_ne!(self.source(own).await, Source::Store);
        }
        assert_ne!(self.state(cluster, place), BreakerState::Closed);
    }

    /// How long it takes until Redis decides over a key again.
    async fn time_to_return(&self, key: &str) -> Duration {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if self.source(key).await == Source::Store {
                return start.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("Redis does not decide again");
    }

    fn state(&self, cluster: &Cluster, place: usize) -> BreakerState {
        let address = format!("127.0.0.1:{}", cluster.nodes[place].port());
        let breakers = self.store.breakers();
        assert!(breakers.len() == 3 && breakers.is_sorted_by_key(|(address, _)| address), "{breakers:?}");
        breakers.into_iter().find(|(other, _)| *other == address).expect("a primary").1
    }

    /// Whether the layer, and the breakers of all primaries but one, are closed.
    fn others_are_closed(&self, cluster: &Cluster, place: usize) -> bool {
        let mut others = (0..3).filter(|other| *other != place);
        self.layer.clone().live().breaker_state() == BreakerState::Closed
            && others.all(|other| self.state(cluster, other) == BreakerState::Closed)
    }
}

#[tokio::test]
async fn a_paused_primary_is_not_waited_for_the_others_decide_exactly_and_the_log_names_it_once_a_change() {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let cluster = cluster_that_stays();
    let app = App::of(&cluster, BUDGET).await;
    let (mut own, other) = (cluster.keys_on(1, 50), cluster.key_on(2));
    // Of those over one key two are sent, and the others wait for the next call; other slots have calls of their own.
    own.extend(vec![own[0].clone(); 50]);
    let (mut allowed, address) = (0, format!("primary=127.0.0.1:{}", cluster.nodes[1].port()));
    for outage in 1..=2 {
        assert_eq!(app.source(&own[0]).await, Source::Store);
        cluster.nodes[1].pause();
        for round in 0..MOST {
            let told = join_all(own[50..].iter().map(|key| app.source(key))).await;
            assert_eq!(told, vec![Source::Fallback; 50]);
            assert!(round > 0 || app.state(&cluster, 1) == BreakerState::Closed, "50 decisions are 50 failures");
        }
        let start = Instant::now();
        for key in &own {
            assert_eq!(app.source(key).await, Source::Fallback);
            let decision = app.ask(&other).await;
            assert_eq!(decision.source(), Source::Store);
            allowed += u32::from(decision.is_allowed());
        }
        // 100 waits would be half a minute.
        assert!(start.elapsed() < 10 * BUDGET + 5 * BUSY, "200 decisions took {:?}", start.elapsed());
        assert_ne!(app.state(&cluster, 1), BreakerState::Closed);
        assert!(app.others_are_closed(&cluster, 1), "{:?}", app.store.breakers());
        cluster.nodes[1].resume();
        let waited = app.time_to_return(&own[0]).await;
        assert!(waited < RETURN + BUSY, "{waited:?}");
        assert_eq!(app.state(&cluster, 1), BreakerState::Closed);
        for text in ["code=\"primary_unavailable\"", "code=\"primary_available\""] {
            let lines = log.lines(text);
            assert_eq!(lines.iter().filter(|line| line.contains(&address)).count(), outage, "{text}: {}", log.text());
        }
    }
    assert_eq!(allowed, 50, "of 200");
    assert_eq!(log.count("code=\"store_unavailable\""), 0, "{}", log.text());
}

#[tokio::test]
async fn all_primaries_killed_cost_no_decision_a_wait() {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let mut cluster = cluster_that_stays();
    let app = App::of(&cluster, BUDGET).await;
    let keys: Vec<_> = (0..3).map(|place| cluster.key_on(place)).collect();
    cluster.nodes.iter_mut().for_each(RedisServer::kill);
    for (place, key) in keys.iter().enumerate() {
        app.break_open(&cluster, place, key).await;
    }
    let start = Instant::now();
    for round in 0..300 {
        assert_eq!(app.source(&keys[round % 3]).await, Source::Fallback);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(start.elapsed() < 20 * BUDGET, "300 decisions took {:?}", start.elapsed());
    let state = app.layer.clone().live().breaker_state();
    assert_eq!(state, BreakerState::Closed, "it counts nothing that a primary's counts");
    assert_eq!(log.count("code=\"slots_unknown\""), 1, "{}", log.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_is_asked_at_once() {
    let cluster = cluster_that_stays();
    let app = App::of(&cluster, BUDGET).await;
    let own = cluster.key_on(1);
    cluster.nodes[1].pause();
    app.break_open(&cluster, 1, &own).await;
    // Later probes are half a second apart.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        assert_eq!(app.source(&own).await, Source::Fallback);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let _: String = cluster.nodes[4].ask(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    let waited = app.time_to_return(&own).await;
    assert!(waited < RETURN, "{waited:?}");
    assert_eq!(app.state(&cluster, 4), BreakerState::Closed);
    cluster.nodes[1].resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_cut_is_one_failure_however_many_calls_were_on_it() {
    let cluster = Cluster::start();
    let app = Arc::new(App::of(&cluster, PATIENCE).await);
    let (own, primary) = (cluster.keys_on(1, 50), &cluster.nodes[1]);
    let ask_all = || {
        let (app, own) = (Arc::clone(&app), own.clone());
        tokio::spawn(async move { join_all(own.iter().map(|key| app.source(key))).await })
    };
    for _ in 0..3 {
        assert_eq!(ask_all().await.unwrap(), vec![Source::Store; 50]);
        let _: String = primary.ask(&["CLIENT", "PAUSE", "5000", "WRITE"]);
        let asked = ask_all();
        wait_for("calls are held up", || primary.ask::<String>(&["INFO", "clients"]).contains("blocked_clients:1\r"));
        // For the others to be sent: the fewer are, the less is tested.
        tokio::time::sleep(Duration::from_millis(50)).await;
        cut(primary);
        let _: String = primary.ask(&["CLIENT", "UNPAUSE"]);
        let told = asked.await.unwrap();
        assert!(told.iter().filter(|source| **source == Source::Fallback).count() > 1, "{told:?}");
        assert_eq!(app.state(&cluster, 1), BreakerState::Closed);
    }
    assert_eq!(ask_all().await.unwrap(), vec![Source::Store; 50]);
}

#[tokio::test]
async fn to_admit_all_ends_for_the_slots_of_a_primary_too() {
    let mut cluster = cluster_that_stays();
    let allow_for = Duration::from_millis(1_500);
    let app = App::with(&cluster, BUDGET, |layer| layer.on_failure(OnFailure::Allow).allow_for(allow_for)).await;
    let (own, other) = (cluster.key_on(1), cluster.key_on(2));
    cluster.nodes[1].kill();
    let (start, mut open) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(10) && app.source(&own).await == Source::FailOpen {
        open += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Times of failures are whole milliseconds.
    let least = allow_for.checked_sub(Duration::from_millis(2)).expect("it is longer");
    assert!(open > 10 && start.elapsed() >= least, "{open} in {:?}", start.elapsed());
    assert!(start.elapsed() < allow_for + BUSY, "{:?}", start.elapsed());
    assert_eq!(app.source(&own).await, Source::Fallback);
    assert_eq!(app.source(&other).await, Source::Store, "its primary lives");
}
