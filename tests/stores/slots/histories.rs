//! Random histories of slots on many threads, in memory and through stores around that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::time::sleep;
use tollgate::store::{Answer, Change, Check, Counter, Deadline, Settlement, Store};
use tollgate::{DenyCache, HybridStore, Key, LeaseStore, Limiter, MemoryStore, OnFailure, Quota, Rule};

use crate::support::slow::many;

const LIFE: Duration = Duration::from_secs(2);
const LIMIT: u64 = 4;

async fn client(limiter: Limiter, key: Key, served: Arc<AtomicU64>, until: Instant) {
    let mut rng = fastrand::Rng::new();
    while Instant::now() < until {
        if rng.u8(..4) == 0 {
            let _ = Box::pin(limiter.acquire(&key)).as_mut().now_or_never();
            continue;
        }
        let Ok((decision, slots)) = limiter.acquire(&key).await else { continue };
        if decision.is_allowed() {
            let others = served.fetch_add(1, Ordering::SeqCst);
            assert!(others < LIMIT, "{} are served at once", others + 1);
            let long = if rng.u8(..20) == 0 { 5_000 } else { 10 };
            sleep(Duration::from_millis(rng.u64(..long))).await;
            served.fetch_sub(1, Ordering::SeqCst);
        }
        drop(slots);
        tokio::task::yield_now().await;
    }
}

async fn history(store: impl Store) {
    let rule = Rule::new("streams", Quota::concurrency(LIMIT).slot_life(LIFE));
    let limiter = Limiter::new(store, [rule]).on_failure(OnFailure::Deny);
    let until = Instant::now() + Duration::from_secs(many([2, 10]));
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..4 {
        let served = Arc::new(AtomicU64::new(0));
        for _ in 0..12 {
            let key = Key::new("user", number.to_string());
            clients.spawn(client(limiter.clone(), key, Arc::clone(&served), until));
        }
    }
    clients.join_all().await;
    sleep(Duration::from_millis(50)).await;
    for number in 0..4 {
        let look = limiter.peek(&Key::new("user", number.to_string())).await.expect("it is there");
        assert_eq!(look.outcomes()[0].remaining(), LIMIT);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_memory_never_serves_more_than_the_limit_and_all_slots_come_back() {
    history(MemoryStore::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_a_deny_cache() {
    history(DenyCache::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_do_leases() {
    history(LeaseStore::builder(MemoryStore::new()).build().expect("it is valid")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_a_hybrid_store() {
    history(HybridStore::builder(MemoryStore::new()).build().expect("it is valid")).await;
}

#[test]
fn no_cost_floor_or_change_is_too_large() {
    let mut rng = fastrand::Rng::with_seed(7);
    let sizes = [0, 1, 2, 5, 1_000_000, 1 << 31, 1 << 32, (1 << 52) - 1, u64::MAX - 1, u64::MAX];
    let mut size = || rng.choice(sizes).expect("there are some");
    for limit in [1, 5, 1_000_000] {
        let store = MemoryStore::new();
        let counter =
            Counter::new("s".try_into().expect("a valid name"), Key::new("user", "ada"), Quota::concurrency(limit));
        for round in 0..5_000 {
            let checks: Vec<_> = (0..=round % 3).map(|_| Check::new(counter.clone(), size()).floor(size())).collect();
            let Answer::Ready(Ok(decided)) = store.decide(&checks, Deadline::none()) else { panic!("memory decides") };
            let taken: u64 = decided.receipt.taken().iter().map(|taken| taken.units).sum();
            assert!(taken <= limit);
            let change = if round % 2 == 0 { Change::Renew(size()) } else { Change::Refund(size()) };
            let places = 0..decided.receipt.taken().len();
            let changes: Vec<_> = places.map(|place| Settlement::new(place, change)).collect();
            drop(store.settle(decided.receipt, &changes));
        }
    }
}
