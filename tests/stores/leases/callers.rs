//! Callers that go away: no lease call and no unit is lost with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;
use tollgate::store::{Ask, LeaseStore, MaybeFuture, Store};
use tollgate::test_util::ManualClock;
use tollgate::{MemoryStore, Quota, RedisStore, Source};

use super::sim::{Far, ms, remaining, secs};
use crate::support::checks::check;
use crate::support::server::RedisServer;
use crate::support::time::memory;

const LIMIT: u64 = 1_000_000;
const DAY: Quota = Quota::fixed_window(LIMIT, secs(86_400));

/// What the callers saw.
#[derive(Default)]
struct Seen {
    locally: AtomicU64,
    /// Told that the inner store admitted them.
    told: AtomicU64,
    /// Gone before they were told anything.
    gone: AtomicU64,
}

impl Seen {
    async fn ask(&self, store: &LeaseStore, key: &str, patience: Option<Duration>) {
        let pending = match store.decide(&[check(key, DAY, 1)], Ask::default()) {
            MaybeFuture::Ready(decided) => {
                let source = decided.expect("decided").decision.source();
                let counter = if source == Source::Lease { &self.locally } else { &self.told };
                counter.fetch_add(1, Ordering::Relaxed);
                return;
            }
            MaybeFuture::Pending(pending) => pending,
        };
        let decided = match patience {
            Some(patience) => timeout(patience, pending).await.ok(),
            None => Some(pending.await),
        };
        let counter = if decided.is_some() { &self.told } else { &self.gone };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn load(&self) -> (u64, u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.locally), load(&self.told), load(&self.gone))
    }
}

/// Asks for some keys by thousands of callers, of which some go away; then closes, and compares.
async fn ask_and_compare(store: LeaseStore, inner: &impl Store, leaving: bool) {
    const KEYS: usize = 5;
    let seen = Arc::new(Seen::default());
    let tasks = (0..200).map(|task| {
        let (store, seen) = (store.clone(), Arc::clone(&seen));
        tokio::spawn(async move {
            for turn in 0..50 {
                let patience = (leaving && fastrand::bool()).then(|| Duration::from_micros(fastrand::u64(..2_000)));
                seen.ask(&store, &((task + turn) % KEYS).to_string(), patience).await;
                tokio::time::sleep(ms(fastrand::u64(..8))).await;
            }
        })
    });
    join_all(tasks).await.into_iter().for_each(|task| task.expect("no caller fails"));
    store.close().await;
    let counts = store.counts();
    let (locally, told, gone) = seen.load();
    println!("{locally} locally, {told} told, {gone} gone, {counts:?}");
    assert_eq!((counts.held(), counts.owed, counts.lost, counts.spent), (0, 0, 0, locally));
    assert_eq!(locally + told + gone, 10_000);
    assert!(locally > 3_000, "{locally}");
    let mut used = 0;
    for key in 0..KEYS {
        used += LIMIT - remaining(inner, &key.to_string(), DAY).await;
    }
    assert!((locally + told..=locally + told + gone).contains(&used), "{used} used");
    if !leaving {
        assert_eq!(used, 10_000, "what was charged is what was admitted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_redis_was_charged_is_what_was_admitted() {
    let server = RedisServer::start();
    for leaving in [false, true] {
        let inner = RedisStore::builder().timeout(secs(20)).prefix(format!("leaving-{leaving}"));
        let inner = inner.connect(&server.url()).await.unwrap();
        ask_and_compare(LeaseStore::new(inner.clone()), &inner, leaving).await;
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_go_away_while_leases_are_taken_lose_no_unit() {
    for (way, overdraft) in [(ms(1), 0), (ms(20), 0), (ms(20), 50)] {
        let clock = ManualClock::paused();
        let inner = memory(&clock);
        let far = Far::new(inner.clone(), way, way);
        let store = LeaseStore::builder(far).overdraft(overdraft).clock(clock.clone()).build();
        let look = Far::near(inner);
        ask_and_compare(store, &look, true).await;
    }
}

#[test]
fn a_runtime_that_ends_with_lease_calls_in_flight_leaves_the_store_usable() {
    let inner = MemoryStore::new();
    let store = LeaseStore::new(Far::new(inner.clone(), ms(0), secs(100)));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime().block_on(async {
        for _ in 0..20 {
            drop(store.decide(&[check("hot", DAY, 1)], Ask::default()));
        }
        tokio::time::sleep(ms(10)).await;
    });
    let counts = store.counts();
    assert!(counts.leased > 0, "a call was in flight");
    assert_eq!((counts.lost, counts.held()), (counts.leased, 0), "nobody knows whether it charged");
    runtime().block_on(async { timeout(secs(10), store.close()).await.expect("no call is waited for in vain") });
}
