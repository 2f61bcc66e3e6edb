//! Random traces: a store with a cache decides as one without.

use std::time::Duration;

use fastrand::Rng;
use tollgate::policy::Algorithm;
use tollgate::store::{
    Ask, AskMode, Change, Check, DenyCache, MaybeFuture, Receipt, Settlement, Settles, Store, StoreDecision,
};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, MemoryStore, Quota, Source};

use super::rig::EACH;
use crate::support::checks::{check, counter};
use crate::support::slow::many;
use crate::support::time::{at, memory};

const TRACES: [u64; 2] = [60, 200];
const STEPS: usize = 300;

/// Ticks of a millisecond; shares that are no whole numbers; spacing without a queue.
const MORE: [Quota; 7] = [
    Quota::token_bucket(7, Duration::from_millis(61_003)),
    Quota::sliding_window(9, Duration::from_millis(60_001)),
    Quota::sliding_log(5, Duration::from_secs(61)),
    Quota::fixed_window(3, Duration::from_secs(61)),
    Quota::leaky_bucket(7, Duration::from_secs(61)).queue(5),
    Quota::leaky_bucket(3, Duration::from_millis(700)),
    Quota::token_bucket(3, Duration::from_millis(100)).burst(10),
];

/// The same trace on a store with a cache and on one without.
struct Pair {
    clock: ManualClock,
    now: u64,
    plain: MemoryStore,
    cached: DenyCache<MemoryStore>,
    receipts: Vec<(Receipt, Receipt)>,
}

fn ready<T>(answer: MaybeFuture<Result<T, tollgate::Error>>) -> T {
    let MaybeFuture::Ready(answer) = answer else { panic!("memory answers at once") };
    answer.expect("memory does not fail")
}

impl Pair {
    /// The cap is out of the way, so that refusals hold to their very end.
    fn new() -> Self {
        let clock = ManualClock::new();
        let memory = || memory(&clock);
        let cached = DenyCache::builder(memory()).max_ttl(Duration::from_secs(3_600)).clock(clock.clone()).build();
        Self { now: 0, plain: memory(), cached, receipts: Vec::new(), clock }
    }

    fn pass(&mut self, rng: &mut Rng, quota: Quota) {
        let slot = u64::try_from(quota.window().as_micros()).expect("it is short") / quota.limit();
        self.now += match rng.u8(..12) {
            0..6 => 0,
            6 => rng.u64(..3),
            7 => rng.u64(..1_500),
            8..11 => rng.u64(..=slot),
            _ => rng.u64(..3 * slot * quota.limit()),
        };
        self.clock.set(at(self.now));
    }

    /// Decides on both; returns whether the cache answered.
    fn decide(&mut self, checks: &[Check]) -> bool {
        let (plain, cached): (StoreDecision, StoreDecision) =
            (ready(self.plain.decide(checks, Ask::default())), ready(self.cached.decide(checks, Ask::default())));
        let (real, told) = (&plain.decision, &cached.decision);
        assert_eq!(told.is_allowed(), real.is_allowed(), "{checks:?}: {told:?} instead of {real:?}");
        let answered = told.source() == Source::DenyCache;
        if answered {
            self.assert_true(checks, told, real);
        } else {
            assert_eq!(told.outcomes(), real.outcomes(), "{checks:?}");
        }
        if real.is_allowed() {
            self.receipts.push((plain.receipt, cached.receipt));
        }
        answered
    }

    /// Looks as before a lookup; returns whether the cache answered, which then refuses what the store would refuse.
    fn look(&mut self, checks: &[Check]) -> bool {
        let of_cost = |cost| -> Vec<_> { checks.iter().map(|check| check.clone().cost(cost)).collect() };
        let told = ready(self.cached.decide(&of_cost(0), Ask::default().mode(AskMode::Cached))).decision;
        let answered = told.source() == Source::DenyCache;
        if answered {
            let units = of_cost(1);
            let real = ready(self.plain.decide(&units, Ask::default())).decision;
            assert!(!told.is_allowed() && !real.is_allowed(), "{checks:?}: {told:?} instead of {real:?}");
            self.assert_true(&units, &told, &real);
        } else {
            let real = ready(self.plain.decide(&of_cost(0), Ask::default())).decision;
            assert_eq!(told.outcomes(), real.outcomes(), "{checks:?}");
        }
        answered
    }

