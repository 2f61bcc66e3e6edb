//! Floods of keys that clients make up: memory stays within what capacities allow.
//!
//! Alone in its program, as it measures the memory of the whole process.

use std::alloc::System;
use std::convert::Infallible;
use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tollgate::store::{Check, Counter, Store};
use tollgate::{DenyCache, HybridStore, Key, LeaseStore, MemoryStore, Policy, Quota, RateLimitLayer, key};
use tower::{Layer, Service, service_fn};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One flood at a time.
static ALONE: Mutex<()> = Mutex::new(());

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
    let counter = Counter { policy: "policy".into(), key: Key::new("user", number.to_string()), quota };
    let answer = store.decide(&[Check::new(counter, 1)]).wait().now_or_never();
    answer.expect("memory answers at once").expect("memory never fails");
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
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let store = memory();
    flood("memory", &store, ONE, 1, 200_000);
    assert!(store.len() <= CAPACITY, "{} keys", store.len());
}

#[test]
fn refusals_of_made_up_keys_take_no_more_memory_than_the_deny_cache_has_room_for() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let store = DenyCache::builder().capacity(CAPACITY).build(memory()).expect("the settings are valid");
    flood("deny cache", &store, ONE, 2, 100_000);
    assert!(store.len() <= CAPACITY, "{} refusals", store.len());
}

#[test]
fn made_up_keys_that_are_hot_take_no_more_memory_than_leases_have_room_for() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    let _entered = runtime.enter();
    let store = LeaseStore::builder(memory()).capacity(CAPACITY).build().expect("the settings are valid");
    flood("leases", &store, MANY, 12, 40_000);
    assert!(store.counts().leased > 0, "no key was hot: {:?}", store.counts());
}

#[test]
fn made_up_keys_take_no_more_memory_than_debts_have_room_for() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    let _entered = runtime.enter();
    let store = HybridStore::builder(memory()).capacity(CAPACITY).build().expect("the settings are valid");
    flood("debts", &store, MANY, 2, 100_000);
}

/// What a service answers with, if it does.
type Answer = Result<Response<Full<Bytes>>, Infallible>;

#[test]
fn requests_that_are_dropped_or_answered_leave_nothing_in_memory() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let layer = RateLimitLayer::composite(memory())
        .policy(Policy::new("kept", PLENTY).key(key::global()))
        .policy(Policy::new("back", PLENTY).key(key::global()).refund_dropped());
    let mut hangs = layer.layer(service_fn(|_: Request<Full<Bytes>>| std::future::pending::<Answer>()));
    let mut answers =
        layer.layer(service_fn(|_: Request<Full<Bytes>>| std::future::ready(Answer::Ok(Response::default()))));
    let mut round = || {
        for _ in 0..2_000 {
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
