//! Floods of keys that clients make up: memory stays within what capacities allow.
//!
//! Alone in its program, as it measures the memory of the whole process.

use std::alloc::System;
use std::convert::Infallible;
use std::fs;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::Full;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep};
use tollgate::store::{Ask, Check, Counter, DenyCache, LeaseStore, MaybeFuture, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule, key};
use tollgate_test::StoreFn;
use tower::{Layer, Service, service_fn};

#[allow(dead_code, reason = "rooms use more of it")]
#[path = "support/mod.rs"]
mod support;

use self::support::doubles::settles_by;
use self::support::slow::many;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One flood at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const CAPACITY: usize = 2_000;
/// So many keys fill all that is bounded by capacity.
const FULL: u64 = 4 * CAPACITY as u64;
/// Each key's second request is refused, and remembered as such.
const ONE: Quota = Quota::token_bucket(1, Duration::from_secs(3_600));
/// Hot keys are leased.
const MANY: Quota = Quota::token_bucket(1_000, Duration::from_secs(10));

/// Nobody is refused.
const PLENTY: Quota = Quota::per_minute(1_000_000);

/// Bytes in use.
fn live() -> u64 {
    let stats = ALLOCATOR.stats();
    u64::try_from(stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)).expect("it fits")
}

/// Mebibytes that the process has in memory, where the system tells: in pages of 4 KiB.
fn resident() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages / 256)
}

fn ask(store: &impl Store, number: u64, quota: Quota) {
    let counter = Counter::new("policy".try_into().expect("a valid name"), Key::new("user", number.to_string()), quota);
    let answer = store.decide(&[Check::new(counter, 1)], Ask::default()).wait().now_or_never();
    drop(answer.expect("memory answers at once").expect("memory never fails"));
}

/// Asks for each of many new keys a few times; what is in use must not grow once all is full.
fn flood(name: &str, store: &impl Store, quota: Quota, requests: u64, keys: u64) {
    for number in 0..FULL {
        (0..requests).for_each(|_| ask(store, number, quota));
    }
    let before = live();
    let mut most = before;
    for number in FULL..FULL + keys {
        (0..requests).for_each(|_| ask(store, number, quota));
        if number % 1_000 == 0 {
            most = most.max(live());
        }
    }
    println!("{name}: {keys} keys, {before} B in use when full, at most {most} B, {:?} MiB resident", resident());
    // Tables are resized now and then; a key that stayed would take more than 60 bytes.
    let room = before / 2 + 256 * 1_024;
    assert!(room < 50 * keys, "{name}: too few keys to tell");
    assert!(most <= before + room, "{name}: {most} bytes in use after {keys} more keys, {before} when full");
}

fn memory() -> MemoryStore {
    MemoryStore::builder().capacity(CAPACITY).build()
}

#[test]
fn made_up_keys_take_no_more_memory_than_the_memory_store_has_room_for() {
    let _alone = alone();
    let store = memory();
    flood("memory", &store, ONE, 1, many([20_000, 200_000]));
    assert!(store.len() <= CAPACITY, "{} keys", store.len());
}

#[test]
fn refusals_of_made_up_keys_take_no_more_memory_than_the_deny_cache_has_room_for() {
    let _alone = alone();
    let store = DenyCache::builder(memory()).capacity(CAPACITY).build();
    flood("deny cache", &store, ONE, 2, many([15_000, 100_000]));
    assert!(store.len() <= CAPACITY, "{} refusals", store.len());
}

/// The longest key that a file can have: eight values of the longest text that is not hashed.
fn longest(number: u64) -> Key {
    static OTHERS: LazyLock<Key> = LazyLock::new(|| (1..7).fold(part(0), |joined, place| joined.join(&part(place))));
    OTHERS.join(&part(number))
}

fn part(number: u64) -> Key {
    Key::new("header x-long", format!("{number:064}"))
}

