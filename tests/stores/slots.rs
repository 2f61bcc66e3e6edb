//! Slots through stores around a store: the inner one alone decides, renews and releases them.

mod histories;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::sleep;
use tollgate::store::{Ask, Change, ChangeResult, DenyCache, LeaseStore, Receipt, Settlement, Store};
use tollgate::{Key, Limiter, MemoryStore, Quota, Rule, Source};

use crate::support::checks::{check, counter};
use crate::support::clock::ManualClock;

const S: u64 = 1_000_000;

/// Slots that live 8 s; a cohort counts for 9 s.
const SLOTS: Quota = Quota::concurrency(3).slot_ttl(Duration::from_secs(8));

/// Takes slots that there are, or are not.
async fn take(store: &dyn Store, cost: u64, is_allowed: bool) -> Receipt {
    let decided = store.decide(&[check("ada", SLOTS, cost)], Ask::default()).wait().await.expect("memory answers");
    assert_eq!((decided.decision.is_allowed(), decided.decision.source()), (is_allowed, Source::Store));
    decided.receipt
}

async fn settle(store: &dyn Store, receipt: Receipt, change: Change) -> ChangeResult {
    let applied = store.settle(receipt, &[Settlement::new(0, change)]).wait().await.expect("memory answers");
    applied.into_iter().next().expect("a result of the change")
}

/// The same slots by the stamp of their renewal.
fn stamped(of: &Receipt, applied: &ChangeResult) -> Receipt {
    Receipt::new(of.store(), of.items().iter().map(|taken| taken.clone().stamp(applied.stamp)))
}

async fn follows_slots(store: &dyn Store, clock: &ManualClock) {
    let first = take(store, 2, true).await;
    let _ = take(store, 2, false).await;
    let _ = take(store, 1, true).await;
    for _ in 0..100 {
        let _ = take(store, 1, false).await;
    }
    clock.set(6 * S);
    let same = Receipt::new(first.store(), first.items().iter().cloned());
    let renewed = settle(store, first, Change::Renew(2)).await;
    assert_eq!(renewed.units, 2);
    clock.set(10 * S);
    let _ = take(store, 2, false).await;
    let _ = take(store, 1, true).await;
    let kept = stamped(&same, &renewed);
    assert_eq!(settle(store, same, Change::Refund(2)).await.units, 0, "they were renewed");
    assert_eq!(settle(store, kept, Change::Refund(2)).await.units, 2);
    let _ = take(store, 2, true).await;
    store.adjust(&counter("ada", SLOTS), Change::Reset).wait().await.expect("memory answers");
    let _ = take(store, 3, true).await;
}

fn memory(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().clock(clock.reader()).build()
}

#[tokio::test]
async fn a_deny_cache_passes_slots_on() {
    let clock = ManualClock::new();
    let store = DenyCache::builder(memory(&clock)).clock(clock.reader()).build();
    follows_slots(&store, &clock).await;
}

#[tokio::test]
async fn leases_pass_slots_on() {
    let clock = ManualClock::new();
    let store = LeaseStore::builder(memory(&clock)).clock(clock.reader()).build();
    follows_slots(&store, &clock).await;
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