    /// Checks that a refusal from the cache sends nobody back earlier than the store would for this very cost.
    #[track_caller]
    fn assert_true(&self, checks: &[Check], told: &Decision, real: &Decision) {
        for ((told, real), check) in told.outcomes().iter().zip(real.outcomes()).zip(checks) {
            assert!(told.is_allowed() || !real.is_allowed(), "{check:?}: {told:?} instead of {real:?}");
            assert!(told.remaining() <= real.remaining(), "{check:?}: {told:?} instead of {real:?}");
            if !told.is_allowed() {
                let (told, real) = (told.retry_after(), real.retry_after());
                // A store counts from the tick that has begun.
                let millis = check.counter.quota().window() > Duration::from_secs(60);
                let begun = if millis { Duration::from_micros(self.now % 1_000) } else { Duration::ZERO };
                let enough = real.map(|real| real.saturating_sub(begun));
                let latest = real.map(|real| real + Duration::from_millis(2));
                assert!(enough <= told && told <= latest, "{check:?}: {told:?} instead of {real:?}");
                assert_eq!(told.is_none(), real.is_none(), "{check:?}: {told:?} instead of {real:?}");
            }
        }
    }

    /// A refund or a charge through the store.
    fn change(&mut self, rng: &mut Rng, quota: Quota) {
        let units = rng.u64(1..3);
        let change = if rng.bool() { Change::Refund(units) } else { Change::Charge(units) };
        if rng.bool() && !self.receipts.is_empty() {
            let (plain, cached) = self.receipts.swap_remove(rng.usize(..self.receipts.len()));
            let changes = [Settlement::new(0, change)];
            drop(self.plain.settle(plain, &changes));
            drop(self.cached.settle(cached, &changes));
        } else if rng.u8(..4) > 0 {
            ready(self.plain.adjust(&counter("a", quota), change));
            ready(self.cached.adjust(&counter("a", quota), change));
        } else {
            ready(self.plain.adjust(&counter("b", quota), Change::Reset));
            ready(self.cached.adjust(&counter("b", quota), Change::Reset));
        }
    }
}

fn one(rng: &mut Rng, key: &str, quota: Quota) -> Check {
    let most = quota.capacity();
    let cost = match rng.u8(..10) {
        0 => 0,
        1..6 => 1,
        6..9 => rng.u64(1..=most),
        _ => most + rng.u64(..3),
    };
    let floor = if rng.u8(..4) == 0 { rng.u64(..=most) } else { 0 };
    let settles = if rng.u8(..20) == 0 { Settles::ByOutcome } else { Settles::AsTaken };
    check(key, quota, cost).floor(floor).settles(settles)
}

#[test]
fn a_random_trace_is_decided_alike_with_and_without_a_cache_on_every_algorithm() {
    let plain = |algorithm: &Algorithm| Quota::try_new(*algorithm, 6, Duration::from_secs(2)).ok();
    let mut quotas: Vec<Quota> = EACH.into_iter().chain(MORE).chain(Algorithm::ALL.iter().filter_map(plain)).collect();
    // Refusals of slots are not cached, so they only come beside others.
    quotas.sort_by_key(|quota| quota.algorithm() == Algorithm::Concurrency);
    let cached = quotas.iter().filter(|quota| quota.algorithm() != Algorithm::Concurrency).count();
    assert_eq!(cached, quotas.len() - 1);
    for (seed, index) in (0..many(TRACES)).zip((0..cached).cycle()) {
        let (mut rng, mut pair, quota) = (Rng::with_seed(seed), Pair::new(), quotas[index]);
        let mut answered = 0;
        for _ in 0..STEPS {
            pair.pass(&mut rng, quota);
            if seed % 2 == 0 && rng.u8(..10) == 0 {
                pair.change(&mut rng, quota);
            }
            let other = quotas[rng.usize(..quotas.len())];
            let request = match rng.u8(..4) {
                0..2 => vec![one(&mut rng, "a", quota)],
                2 => vec![one(&mut rng, "a", quota), one(&mut rng, "b", other)],
                _ => vec![one(&mut rng, "a", quota), one(&mut rng, "a", quota), one(&mut rng, "c", other)],
            };
            let looks = rng.u8(..6) == 0 && request.iter().all(|check| check.cost > 0);
            answered += usize::from(if looks { pair.look(&request) } else { pair.decide(&request) });
        }
        assert!(answered > 5, "{quota}, seed {seed}: {answered} of {STEPS} were answered");
    }
}
