//! A server that is killed and started again under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate::store::BreakerState;
use tollgate::{Key, Limiter, Quota, Rule, Source};
use tollgate_sql::BackendStore;
use tollgate_sql::postgres::Postgres;

use crate::support::server::Server;
use crate::support::{HOUR, check, database, decide, on, until};

const LIMIT: u64 = 1_000_000;
const QUOTA: Quota = Quota::fixed_window(LIMIT, HOUR);

/// What the tasks of a test share.
struct Load {
    store: BackendStore<Postgres>,
    limiter: Limiter,
    /// Requests that the database admitted.
    admitted: AtomicU64,
    /// Requests that the fallback decided.
    fallbacks: AtomicU64,
    ends: AtomicBool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "slow: scripts/slow runs it"]
async fn a_server_that_is_killed_and_restarted_stops_no_request_and_never_admits_more() {
    let mut server = Server::start();
    database(&server).await;
    let store = on(&server.url(), Duration::from_millis(300), 16).store().expect("a store");
    let limiter = Limiter::new(store.clone(), [Rule::new("load", Quota::per_hour(1_000_000))]);
    let (admitted, fallbacks, ends) = Default::default();
    let load = Arc::new(Load { store, limiter, admitted, fallbacks, ends });
    let tasks: Vec<_> = (0..16).map(|task| tokio::spawn(send(Arc::clone(&load), task))).collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.kill();
        let opens = async || load.limiter.breaker_state() != BreakerState::Closed;
        assert!(until(Duration::from_secs(2), opens).await.is_some(), "the breaker opens");
        let before = load.fallbacks.load(Ordering::Relaxed);
        let falls_back = async || load.fallbacks.load(Ordering::Relaxed) > before;
        assert!(until(Duration::from_secs(1), falls_back).await.is_some(), "the fallback decides");
        tokio::task::block_in_place(|| server.restart());
        let closes = async || load.limiter.breaker_state() == BreakerState::Closed;
        let took = until(Duration::from_secs(1), closes).await;
        assert!(took.is_some(), "it returns within a second");
    }
    load.ends.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no panic");
    }
    let look = decide(&load.store, &[check("exact", "ada", QUOTA).cost(0)]).await.expect("a decision").decision;
    let (admitted, remaining) = (load.admitted.load(Ordering::Relaxed), look.outcomes()[0].remaining());
    assert!(admitted > 0);
    assert!(admitted + remaining <= LIMIT, "{admitted} were admitted, and {remaining} remain");
}

/// Sends requests to the store itself, or through a limiter, until the test ends.
async fn send(load: Arc<Load>, task: usize) {
    while !load.ends.load(Ordering::Relaxed) {
        if task.is_multiple_of(2) {
            let decided = decide(&load.store, &[check("exact", "ada", QUOTA)]).await;
            let is_allowed = decided.is_ok_and(|decided| decided.decision.is_allowed());
            load.admitted.fetch_add(u64::from(is_allowed), Ordering::Relaxed);
        } else {
            let start = Instant::now();
            let decision = load.limiter.check(&Key::new("user", "bob")).await.expect("the fallback decides");
            let is_fallback = decision.source() == Source::Fallback;
            load.fallbacks.fetch_add(u64::from(is_fallback), Ordering::Relaxed);
            assert!(start.elapsed() < Duration::from_secs(1), "no decision takes longer than its budget and slack");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
