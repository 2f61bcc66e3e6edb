//! What requests leave in Redis: what was there before if they are refused, and nothing for ever.

use std::time::Duration;

use fastrand::Rng;
use tollgate::store::{Ask, Change, Check, Settlement, Store, StoreDecision};
use tollgate::test_util::ManualClock;
use tollgate::{Outcome, Quota, RedisStore};

use crate::support::checks::{check, counter};
use crate::support::server::RedisServer;
use crate::support::slow::many;
use crate::support::time::at;

const S: u64 = 1_000_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// Each algorithm, the leaky bucket in both kinds: these share a state.
const QUOTAS: [Quota; 7] = [
    Quota::fixed_window(5, HOUR),
    Quota::sliding_log(5, HOUR),
    Quota::sliding_window(5, HOUR),
    Quota::token_bucket(5, HOUR).burst(7),
    Quota::leaky_bucket(5, HOUR),
    Quota::leaky_bucket(5, HOUR).queue(3),
    Quota::concurrency(5),
];

async fn start() -> (RedisServer, ManualClock, RedisStore) {
    let (clock, server) = (ManualClock::new(), RedisServer::start());
    let settings = RedisStore::builder().without_deny_cache().clock(clock.clone()).timeout(Duration::from_secs(10));
    let store = settings.connect(&server.url()).await.expect("the server was started");
    (server, clock, store)
}

async fn decide(store: &RedisStore, checks: &[Check]) -> StoreDecision {
    store.decide(checks, Ask::default()).wait().await.expect("the server answers")
}

#[tokio::test]
async fn all_algorithms_of_a_request_take_their_units_or_none_does() {
    let (server, _, store) = start().await;
    let all = |cost: u64| -> Vec<Check> { QUOTAS[..5].iter().map(|&quota| check("all", quota, cost)).collect() };
    assert!(decide(&store, &all(1)).await.decision.is_allowed());
    let kept = || -> Vec<(Vec<u8>, i64)> {
        server.keys().iter().map(|key| (server.ask(&["GET", key]), server.ask(&["PEXPIRETIME", key]))).collect()
    };
    let before = kept();
    assert_eq!(before.len(), 5);
    for refusing in &QUOTAS[..5] {
        for place in 0..=4 {
            // The refusing check stands first, last, and in between.
            let mut checks: Vec<Check> = all(1).into_iter().take(4).collect();
            checks.retain(|check| check.counter.quota() != refusing);
            checks.insert(place.min(checks.len()), check("all", *refusing, 1).floor(u64::MAX));
            let decision = decide(&store, &checks).await.decision;
            assert!(!decision.is_allowed() && decision.denied_by().count() == 1, "{checks:?}: {decision:?}");
        }
    }
    assert_eq!(kept(), before, "no value and no expiry has changed");
    let left = decide(&store, &all(0)).await.decision;
    assert_eq!(left.outcomes().iter().map(Outcome::remaining).collect::<Vec<_>>(), [4, 4, 4, 6, 0]);
}

#[tokio::test]
async fn every_key_expires_whatever_was_done_to_it() {
    let ((server, clock, store), mut rng) = (start().await, Rng::with_seed(0x0074_746c));
    let mut now = 1_000_000 * S;
    for step in 0..many([300, 1_500]) {
        now = match rng.u32(..6) {
            0 => now + rng.u64(..7_200 * S),
            1 => now - rng.u64(..600 * S),
            2 => now + rng.u64(..3),
            _ => now,
        };
        clock.set(at(now));
        let key = ["a", "b", "c"][rng.usize(..3)];
        let quota = QUOTAS[rng.usize(..QUOTAS.len())];
        let units = [0, 1, 2, 9, u64::MAX][rng.usize(..5)];
        let change = if rng.bool() { Change::Refund(units) } else { Change::Charge(units) };
        if rng.u32(..5) == 0 {
            let change = if rng.bool() { change } else { Change::Reset };
            drop(store.adjust(&counter(key, quota), change).wait().await.expect("the server answers"));
        } else {
            let other = QUOTAS[rng.usize(..QUOTAS.len())];
            let decided = decide(&store, &[check(key, quota, rng.u64(..4)), check(key, other, 1)]).await;
            if rng.bool() {
                let settling = store.settle(decided.receipt, &[Settlement::new(0, change)]).wait();
                settling.await.expect("the server answers");
            }
        }
        if step % 5 == 0 {
            server.assert_every_key_expires();
            assert!(server.keys().len() <= 18, "step {step}: no other keys");
        }
    }
}