/// Refuses a request for each of many keys, of so many policies, and again when they have outlived;
/// the most bytes in use, and how many refusals were kept.
fn most_refusals(capacity: u64, policies: usize, key: fn(u64) -> Key) -> (u64, usize) {
    let (clock, before) = (ManualClock::new(), live());
    // The first check of each request is refused for an hour, and no other.
    let store = StoreFn::new(|check| check.counter.policy().as_str() != "policy");
    let settings = DenyCache::builder(store).clock(clock.clone()).max_ttl(Duration::from_secs(60));
    let store = settings.capacity(usize::try_from(capacity).expect("it is small")).build();
    let check = |policy: &str, key| Check::new(Counter::new(policy.try_into().expect("a valid name"), key, ONE), 1);
    let others = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|policy| check(policy, Key::new("k", "v")));
    let (mut most, mut kept) = (0, usize::MAX);
    for round in 0..2 {
        clock.advance(Duration::from_secs(61));
        for number in 0..capacity + capacity / 100 {
            let mut checks = vec![check("policy", key(round << 32 | number))];
            checks.extend_from_slice(&others[..policies - 1]);
            drop(store.decide(&checks, Ask::default()).wait().now_or_never().expect("it answers at once"));
            drop(checks);
            most = most.max(live());
        }
        kept = kept.min(store.len());
    }
    println!("{policies} policies: {} B for {kept} refusals of {capacity}", most - before);
    (most - before, kept)
}

#[test]
fn refusals_take_no_more_than_fifteen_megabytes_however_long_their_keys_and_many_their_policies() {
    let _alone = alone();
    // The table of half of the keys has half as many parts, which are as large.
    let keys = many([50_000, 100_000]);
    for policies in [1, 9] {
        let (taken, kept) = most_refusals(keys, policies, longest);
        assert!(taken <= 150 * keys, "{taken} bytes for {kept} refusals of {policies} policies");
        assert!(kept as u64 > keys / 100 * 99, "only {kept} refusals of {keys} are kept");
    }
    // One more than half as large a table has room for.
    let (taken, kept) = most_refusals(1_793, 9, longest);
    assert!(kept == 1_793 && taken <= 250 * 1_793, "{taken} bytes for {kept} refusals");
}

