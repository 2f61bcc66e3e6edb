//! What a refusal leaves in Redis: what was there before, and not a millisecond more.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tollgate::store::{Ask, Change, Check, Mode, Settlement, Store, StoreDecision};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Outcome, Quota, RedisStore};

use crate::support::checks::{check, counter};
use crate::support::server::RedisServer;
use crate::support::slow::many;
use crate::support::time::at;

const S: u64 = 1_000_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// Each algorithm, the leaky bucket in both kinds: these share a state.
const QUOTAS: [Quota; 6] = [
    Quota::fixed_window(5, HOUR),
    Quota::sliding_log(5, HOUR),
    Quota::sliding_window(5, HOUR),
    Quota::token_bucket(5, HOUR).burst(7),
    Quota::leaky_bucket(5, HOUR),
    Quota::leaky_bucket(5, HOUR).queue(3),
];

struct Redis {
    clock: ManualClock,
    store: RedisStore,
    server: RedisServer,
}

/// A key, its value, the moment it expires, and what it has left, in milliseconds.
type Kept = (String, Vec<u8>, i64, i64);

impl Redis {
    async fn start() -> Self {
        let (clock, server) = (ManualClock::new(), RedisServer::start());
        let settings = RedisStore::builder().without_deny_cache().clock(clock.clone()).timeout(Duration::from_secs(10));
        let store = settings.connect(&server.url()).await.expect("the server was started");
        Self { clock, store, server }
    }

    async fn decide(&self, checks: &[Check], _: Ask) -> Decision {
        self.decided(checks).await.decision
    }

    async fn decided(&self, checks: &[Check]) -> StoreDecision {
        self.store.decide(checks, Ask::default()).wait().await.expect("the server answers")
    }

    fn kept(&self) -> Vec<Kept> {
        let of = |key: String| {
            let (value, expiry) = (self.server.ask(&["GET", &key]), self.server.ask(&["PEXPIRETIME", &key]));
            let ttl = self.server.ask(&["PTTL", &key]);
            (key, value, expiry, ttl)
        };
        self.server.keys().into_iter().map(of).collect()
    }

    #[track_caller]
    fn assert_every_key_expires(&self) {
        let endless: Vec<Kept> = self.kept().into_iter().filter(|(_, _, expiry, _)| *expiry == -1).collect();
        assert_eq!(endless, []);
    }

    /// Checks that only time has passed: no value and no expiry has changed.
    #[track_caller]
    fn assert_unchanged(&self, before: &[Kept], since: Instant) {
        let after = self.kept();
        let elapsed = i64::try_from(since.elapsed().as_millis()).expect("no test lasts that long");
        let fixed = |kept: &[Kept]| -> Vec<_> {
            kept.iter().map(|(key, value, expiry, _)| (key.clone(), value.clone(), *expiry)).collect()
        };
        assert_eq!(fixed(&after), fixed(before));
        for ((key, .., now), (.., then)) in after.iter().zip(before) {
            assert!(then - now <= elapsed + 2 && now <= then, "{key}: {then} ms, then {now} ms");
        }
    }
}

#[tokio::test]
async fn a_refusal_changes_neither_a_value_nor_its_time_to_live() {
    let redis = Redis::start().await;
    for quota in QUOTAS {
        redis.clock.set(at(0));
        assert!(redis.decide(&[check("full", quota, quota.capacity())], Ask::default()).await.is_allowed(), "{quota}");
    }
    let (since, before) = (Instant::now(), redis.kept());
    assert_eq!(before.len(), 5, "both leaky buckets share a state");
    for now in [0, 1, 60 * S, 600 * S] {
        redis.clock.set(at(now));
        for quota in QUOTAS {
            for (cost, floor) in
                [(quota.capacity(), 0), (quota.capacity() + 1, 0), (u64::MAX, 0), (1, u64::MAX), (1, 6)]
            {
                let refused = redis.decide(&[check("full", quota, cost).floor(floor)], Ask::default()).await;
                assert!(!refused.is_allowed(), "{quota}: {cost} above {floor}");
            }
            assert!(redis.decide(&[check("full", quota, 0)], Ask::default()).await.is_allowed(), "{quota}: a look");
        }
    }
    redis.assert_unchanged(&before, since);
}

#[tokio::test]
async fn a_refusal_of_an_unknown_key_writes_nothing() {
    let redis = Redis::start().await;
    for quota in QUOTAS {
        assert!(
            !redis.decide(&[check("new", quota, quota.capacity() + 1)], Ask::default()).await.is_allowed(),
            "{quota}"
        );
        assert!(redis.decide(&[check("new", quota, 0)], Ask::default()).await.is_allowed(), "{quota}");
        let shadow = check("new", quota, u64::MAX).mode(Mode::Shadow);
        assert!(redis.decide(&[shadow], Ask::default()).await.is_allowed(), "{quota}");
    }
    assert_eq!(redis.kept(), []);
}

