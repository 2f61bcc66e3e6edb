//! Many who wait for the same: one failure for the breaker.

use std::thread;
use std::time::Instant;

use futures::future::join_all;
use tokio::runtime::Runtime;
use tollgate::store::{Ask, BreakerState, Store};
use tollgate::{Key, OnFailure, Policy, RateLimitLayer, RedisStore, key};

use crate::rig::{AMPLE, WORKERS, check, current_thread, left, ms, turn, workers};
use crate::support::server::RedisServer;

/// More than the failures that open a breaker.
const CALLERS: usize = 16;

/// A store of which all runs on a runtime.
fn pinned(runtime: &Runtime, redis: &RedisServer, budget: u64) -> RedisStore {
    let settings = RedisStore::builder().timeout(ms(budget)).runtime(runtime.handle().clone());
    runtime.block_on(settings.connect(&redis.url())).expect("the server was started")
}

pub(crate) fn layer(store: &RedisStore, budget: u64) -> RateLimitLayer {
    let policy = Policy::new("user", AMPLE).key(key::header("x-api-key"));
    RateLimitLayer::new(store.clone(), policy).on_failure(OnFailure::Deny).timeout(ms(budget))
}

/// Callers on a runtime ask at once; returns how many failed.
async fn ask_at_once(layer: RateLimitLayer) -> usize {
    let ask = |number: usize| {
        let limiter = layer.clone().live().limiter();
        tokio::spawn(async move { limiter.check(&Key::hashed("header x-api-key", number.to_string())).await.is_err() })
    };
    let asked = join_all((0..CALLERS).map(ask)).await;
    asked.into_iter().filter(|failed| *failed.as_ref().expect("it ends")).count()
}

#[test]
fn a_runtime_that_ends_beneath_many_callers_is_one_failure() {
    let (_turn, redis, callers) = (turn(), RedisServer::start(), workers());
    let own = workers();
    let layer = layer(&pinned(&own, &redis, 5_000), 5_000);
    redis.pause();
    let asked = callers.spawn(ask_at_once(layer.clone()));
    thread::sleep(ms(100));
    own.shutdown_timeout(ms(1_000));
    assert_eq!(callers.block_on(asked).expect("it ends"), CALLERS, "all of them fail");
    assert_eq!(layer.clone().live().breaker_state(), BreakerState::Closed);
}

#[test]
fn a_stall_of_the_runtime_of_a_store_keeps_nobody_beyond_the_budget() {
    let (_turn, redis, callers) = (turn(), RedisServer::start(), workers());
    let own = current_thread();
    let layer = layer(&pinned(&own, &redis, 400), 5_000);
    let start = Instant::now();
    // Nobody drives the store's runtime.
    assert_eq!(callers.block_on(ask_at_once(layer)), CALLERS, "all of them are late");
    assert!(start.elapsed() < ms(2_000), "{:?}", start.elapsed());
}

/// A decision is late for its caller; the runtime of the store is treated in some way before, that of the caller after.
/// Then Redis answers.
#[track_caller]
fn assert_given_back(before: fn(&Runtime), after: fn(Runtime) -> Option<Runtime>) {
    let (_turn, redis, own) = (turn(), RedisServer::start(), workers());
    let store = pinned(&own, &redis, 100);
    let left = || own.block_on(left(&store, "late"));
    assert_eq!(left(), AMPLE.capacity());
    redis.pause();
    before(&own);
    let caller = current_thread();
    let asked = caller.block_on(store.decide(&[check("late", 7)], Ask::default()).wait());
    asked.expect_err("Redis is paused");
    let _kept = after(caller);
    redis.resume();
    let start = Instant::now();
    while left() < AMPLE.capacity() && start.elapsed() < ms(2_000) {
        thread::sleep(ms(10));
    }
    assert_eq!(left(), AMPLE.capacity());
}

#[test]
fn a_late_answer_is_given_back_whatever_became_of_the_runtimes_meanwhile() {
    let block = |own: &Runtime| (0..WORKERS).for_each(|_| drop(own.spawn(async { thread::sleep(ms(400)) })));
    assert_given_back(|_| (), |_ended| None);
    assert_given_back(|_| (), Some);
    assert_given_back(block, Some);
}