#[test]
fn counts_of_keys_that_are_not_hot_take_sixty_four_bytes_for_each_place() {
    let _alone = alone();
    for capacity in [5, 700, 10_000, 100_000] {
        let before = live();
        let store = LeaseStore::builder(memory()).capacity(capacity).build();
        let (taken, places) = (live() - before, 64 * u64::try_from(capacity).expect("it is small"));
        drop(store);
        assert!(taken <= places + 32 * 1_024, "{taken} bytes for {capacity} places");
        assert!(taken >= places * 9 / 10, "{taken} bytes for {capacity} places");
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn made_up_keys_that_are_hot_take_no_more_memory_than_leases_have_room_for() {
    let _alone = alone();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    let _entered = runtime.enter();
    let store = LeaseStore::builder(memory()).capacity(CAPACITY).build();
    flood("leases", &store, MANY, 12, 40_000);
    assert!(store.counts().leased > 0, "no key was hot: {:?}", store.counts());
}

#[test]
fn made_up_keys_take_no_more_memory_than_overdrafts_have_room_for() {
    let _alone = alone();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    let _entered = runtime.enter();
    let store = LeaseStore::builder(memory()).capacity(200).overdraft(20).build();
    flood("overdrafts", &store, MANY, 24, many([12_000, 40_000]));
    assert!(store.counts().leased > 0, "no key was hot: {:?}", store.counts());
}

/// What a service answers with, if it does.
type Served = Result<Response<Full<Bytes>>, Infallible>;

#[test]
fn requests_that_are_dropped_or_answered_leave_nothing_in_memory() {
    let _alone = alone();
    let layer = RateLimitLayer::composite(memory())
        .policy(Policy::new("kept", PLENTY).key(key::global()))
        .policy(Policy::new("back", PLENTY).key(key::global()).refund_dropped());
    let mut hangs = layer.layer(service_fn(|_: Request<Full<Bytes>>| std::future::pending::<Served>()));
    let mut answers =
        layer.layer(service_fn(|_: Request<Full<Bytes>>| std::future::ready(Served::Ok(Response::default()))));
    let mut round = || {
        for _ in 0..500 {
            assert!(hangs.call(Request::default()).now_or_never().is_none());
            drop(hangs.call(Request::default()));
            assert!(answers.call(Request::default()).now_or_never().is_some());
        }
    };
    round();
    let before = live();
    (0..5).for_each(|_| round());
    assert!(live() <= before + 16 * 1_024, "{} bytes in use, {before} before", live());
}

/// A runtime whose time goes on when nothing else does.
fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime can be built")
}

/// Has so many clients of so many keys hold a slot each, and vanish at once. Returns how many settlements that took.
async fn vanish(clients: u64, keys: u64) -> u64 {
    let inner = MemoryStore::builder().capacity(4 * 100_000).build();
    let counted = Arc::new(AtomicU64::new(0));
    let sent = Arc::clone(&counted);
    // Each settlement takes a while.
    let store = settles_by(inner, move |inner, receipt, changes| {
        counted.fetch_add(changes.len() as u64, Ordering::Relaxed);
        let (inner, changes) = (inner.clone(), changes.to_vec());
        MaybeFuture::pending(async move {
            sleep(Duration::from_millis(1)).await;
            inner.settle(receipt, &changes).wait().await
        })
    });
    let quota = Quota::concurrency(clients / keys).slot_ttl(Duration::from_secs(600));
    let limiter = Limiter::new(store, [Rule::new("streams", quota)]);
    let key = |number: u64| Key::new("user", (number % keys).to_string());
    // So that the counters are there before, and a timer.
    for number in 0..keys {
        drop(limiter.acquire(&key(number)).await);
    }
    sleep(Duration::from_secs(3)).await;
    let (before, _) = (live(), sent.swap(0, Ordering::Relaxed));
    let mut held = Vec::new();
    for number in 0..clients {
        let (decision, slots) = limiter.acquire(&key(number)).await.expect("memory never fails");
        assert!(decision.is_allowed());
        held.push(slots);
    }
    drop(held);
    let start = Instant::now();
    for number in 0..keys {
        while limiter.peek(&key(number)).await.expect("memory never fails").outcomes()[0].remaining() < clients / keys {
            assert!(start.elapsed() < Duration::from_secs(5), "slots of key {number} are held by nobody");
            sleep(Duration::from_millis(5)).await;
        }
    }
    let free = start.elapsed();
    // The book shrinks with a heartbeat.
    sleep(Duration::from_secs(3)).await;
    println!("{clients} clients of {keys} keys: free after {free:?}, {} bytes more", live().saturating_sub(before));
    assert!(live() <= before + 512 * 1_024, "{} bytes in use, {before} before", live());
    sent.load(Ordering::Relaxed)
}

#[test]
fn a_hundred_thousand_clients_that_vanish_at_once_leave_no_slots_behind() {
    let _alone = alone();
    let sent = paused().block_on(vanish(100_000, 1));
    assert!(sent < 1_200, "{sent} settlements, though all slots are of one counter");
    let keys = many([10_000, 100_000]);
    let sent = paused().block_on(vanish(keys, keys));
    assert_eq!(sent, keys, "one for each counter");
}

/// A body that never comes.
struct Awaited(#[allow(dead_code, reason = "counted")] Arc<()>);

impl Body for Awaited {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

#[test]
fn of_all_refused_uploads_no_more_than_1024_wait_for_their_bodies() {
    let _alone = alone();
    paused().block_on(async {
        let held = Arc::new(());
        let policy = Policy::new("uploads", Quota::per_hour(1)).cost_by(|_| 2);
        let inner = service_fn(async |_| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())));
        let mut service = RateLimitLayer::new(memory(), policy).layer(inner);
        for _ in 0..3_000 {
            let request = Request::post("/").body(Awaited(Arc::clone(&held))).expect("a request");
            assert_eq!(service.call(request).await.expect("a response").status(), 429);
        }
        assert_eq!(Arc::strong_count(&held) - 1, 1_024);
        // Their clients send nothing for 2 s.
        sleep(Duration::from_secs(3)).await;
        assert_eq!(Arc::strong_count(&held), 1);
    });
}
