//! How long keys live: as long as their state matters, and at most a window longer.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tollgate::store::{Change, StoreDecision};
use tollgate::{Quota, RedisStore};

use super::stores::{adjust, on_clock, patient_store, settle};
use crate::support::checks::check;
use crate::support::server::RedisServer;
use crate::support::slow::many;
use crate::support::time::at;

const WINDOW: Duration = Duration::from_secs(2);
/// A busy machine writes little in this time, and may have more.
const RUN: [Duration; 2] = [Duration::from_millis(2_500), Duration::from_secs(5)];

const MOST: Duration = Duration::from_secs(60);
const LIMIT: u64 = 20_000;

/// When the only key expires, in milliseconds of the server's clock.
fn expiry(server: &RedisServer) -> i64 {
    let [key] = &server.keys()[..] else { return 0 };
    server.ask(&["PEXPIRETIME", key])
}

/// What was left of the key's life when `since` was; a key that is gone lived until now at most.
fn life(server: &RedisServer, since: Instant) -> Duration {
    let left = match &server.keys()[..] {
        [key] => server.ask::<i64>(&["PTTL", key]),
        _ => 0,
    };
    assert_ne!(left, -1, "the key never expires");
    Duration::from_millis(left.try_into().unwrap_or(0)) + since.elapsed()
}

async fn decide(store: &RedisStore, quota: Quota, cost: u64) -> StoreDecision {
    super::stores::decide(store, &[check("only", quota, cost)]).await
}

/// How long the state of the only key matters.
async fn needed(store: &RedisStore, quota: Quota) -> Duration {
    decide(store, quota, 0).await.decision.outcomes()[0].reset_after()
}

/// Takes, refunds and charges at random under changing limits; after each write the key lives long
/// enough. Returns how many writes left the expiry as it was, and how many there were.
async fn run(quota: fn(u64) -> Quota) -> (usize, usize) {
    let server = RedisServer::start();
    let (store, mut rng, start) = (patient_store(&server).await, Rng::with_seed(7), Instant::now());
    let (mut stood, mut writes, mut before) = (0, 0, 0);
    while start.elapsed() < many(RUN) || (writes <= 100 && start.elapsed() < MOST) {
        // By the low limit a few units return in many windows, and then by the high one at once.
        let quota = quota(if rng.u8(..8) == 0 { 2 } else { LIMIT });
        let decided = decide(&store, quota, rng.u64(1..4)).await;
        if !decided.decision.is_allowed() {
            continue;
        }
        let change = if rng.bool() { Change::Refund(1) } else { Change::Charge(rng.u64(0..3)) };
        drop(settle(&store, decided.receipt, change));
        let since = Instant::now();
        let needed = needed(&store, quota).await;
        // Redis counts lives in whole milliseconds, from a whole one, and tells what is left as well.
        let (fine, life) = (Duration::from_millis(3), life(&server, since));
        assert!(life + Duration::from_millis(1) > needed, "{quota}: {life:?} for {needed:?}");
        assert!(life.saturating_sub(since.elapsed()) <= needed + WINDOW + fine, "{quota}: {life:?} for {needed:?}");
        let now = expiry(&server);
        (stood, writes, before) = (stood + usize::from(now == before), writes + 1, now);
    }
    (stood, writes)
}

#[tokio::test]
async fn keys_keep_their_expiry_while_that_serves_and_never_live_longer_than_a_window_more() {
    let quotas: [fn(u64) -> Quota; 5] = [
        |limit| Quota::token_bucket(limit, WINDOW).burst(LIMIT),
        |limit| Quota::leaky_bucket(limit, WINDOW).queue(LIMIT / 2),
        |limit| Quota::fixed_window(limit.max(300), WINDOW),
        |limit| Quota::sliding_window(limit.max(300), WINDOW),
        |limit| Quota::concurrency(limit.max(300)).slot_ttl(WINDOW),
    ];
    for quota in quotas {
        let (stood, writes) = run(quota).await;
        assert!(writes > 100 && stood * 2 > writes, "{}: {stood} of {writes} expiries stood", quota(1));
    }
}

#[tokio::test]
async fn what_is_changed_after_the_clock_stepped_back_lives_until_its_state_is_over() {
    let long = Duration::from_secs(100);
    let windows = [Quota::fixed_window, Quota::sliding_window, Quota::sliding_log, Quota::token_bucket];
    let queue = Quota::leaky_bucket(10, long).queue(9);
    let (server, clock, store) = on_clock().await;
    for quota in windows.into_iter().map(|of| of(10, long)).chain([queue]) {
        for change in [Change::Refund(1), Change::Charge(1)] {
            let () = server.ask(&["FLUSHALL"]);
            clock.set(at(0));
            drop(decide(&store, quota, 5).await);
            clock.set(at(80_000_000));
            let decided = decide(&store, quota, 5).await;
            clock.set(at(30_000_000));
            let since = Instant::now();
            let applied = settle(&store, decided.receipt, change).wait().await.expect("the server is up");
            assert_eq!(applied[0].units, 1, "{quota}: {change:?}");
            let needed = needed(&store, quota).await;
            let life = life(&server, since);
            assert!(life >= needed && needed > Duration::from_secs(50), "{quota}: {change:?}, {life:?} for {needed:?}");
        }
    }
}

/// Redis takes no expiry of 0 ms.
#[tokio::test]
async fn counters_of_the_shortest_windows_are_written_too() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    let algorithms = [Quota::fixed_window, Quota::sliding_window, Quota::sliding_log, Quota::token_bucket];
    for window in [1, 10, 100, 999].map(Duration::from_micros) {
        let queue = Quota::leaky_bucket(2, window).queue(1);
        for quota in algorithms.into_iter().map(|of| of(2, window)).chain([queue]) {
            assert!(decide(&store, quota, 1).await.decision.is_allowed(), "{quota} alone");
            let both = [check("one", quota, 1), check("other", quota, 1)];
            assert!(super::stores::decide(&store, &both).await.decision.is_allowed(), "{quota}");
        }
    }
}

/// Their units are below 2^52 parts, but the time until all of them are back at one a window may be longer than doubles
/// count exactly in microseconds.
#[tokio::test]
async fn units_of_the_largest_limit_can_be_refunded_after_it_was_lowered_to_one() {
    let (server, mut rng) = (RedisServer::start(), Rng::with_seed(1));
    let store = patient_store(&server).await;
    for window in (0..300).map(|_| Duration::from_millis(rng.u64(60_001..1 << 41))).collect::<Vec<_>>() {
        let most = ((1 << 52) - 1) / 2 / u64::try_from(window.as_millis()).expect("within the bounds");
        let large = (1..=most).rev().find_map(|limit| Quota::try_token_bucket(limit, window).ok());
        let (large, one) = (large.expect("a limit of 1"), Quota::token_bucket(1, window));
        assert!(decide(&store, large, large.limit()).await.decision.is_allowed());
        let charge = Change::Charge(rng.u64(1..=large.limit()));
        adjust(&store, "only", large, charge).await;
        let units = rng.u64(1..=large.limit().min(4));
        assert_eq!(adjust(&store, "only", one, Change::Refund(units)).await.units, units, "{large}: {charge:?}");
        assert!(expiry(&server) > 0, "{large}: the key expires");
        adjust(&store, "only", one, Change::Reset).await;
    }
}
