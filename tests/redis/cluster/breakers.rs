//! Primaries that are away, and not asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::poll;
use tollgate::store::{Ask, BreakerState, MaybeFuture, Store};
use tollgate::{Decision, Key, Limiter, OnFailure, Policy, RateLimitLayer, RedisStore, Source};
use tracing::Level;

use super::rig::{Cluster, FIFTY, PATIENCE, check_of, quota, take, wait_for};
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
    async fn of(cluster: &Cluster) -> Self {
        Self::with(cluster, |layer| layer).await
    }

    async fn with(cluster: &Cluster, set: impl FnOnce(RateLimitLayer) -> RateLimitLayer) -> Self {
        Self::around(cluster.store(BUDGET).await, set)
    }

    fn around(store: RedisStore, set: impl FnOnce(RateLimitLayer) -> RateLimitLayer) -> Self {
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
async fn a_probe_whose_caller_leaves_before_it_is_sent_leaves_the_breaker_open() {
    let cluster = cluster_that_stays();
    let app = App::of(&cluster).await;
    let key = cluster.key_on(1);
    assert_eq!(app.source(&key).await, Source::Store);
    cluster.nodes[1].pause();
    app.break_open(&cluster, 1, &key).await;
    let start = Instant::now();
    loop {
        let check = [check_of("policy", &key, FIFTY)];
        let MaybeFuture::Pending(mut deciding) = app.store.decide(&check, Ask::default()) else { panic!("it waits") };
        let waits = poll!(&mut deciding).is_pending();
        if waits && app.state(&cluster, 1) == BreakerState::HalfOpen {
            break;
        }
        drop(deciding);
        assert!(start.elapsed() < PATIENCE, "nothing probes");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(app.state(&cluster, 1), BreakerState::Open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_that_wait_for_the_same_silence_are_one_failure_of_a_primary() {
    let cluster = cluster_that_stays();
    let app = App::of(&cluster).await;
    let key = cluster.key_on(1);
    assert_eq!(app.source(&key).await, Source::Store);
    cluster.nodes[1].pause();
    for round in 0..MOST {
        // Two of them are sent; the others wait for the next call.
        let sources = join_all((0..8).map(|_| app.source(&key))).await;
        assert!(sources.iter().all(|source| *source == Source::Fallback), "{sources:?}");
        assert!(round > 0 || app.state(&cluster, 1) == BreakerState::Closed, "8 decisions are 8 failures");
    }
    assert_ne!(app.state(&cluster, 1), BreakerState::Closed);
    assert!(app.others_are_closed(&cluster, 1));
    cluster.nodes[1].resume();
    assert!(app.time_to_return(&key).await < RETURN + BUSY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_primary_is_not_waited_for_and_the_others_decide_exactly() {
    let cluster = cluster_that_stays();
    let app = App::of(&cluster).await;
    let (own, other) = (cluster.keys_on(1, 8), cluster.key_on(2));
    for key in own.iter().chain([&other]) {
        assert_eq!(app.source(key).await, Source::Store);
    }
    cluster.nodes[1].pause();
    app.break_open(&cluster, 1, &own[0]).await;
    let (start, mut allowed) = (Instant::now(), 1);
    for round in 0..200 {
        assert_eq!(app.source(&own[round % own.len()]).await, Source::Fallback);
        if round % 3 == 0 {
            let decision = app.ask(&other).await;
            assert_eq!(decision.source(), Source::Store);
            allowed += u32::from(decision.is_allowed());
        }
    }
    // 200 waits would be a minute.
    assert!(start.elapsed() < 20 * BUDGET + 10 * BUSY, "267 decisions took {:?}", start.elapsed());
    assert_eq!(allowed, 50, "of 68");
    assert_ne!(app.state(&cluster, 1), BreakerState::Closed);
    assert!(app.others_are_closed(&cluster, 1), "{:?}", app.store.breakers());
    cluster.nodes[1].resume();
    let waited = app.time_to_return(&own[0]).await;
    assert!(waited < RETURN + BUSY, "{waited:?}");
    assert_eq!(app.state(&cluster, 1), BreakerState::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_that_come_together_fail_a_primary_alone_however_many_they_are() {
    let cluster = cluster_that_stays();
    let app = App::of(&cluster).await;
    let (mut own, other) = (cluster.keys_on(0, 50), cluster.key_on(2));
    // Of those over one key most wait for the calls of the first ones.
    own.extend(vec![own[0].clone(); 50]);
    assert_eq!((app.source(&own[0]).await, app.source(&other).await), (Source::Store, Source::Store));
    cluster.nodes[0].pause();
    for _ in 0..MOST {
        let told = join_all(own.iter().map(|key| app.source(key))).await;
        assert_eq!(told, vec![Source::Fallback; 100]);
        assert_eq!(app.source(&other).await, Source::Store);
        assert!(app.others_are_closed(&cluster, 0), "{:?}", app.store.breakers());
    }
    assert_ne!(app.state(&cluster, 0), BreakerState::Closed);
    cluster.nodes[0].resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_primaries_killed_cost_no_decision_a_wait() {
    let mut cluster = cluster_that_stays();
    let app = App::of(&cluster).await;
    let keys: Vec<_> = (0..3).map(|place| cluster.key_on(place)).collect();
    for node in &mut cluster.nodes {
        node.kill();
    }
    for (place, key) in keys.iter().enumerate() {
        app.break_open(&cluster, place, key).await;
    }
    let start = Instant::now();
    for round in 0..300 {
        assert_eq!(app.source(&keys[round % 3]).await, Source::Fallback);
    }
    assert!(start.elapsed() < 20 * BUDGET, "300 decisions took {:?}", start.elapsed());
    assert_eq!(
        app.layer.clone().live().breaker_state(),
        BreakerState::Closed,
        "it counts nothing that a primary's counts"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_is_asked_at_once() {
    let cluster = cluster_that_stays();
    let app = App::of(&cluster).await;
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
    let app = Arc::new(App::around(cluster.store(PATIENCE).await, |layer| layer));
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
        let _: i64 = primary.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let _: String = primary.ask(&["CLIENT", "UNPAUSE"]);
        let told = asked.await.unwrap();
        assert!(told.iter().filter(|source| **source == Source::Fallback).count() > 1, "{told:?}");
        assert_eq!(app.state(&cluster, 1), BreakerState::Closed);
    }
    assert_eq!(ask_all().await.unwrap(), vec![Source::Store; 50]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_over_several_slots_takes_nothing_elsewhere_while_one_primary_is_not_asked() {
    let cluster = cluster_that_stays();
    let app = App::of(&cluster).await;
    let (own, other) = (cluster.key_on(1), cluster.key_on(2));
    cluster.nodes[1].pause();
    app.break_open(&cluster, 1, &own).await;
    let checks = [check_of("a", &other, quota(50)), check_of("b", &own, quota(50))];
    let (before, start, mut asked) = (cluster.nodes[2].scripts(), Instant::now(), 0);
    while app.state(&cluster, 1) == BreakerState::Open && start.elapsed() < BUDGET && asked < 10 {
        let error = app.store.decide(&checks, Ask::default()).wait().await.expect_err("its primary is away");
        let was_probe = error.is_timeout() && start.elapsed() >= BUDGET;
        assert!(error.is_connection() || was_probe, "{error:#}");
        asked += 1;
    }
    assert!(asked > 0, "there was no time to ask");
    let probes = u64::from(app.state(&cluster, 1) == BreakerState::HalfOpen || start.elapsed() >= BUDGET);
    assert!(cluster.nodes[2].scripts() - before <= 2 * probes, "{asked} were asked");
    cluster.nodes[1].resume();
}

#[tokio::test]
async fn to_admit_all_ends_for_the_slots_of_a_primary_too() {
    let mut cluster = cluster_that_stays();
    let allow_for = Duration::from_millis(1_500);
    let app = App::with(&cluster, |layer| layer.on_failure(OnFailure::Allow).allow_for(allow_for)).await;
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

#[tokio::test]
async fn the_log_names_the_primary_once_a_change() {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let mut cluster = cluster_that_stays();
    let app = App::of(&cluster).await;
    let own = cluster.key_on(1);
    let address = format!("primary=127.0.0.1:{}", cluster.nodes[1].port());
    for outage in 1..=2 {
        cluster.nodes[1].pause();
        app.break_open(&cluster, 1, &own).await;
        for _ in 0..100 {
            app.source(&own).await;
        }
        cluster.nodes[1].resume();
        app.time_to_return(&own).await;
        drop(take(&app.store, &own, 0).await.expect("it is back"));
        for text in ["code=\"primary_unavailable\"", "code=\"primary_available\""] {
            let lines = log.lines(text);
            assert_eq!(lines.iter().filter(|line| line.contains(&address)).count(), outage, "{text}: {}", log.text());
        }
    }
    assert_eq!(log.count("the store is not called"), 0, "{}", log.text());
    cluster.nodes.iter_mut().for_each(RedisServer::kill);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_500) {
        app.source(&own).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(log.count("code=\"slots_unknown\""), 1, "{}", log.text());
}