#[tokio::test]
async fn all_algorithms_of_a_request_take_their_units_or_none_does() {
    let redis = Redis::start().await;
    let all = |cost: u64| -> Vec<Check> { QUOTAS[..5].iter().map(|&quota| check("all", quota, cost)).collect() };
    assert!(redis.decide(&all(1), Ask::default()).await.is_allowed());
    let (since, before) = (Instant::now(), redis.kept());
    assert_eq!(before.len(), 5);
    for refusing in &QUOTAS[..5] {
        for place in 0..=4 {
            // The refusing check stands first, last, and in between.
            let mut checks: Vec<Check> =
                all(1).into_iter().filter(|check| *check.counter.quota() != QUOTAS[4]).collect();
            checks.retain(|check| check.counter.quota() != refusing);
            let refused = check("all", *refusing, 1).floor(u64::MAX);
            checks.insert(place.min(checks.len()), refused);
            let decision = redis.decide(&checks, Ask::default()).await;
            assert!(!decision.is_allowed(), "{checks:?}");
            assert_eq!(decision.denied_by().count(), 1, "{decision:?}");
        }
    }
    redis.assert_unchanged(&before, since);
    let left = redis.decide(&all(0), Ask::default()).await;
    let left: Vec<u64> = left.outcomes().iter().map(Outcome::remaining).collect();
    assert_eq!(left, [4, 4, 4, 6, 0]);
}

#[tokio::test]
async fn the_same_counter_twice_takes_both_or_none() {
    let redis = Redis::start().await;
    for quota in &QUOTAS[..4] {
        let pair = |first, second| [check("twice", *quota, first), check("twice", *quota, second)];
        assert!(redis.decide(&pair(2, 1), Ask::default()).await.is_allowed(), "{quota}");
        let (since, before) = (Instant::now(), redis.kept());
        assert!(!redis.decide(&pair(2, quota.capacity() - 4), Ask::default()).await.is_allowed(), "{quota}");
        redis.assert_unchanged(&before, since);
        assert!(redis.decide(&pair(1, quota.capacity() - 4), Ask::default()).await.is_allowed(), "{quota}");
    }
}

#[tokio::test]
async fn every_key_expires_whatever_was_done_to_it() {
    let (redis, seed) = (Redis::start().await, 0x0074_746c);
    let mut rng = Rng::with_seed(seed);
    let mut now = 1_000_000 * S;
    for step in 0..many([300, 1_500]) {
        now = match rng.u32(..6) {
            0 => now + rng.u64(..7_200 * S),
            1 => now - rng.u64(..600 * S),
            2 => now + rng.u64(..3),
            _ => now,
        };
        redis.clock.set(at(now));
        let key = ["a", "b", "c"][rng.usize(..3)];
        let quota = QUOTAS[rng.usize(..QUOTAS.len())];
        let units = [0, 1, 2, 9, u64::MAX][rng.usize(..5)];
        let change = if rng.bool() { Change::Refund(units) } else { Change::Charge(units) };
        match rng.u32(..10) {
            0 => drop(redis.store.adjust(&counter(key, quota), change).wait().await.expect("the server answers")),
            1 => {
                drop(redis.store.adjust(&counter(key, quota), Change::Reset).wait().await.expect("the server answers"));
            }
            _ => {
                let other = QUOTAS[rng.usize(..QUOTAS.len())];
                let decided = redis.decided(&[check(key, quota, rng.u64(..4)), check(key, other, 1)]).await;
                if rng.bool() {
                    drop(redis.store.settle(decided.receipt, &[Settlement::new(0, change)]));
                    // The connection keeps the order of what is sent: let it be sent.
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        if step % 5 == 0 {
            redis.assert_every_key_expires();
        }
        assert!(redis.server.keys().len() <= 15, "seed {seed}, step {step}: no other keys");
    }
}

#[tokio::test]
async fn a_key_lives_as_long_as_it_matters_and_at_most_a_window_longer() {
    let redis = Redis::start().await;
    let mut rng = Rng::with_seed(7);
    for quota in &QUOTAS[..5] {
        lives(&redis, *quota, &mut rng).await;
        redis.store.adjust(&counter("life", *quota), Change::Reset).wait().await.expect("the server answers");
    }
}

async fn lives(redis: &Redis, quota: Quota, rng: &mut Rng) {
    let mut now = 1_000_000 * S;
    for step in 0..60 {
        // Away from the end of a fixed window, whose keys live no longer than it.
        now += rng.u64(..3) * 600 * S;
        now -= now % (600 * S);
        redis.clock.set(at(now));
        let decision = redis.decide(&[check("life", quota, rng.u64(1..4))], Ask::default()).await;
        if !decision.is_allowed() {
            continue;
        }
        let reset_after = decision.outcomes()[0].reset_after();
        let [key] = &redis.server.keys()[..] else { panic!("one key") };
        let ttl = Duration::from_millis(redis.server.ask(&["PTTL", key]));
        let told = format!("step {step}: {quota} lives {ttl:?} and resets after {reset_after:?}");
        // Redis counts lives in whole milliseconds, from a whole one.
        let most = reset_after + HOUR + Duration::from_millis(2);
        assert!(ttl + Duration::from_secs(5) > reset_after && ttl <= most, "{told}");
    }
}
