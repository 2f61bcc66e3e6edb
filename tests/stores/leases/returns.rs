//! Where units go that are not spent: none is lost but those that must be.

use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::Semaphore;
use tollgate::store::LeaseStore;
use tollgate::store::{
    Ask, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, Settlement, Settling, Store, StoreDecision,
};
use tollgate::test_util::ManualClock;
use tollgate::{Error, MemoryStore, Quota, Source};

use super::sim::{Far, ms, remaining, secs, take};
use crate::support::checks::counter;
use crate::support::doubles::passes_on;
use crate::support::time::{at, memory};

const WINDOW: Quota = Quota::fixed_window(10_000, secs(3_600));

fn leasing(quota_of: Quota) -> (LeaseStore, MemoryStore, Quota) {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    (LeaseStore::builder(inner.clone()).clock(clock.clone()).build(), inner, quota_of)
}

/// A store to which only so many settlements may be on their way; what is more is lost. They arrive before whatever is
/// asked after them. A `FailingStore` does not count what is on its way.
struct Busy {
    inner: MemoryStore,
    settling: Arc<Semaphore>,
}

impl Store for Busy {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        self.settling.add_permits(2_000 - self.settling.available_permits());
        self.inner.decide(checks, ask)
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if let Ok(permit) = self.settling.try_acquire() {
            permit.forget();
            return self.inner.settle(receipt, changes);
        }
        MaybeFuture::Ready(Ok(Vec::new()))
    }

    passes_on!(inner: adjust);
}

async fn heat(store: &LeaseStore, quota: Quota, requests: u64) {
    for _ in 0..requests {
        assert!(take(store, "hot", quota, 1).await.0);
    }
}

#[tokio::test(start_paused = true)]
async fn closing_gives_every_unit_back_that_was_not_admitted() {
    for quota in [
        WINDOW,
        Quota::sliding_window(10_000, secs(3_600)),
        Quota::sliding_log(10_000, secs(3_600)),
        Quota::token_bucket(10_000, secs(3_600)),
    ] {
        let (store, inner, quota) = leasing(quota);
        heat(&store, quota, 100).await;
        assert!(remaining(&inner, "hot", quota).await < 9_900, "some are held");
        store.close().await;
        let counts = store.counts();
        assert_eq!(remaining(&inner, "hot", quota).await, 9_900, "{quota}");
        assert_eq!((counts.held(), counts.lost), (0, 0), "{counts:?}");
        assert_eq!(take(&store, "hot", quota, 1).await, (true, Source::Store), "it goes on without leases");
        store.close().await;
        assert_eq!(store.counts(), counts);
    }
}

/// Takes some units of each of many hot keys; returns what they have left in all, held or not.
async fn heat_many(store: &LeaseStore, keys: u64, requests: u64) -> u64 {
    for key in 0..keys {
        for _ in 0..requests {
            assert!(take(store, &key.to_string(), WINDOW, 1).await.0);
        }
    }
    keys * (10_000 - requests)
}

async fn left(inner: &MemoryStore, keys: u64) -> u64 {
    let mut left = 0;
    for key in 0..keys {
        left += remaining(inner, &key.to_string(), WINDOW).await;
    }
    left
}

/// Polls `close` once, and drops it.
#[track_caller]
fn close_and_leave(store: &LeaseStore) {
    assert!(store.close().now_or_never().is_none(), "it waits for the inner store");
}

#[tokio::test(start_paused = true)]
async fn closing_that_is_dropped_while_leases_are_on_their_way_gives_them_back_as_they_come() {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    let far = Far::new(inner.clone(), ms(10), ms(10));
    let store = LeaseStore::builder(far).clock(clock.clone()).build();
    for _ in 0..12 {
        let store = store.clone();
        tokio::spawn(async move { take(&store, "hot", WINDOW, 1).await });
    }
    tokio::time::sleep(ms(5)).await;
    close_and_leave(&store);
    tokio::time::sleep(ms(10)).await;
    assert!(remaining(&inner, "hot", WINDOW).await < 9_988, "a lease is on its way");
    tokio::time::sleep(ms(25)).await;
    assert_eq!(remaining(&inner, "hot", WINDOW).await, 9_988);
    store.close().await;
    let closed = store.counts();
    assert_eq!((closed.returned, closed.held(), closed.lost), (closed.leased, 0, 0), "{closed:?}");
}

/// A store that holds up whoever settles with it, once it has said so, until it is told to go on.
struct Slow {
    inner: MemoryStore,
    began: std::sync::mpsc::Sender<()>,
    go: std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Store for Slow {
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let _ = self.began.send(());
        let go = self.go.lock().expect("nobody panicked");
        let _ = tokio::task::block_in_place(|| go.recv_timeout(secs(10)));
        self.inner.settle(receipt, changes)
    }

