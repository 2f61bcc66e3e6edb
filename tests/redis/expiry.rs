//! How long keys live: as long as their state matters, and at most a window longer.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tollgate::store::{Ask, Change, Receipt, Settlement, Store, StoreDecision};
use tollgate::test_util::ManualClock;
use tollgate::{Outcome, Quota, RedisStore};

use super::stores::patient_store;
use crate::support::checks::{check, counter};
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
    store.decide(&[check("only", quota, cost)], Ask::default()).wait().await.expect("the server is up")
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
        drop(store.settle(decided.receipt, &[Settlement::new(0, change)]));
        let since = Instant::now();
        let needed = decide(&store, quota, 0).await.decision.outcomes()[0].reset_after();
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
async fn slots_are_joined_released_and_renewed_in_place_by_the_time_of_the_server() {
    let server = RedisServer::start();
    let (store, quota) = (patient_store(&server).await, Quota::concurrency(9).slot_ttl(Duration::from_secs(16)));
    let size = || server.ask::<u64>(&["STRLEN", &server.keys()[0]]);
    let settle = async |decided: &StoreDecision, change| {
        let receipt = Receipt::new(decided.receipt.store(), decided.receipt.items().iter().cloned());
        let applied = store.settle(receipt, &[Settlement::new(0, change)]).wait().await.expect("the server is up");
        (applied[0].units, applied[0].outcome.as_ref().map(Outcome::remaining))
    };
    let first = decide(&store, quota, 2).await;
    let written = expiry(&server);
    let joined = decide(&store, quota, 3).await;
    assert_eq!((size(), expiry(&server)), (11, written), "it is the same cohort");
    assert_eq!(first.receipt.items()[0].stamp, joined.receipt.items()[0].stamp);
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let second = decide(&store, quota, 2).await;
    let later = expiry(&server);
    assert!(size() == 22 && later > written, "a new cohort");
    assert_eq!(settle(&first, Change::Refund(2)).await, (2, Some(4)));
    assert_eq!(settle(&second, Change::Refund(1)).await, (1, Some(5)));
    assert_eq!((size(), expiry(&server)), (22, later), "a release only lowers a count");
    assert_eq!(settle(&joined, Change::Renew(3)).await, (3, Some(5)));
    // It is written anew, in whole milliseconds from now.
    assert!(size() == 11 && (expiry(&server) - later).abs() <= 2, "the first cohort is empty, and the second has all");
    assert_eq!(settle(&joined, Change::Refund(3)).await, (0, Some(5)), "its slots have another stamp");
}

#[tokio::test]
async fn a_limit_lowered_under_live_state_lengthens_its_life() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    drop(decide(&store, Quota::token_bucket(1_000, WINDOW), 500).await);
    let since = Instant::now();
    let needed =
        decide(&store, Quota::token_bucket(600, WINDOW).burst(1_000), 1).await.decision.outcomes()[0].reset_after();
    assert!(life(&server, since) >= needed && needed > Duration::from_millis(1_500), "{needed:?}");
    store
        .adjust(&counter("only", Quota::token_bucket(2, WINDOW).burst(1_000)), Change::Charge(1))
        .wait()
        .await
        .expect("up");
    let needed = Duration::from_secs(450);
    assert!(life(&server, since) >= needed, "501 units at one a second");
}

#[tokio::test]
async fn what_is_changed_after_the_clock_stepped_back_lives_until_its_state_is_over() {
    let long = Duration::from_secs(100);
    let windows = [Quota::fixed_window, Quota::sliding_window, Quota::sliding_log, Quota::token_bucket];
    let queue = Quota::leaky_bucket(10, long).queue(9);
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let settings = RedisStore::builder().without_deny_cache().clock(clock.clone());
    let store = settings.timeout(Duration::from_secs(10)).connect(&server.url()).await.expect("it was started");
    for quota in windows.into_iter().map(|of| of(10, long)).chain([queue]) {
        for change in [Change::Refund(1), Change::Charge(1)] {
            let () = server.ask(&["FLUSHALL"]);
            clock.set(at(0));
            drop(decide(&store, quota, 5).await);
            clock.set(at(80_000_000));
            let decided = decide(&store, quota, 5).await;
            clock.set(at(30_000_000));
            let since = Instant::now();
            let settling = store.settle(decided.receipt, &[Settlement::new(0, change)]);
            assert_eq!(settling.wait().await.expect("the server is up")[0].units, 1, "{quota}: {change:?}");
            let needed = decide(&store, quota, 0).await.decision.outcomes()[0].reset_after();
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
            let decided = store.decide(&both, Ask::default()).wait().await.expect("the server is up");
            assert!(decided.decision.is_allowed(), "{quota}");
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
        store.adjust(&counter("only", large), charge).wait().await.expect("the server is up");
        let units = rng.u64(1..=large.limit().min(4));
        let refunded = store.adjust(&counter("only", one), Change::Refund(units)).wait().await;
        assert_eq!(refunded.expect("the server is up").units, units, "{large}: {charge:?}");
        assert!(expiry(&server) > 0, "{large}: the key expires");
        store.adjust(&counter("only", one), Change::Reset).wait().await.expect("the server is up");
    }
}
