//! Random histories of slots on many threads, in memory and through stores around that; and a handler that blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::runtime::Builder;
use tokio::time::sleep;
use tollgate::store::{DenyCache, LeaseStore, Store};
use tollgate::{Key, Limiter, MemoryStore, OnFailure, Quota, Rule};

use crate::support::slow::many;
use crate::support::stall::Stalls;

const LIFE: Duration = Duration::from_secs(2);
const LIMIT: u64 = 4;
/// A renewal that is so late may come after its slots have expired, which is no failure of the store.
const BUSY: Duration = Duration::from_millis(250);
/// A history on a machine that stalled so long, and served too many, is made again.
const ATTEMPTS: usize = 8;

/// How many are served at once, and the most that were.
#[derive(Default)]
struct Served {
    now: AtomicU64,
    most: AtomicU64,
}

async fn client(limiter: Limiter, key: Key, served: Arc<Served>, until: Instant) {
    let mut rng = fastrand::Rng::new();
    while Instant::now() < until {
        if rng.u8(..4) == 0 {
            let _ = Box::pin(limiter.acquire(&key)).as_mut().now_or_never();
            continue;
        }
        let Ok((decision, slots)) = limiter.acquire(&key).await else { continue };
        if decision.is_allowed() {
            served.most.fetch_max(served.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let long = if rng.u8(..20) == 0 { 5_000 } else { 10 };
            sleep(Duration::from_millis(rng.u64(..long))).await;
            served.now.fetch_sub(1, Ordering::SeqCst);
        }
        drop(slots);
        tokio::task::yield_now().await;
    }
}

async fn history<S: Store>(store: impl Fn() -> S) {
    for left in (0..ATTEMPTS).rev() {
        let stalls = Stalls::start();
        let most = most_served(store()).await;
        let stall = stalls.longest();
        if most <= LIMIT {
            return;
        }
        assert!(left > 0 && stall > BUSY, "{most} are served at once");
    }
}

/// Returns how many were served at once, at most.
async fn most_served(store: impl Store) -> u64 {
    let rule = Rule::new("streams", Quota::concurrency(LIMIT).slot_ttl(LIFE));
    let limiter = Limiter::new(store, [rule]).on_failure(OnFailure::Deny);
    let until = Instant::now() + Duration::from_secs(many([2, 10]));
    let mut clients = tokio::task::JoinSet::new();
    let all = [(); 4].map(|()| Arc::<Served>::default());
    for (number, served) in all.iter().enumerate() {
        for _ in 0..12 {
            let key = Key::new("user", number.to_string());
            clients.spawn(client(limiter.clone(), key, Arc::clone(served), until));
        }
    }
    clients.join_all().await;
    let start = Instant::now();
    for number in 0..4 {
        let key = Key::new("user", number.to_string());
        let left = async || limiter.peek(&key).await.expect("it is there").outcomes()[0].remaining();
        // Sooner than slots expire.
        while left().await != LIMIT && start.elapsed() < LIFE / 2 {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(left().await, LIMIT);
    }
    all.iter().map(|served| served.most.load(Ordering::SeqCst)).max().expect("there are four")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_memory_never_serves_more_than_the_limit_and_all_slots_come_back() {
    history(MemoryStore::new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_a_deny_cache() {
    history(|| DenyCache::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_do_leases() {
    history(|| LeaseStore::builder(MemoryStore::new()).build()).await;
}

#[test]
fn a_handler_that_blocks_at_once_costs_nobody_a_slot() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("it starts");
    runtime.block_on(async {
        let quota = Quota::concurrency(2).slot_ttl(Duration::from_secs(2));
        let limiter = Arc::new(Limiter::new(MemoryStore::new(), [Rule::new("slots", quota)]));
        let ada = Key::new("user", "ada");
        let (blocks, key) = (Arc::clone(&limiter), ada.clone());
        let blocking = tokio::spawn(async move {
            let (decision, slots) = blocks.acquire(&key).await.expect("memory answers");
            assert!(decision.is_allowed());
            thread::sleep(Duration::from_secs(5));
            drop(slots);
        });
        sleep(Duration::from_millis(200)).await;
        let (decision, _slots) = limiter.acquire(&ada).await.expect("memory answers");
        assert!(decision.is_allowed());
        sleep(Duration::from_secs(4)).await;
        let (third, _third) = limiter.acquire(&ada).await.expect("memory answers");
        assert!(!third.is_allowed(), "three hold two slots");
        blocking.await.expect("it does not panic");
    });
}