    passes_on!(inner: decide, adjust);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_waits_until_a_sweep_has_returned_what_it_took_out() {
    let ((began, begins), (goes, go)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let inner = MemoryStore::new();
    let slow = Slow { inner: inner.clone(), began, go: std::sync::Mutex::new(go) };
    let store = LeaseStore::builder(slow).build();
    heat(&store, WINDOW, 100).await;
    tokio::task::block_in_place(|| begins.recv_timeout(secs(10))).expect("an idle key is swept");
    let closing = tokio::spawn({
        let store = store.clone();
        async move { store.close().await }
    });
    tokio::time::sleep(ms(100)).await;
    assert!(!closing.is_finished(), "units are on their way back");
    drop(goes);
    closing.await.expect("it does not panic");
    assert_eq!((store.counts().held(), store.counts().lost), (0, 0), "{:?}", store.counts());
    assert_eq!(remaining(&inner, "hot", WINDOW).await, 9_900);
}

#[tokio::test(start_paused = true)]
async fn closing_hands_over_no_more_at_once_than_an_inner_store_takes() {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    let busy = Busy { inner: inner.clone(), settling: Arc::new(Semaphore::new(2_000)) };
    let store = LeaseStore::builder(busy).clock(clock.clone()).build();
    let unspent = heat_many(&store, 3_000, 10).await;
    store.close().await;
    let counts = store.counts();
    assert_eq!(left(&inner, 3_000).await, unspent, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_window_of_as_many_ticks_is_not_paid_by_the_leases_of_another() {
    let (store, inner, quota) = leasing(WINDOW);
    heat(&store, quota, 100).await;
    assert!(remaining(&inner, "hot", quota).await < 9_900, "some are held");
    // Its ticks are microseconds, and theirs milliseconds.
    let short = Quota::fixed_window(10_000, ms(3_600));
    assert!(take(&store, "hot", short, 1).await.0);
    assert!(remaining(&inner, "hot", short).await < 10_000, "its unit is its own, or of its own lease");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_clone_gives_back() {
    let (store, inner, quota) = leasing(WINDOW);
    heat(&store, quota, 100).await;
    let clone = store.clone();
    drop(store);
    assert!(remaining(&inner, "hot", quota).await < 9_900);
    drop(clone);
    assert_eq!(remaining(&inner, "hot", quota).await, 9_900);
}

#[tokio::test(start_paused = true)]
async fn an_idle_key_gives_back_though_nobody_asks_anything() {
    let clock = ManualClock::paused();
    let inner = memory(&clock);
    let far = Far::new(inner.clone(), ms(1), ms(1));
    let store = LeaseStore::builder(far).clock(clock.clone()).build();
    for _ in 0..200 {
        take(&store, "hot", WINDOW, 1).await;
    }
    assert!(remaining(&inner, "hot", WINDOW).await < 9_800, "some are held");
    tokio::time::sleep(ms(1_100)).await;
    assert_eq!(remaining(&inner, "hot", WINDOW).await, 9_800);
    assert_eq!(store.counts().held(), 0);
}

#[test]
fn a_look_outside_of_a_runtime_finds_what_an_idle_key_gives_back() {
    let clock = ManualClock::new();
    let inner = memory(&clock);
    let store = LeaseStore::builder(inner.clone()).clock(clock.clone()).build();
    futures::executor::block_on(async {
        heat(&store, WINDOW, 100).await;
        clock.advance(secs(10));
        assert!(remaining(&inner, "hot", WINDOW).await < 9_900, "nobody has asked anything");
        assert_eq!(remaining(&store, "hot", WINDOW).await, 9_900);
        assert_eq!(remaining(&inner, "hot", WINDOW).await, 9_900);
        assert_eq!(store.counts().held(), 0);
    });
}

/// A runtime whose time goes on when nothing else does.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
}

#[test]
fn an_idle_key_gives_back_though_the_runtime_of_the_first_lease_has_ended() {
    let clock = ManualClock::new();
    let inner = memory(&clock);
    let store = LeaseStore::builder(Far::new(inner.clone(), ms(1), ms(1))).clock(clock.clone()).build();
    let held = |key: &'static str| {
        runtime().block_on(async {
            for _ in 0..200 {
                take(&store, key, WINDOW, 1).await;
            }
            store.counts().held()
        })
    };
    assert!(held("first") > 0, "some are held");
    runtime().block_on(async {
        for _ in 0..200 {
            take(&store, "second", WINDOW, 1).await;
        }
        clock.set(at(2_000_000));
        tokio::time::sleep(ms(200)).await;
        assert_eq!(store.counts().held(), 0, "{:?}", store.counts());
    });
}

#[tokio::test(start_paused = true)]
async fn nothing_is_spent_after_a_tenth_of_the_window_or_a_second() {
    for (quota, half) in [(WINDOW, 500), (Quota::token_bucket(10_000, secs(2)), 100)] {
        let (store, _, quota) = leasing(quota);
        while store.counts().held() <= 40 {
            heat(&store, quota, 1).await;
        }
        let warm = store.counts();
        for _ in 0..2 {
            tokio::time::sleep(ms(half - 1)).await;
            take(&store, "hot", quota, 1).await;
        }
        let before = store.counts();
        assert_eq!((before.spent, before.returned + before.lost), (warm.spent + 2, 0), "{quota}");
        tokio::time::sleep(ms(2)).await;
        take(&store, "hot", quota, 1).await;
        let after = store.counts();
        assert_eq!(after.returned + after.lost, warm.held() - 2, "{quota}: {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_spent_after_the_window_it_was_charged_to() {
    // Units of the last window count in the next one only if it slides.
    for (of, counts_on) in [(Quota::fixed_window as fn(_, _) -> _, false), (Quota::sliding_window, true)] {
        let quota = of(10_000, secs(100));
        let (store, _, quota) = leasing(quota);
        tokio::time::sleep(ms(99_700)).await;
        heat(&store, quota, 100).await;
        let before = store.counts();
        assert!(before.held() > 0 && before.returned + before.lost == 0);
        tokio::time::sleep(ms(300)).await;
        take(&store, "hot", quota, 1).await;
        let after = store.counts();
        let (returned, lost) = if counts_on { (before.held(), 0) } else { (0, before.held()) };
        assert_eq!((after.returned, after.lost), (returned, lost), "{quota}: {after:?}");
    }
}

/// A store that answers leases only once it is allowed to; all is decided at once. A `FailingStore` would hold single
/// units too.
struct Held {
    inner: MemoryStore,
    gate: Arc<Semaphore>,
}

impl Store for Held {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let (decided, gate) = (self.inner.decide(checks, ask), Arc::clone(&self.gate));
        if checks[0].cost == 1 {
            return decided;
        }
        MaybeFuture::pending(async move {
            let _permit = gate.acquire_owned().await;
            decided.wait().await
        })
    }

    passes_on!(inner: settle, adjust);
}

/// What the inner store has left where a key was reset while a lease of it was asked for, and requests and others
/// took units after that.
async fn left_after_a_reset(requests: u64, others: u64) -> u64 {
    let (clock, gate) = (ManualClock::paused(), Arc::new(Semaphore::new(0)));
    let inner = memory(&clock);
    let held = Held { inner: inner.clone(), gate: Arc::clone(&gate) };
    let store = LeaseStore::builder(held).clock(clock.clone()).build();
    heat(&store, WINDOW, 100).await;
    assert!(remaining(&inner, "hot", WINDOW).await < 9_900, "a lease was asked for");
    store.adjust(&counter("hot", WINDOW), Change::Reset).wait().await.expect("a store answers");
    heat(&store, WINDOW, requests).await;
    for _ in 0..others {
        assert!(take(&inner, "hot", WINDOW, 1).await.0);
    }
    gate.add_permits(1_000);
    tokio::time::sleep(ms(1)).await;
    heat(&store, WINDOW, 5).await;
    store.close().await;
    remaining(&inner, "hot", WINDOW).await
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_before_a_reset_is_neither_spent_nor_given_back_after_it() {
    for (requests, others) in [(0, 50), (1, 50), (3, 0), (100, 200)] {
        let left = left_after_a_reset(requests, others).await;
        assert_eq!(left, 10_000 - requests - others - 5, "{requests} requests and {others} others");
    }
}

/// A store whose resets are never answered.
struct Silent(MemoryStore);

impl Store for Silent {
    fn adjust(&self, _: &Counter, _: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        MaybeFuture::pending(std::future::pending())
    }

    passes_on!(0: decide, settle);
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_while_a_reset_is_waited_for_is_forgotten_when_nobody_waits_any_more() {
    let clock = ManualClock::paused();
    let store = LeaseStore::builder(Silent(memory(&clock))).clock(clock.clone()).build();
    heat(&store, WINDOW, 100).await;
    let mut reset = Box::pin(store.adjust(&counter("hot", WINDOW), Change::Reset).wait());
    assert!((&mut reset).now_or_never().is_none());
    assert_eq!(store.counts().held(), 0);
    heat(&store, WINDOW, 100).await;
    assert!(store.counts().held() > 0, "it is hot again");
    drop(reset);
    assert_eq!(store.counts().held(), 0, "the reset may come through after it");
}

#[tokio::test(start_paused = true)]
async fn a_lowered_limit_gives_the_lease_back_and_a_raised_one_leaves_it() {
    let (store, inner, quota) = leasing(WINDOW);
    heat(&store, quota, 100).await;
    let held = store.counts().held();
    let raised = Quota::fixed_window(20_000, secs(3_600));
    assert_eq!(take(&store, "hot", raised, 1).await.1, Source::Lease);
    assert_eq!(store.counts().held(), held - 1);
    let lowered = Quota::fixed_window(150, secs(3_600));
    assert_eq!(take(&store, "hot", lowered, 1).await.1, Source::Store);
    assert_eq!(store.counts().held(), 0);
    assert_eq!(remaining(&inner, "hot", lowered).await, 150 - 102);
}
