//! Random traces: a store with a cache decides as one without, and most refusals come from the cache.

use std::time::Duration;

use fastrand::Rng;
use tollgate::policy::Algorithm;
use tollgate::store::{
    Ask, AskMode, BanCheck, Change, Check, DenyCache, MaybeFuture, Mode, Receipt, Settlement, Settles, Store,
    StoreDecision,
};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, MemoryStore, Quota, Source};

use super::rig::{EACH, MS, S};
use crate::support::checks::{check, counter};
use crate::support::slow::many;
use crate::support::time::{at, memory};

const TRACES: [u64; 2] = [120, 400];
const STEPS: usize = 300;

/// Ticks of a millisecond; units of less than a tick; shares that are no whole numbers; spacing without a queue.
const MORE: [Quota; 9] = [
    Quota::token_bucket(7, Duration::from_millis(61_003)),
    Quota::sliding_window(9, Duration::from_millis(60_001)),
    Quota::sliding_log(5, Duration::from_secs(61)),
    Quota::fixed_window(3, Duration::from_secs(61)),
    Quota::leaky_bucket(7, Duration::from_secs(61)).queue(5),
    Quota::leaky_bucket(3, Duration::from_millis(700)),
    Quota::token_bucket(3, Duration::from_millis(100)).burst(10),
    Quota::token_bucket(1_000_000_000_000, Duration::from_secs(366 * 86_400)),
    Quota::token_bucket(1_000_000_000_000, Duration::from_secs(60)),
];

/// The same trace on a store with a cache and on one without.
struct Pair {
    clock: ManualClock,
    now: u64,
    plain: MemoryStore,
    cached: DenyCache<MemoryStore>,
    receipts: Vec<(Receipt, Receipt)>,
    ban: Option<BanCheck>,
    /// Requests that the store would refuse, and those of them that the cache refused.
    refused: u64,
    answered: u64,
}

fn ready<T>(answer: MaybeFuture<Result<T, tollgate::Error>>) -> T {
    let MaybeFuture::Ready(answer) = answer else { panic!("memory answers at once") };
    answer.expect("memory does not fail")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("it is short")
}

impl Pair {
    fn new(cap: u64, ban: Option<BanCheck>) -> Self {
        let clock = ManualClock::new();
        let settings = DenyCache::builder(memory(&clock)).max_ttl(Duration::from_micros(cap));
        let cached = settings.clock(clock.clone()).build();
        let (plain, receipts) = (memory(&clock), Vec::new());
        Self { clock, now: 0, plain, cached, receipts, ban, refused: 0, answered: 0 }
    }

    fn pass(&mut self, rng: &mut Rng, quota: Quota) {
        let slot = (micros(quota.window()) / quota.limit()).max(1);
        self.now += match rng.u8(..12) {
            0..6 => 0,
            6 => rng.u64(..3),
            7 => rng.u64(..1_500),
            8..11 => rng.u64(..=slot),
            _ => rng.u64(..3 * micros(quota.window())),
        };
        self.clock.set(at(self.now));
    }

    /// Decides on both, and checks that they decide alike and that what is known does not reach the store.
    fn decide(&mut self, checks: &[Check]) {
        let (plain, cached): (StoreDecision, StoreDecision) =
            (ready(self.plain.decide(checks, Ask::default())), ready(self.cached.decide(checks, Ask::default())));
        let (real, told) = (&plain.decision, &cached.decision);
        assert_eq!(told.is_allowed(), real.is_allowed(), "{checks:?}: {told:?} instead of {real:?}");
        if told.source() == Source::DenyCache {
            self.answered += 1;
            self.assert_true(checks, told, real);
        } else {
            assert_eq!(told.outcomes(), real.outcomes(), "{checks:?}");
        }
        self.refused += u64::from(!real.is_allowed());
        if real.is_allowed() {
            self.receipts.push((plain.receipt, cached.receipt));
        } else if told.source() == Source::DenyCache {
            let applied = ready(self.cached.settle(cached.receipt, &[Settlement::new(0, Change::Refund(1))]));
            assert_eq!(applied.len(), 1, "the result of each change");
        }
    }

    /// Looks as before a lookup: what the cache answers is what the store would refuse a unit of each for.
    fn look(&mut self, checks: &[Check]) {
        let of_cost = |cost| -> Vec<_> { checks.iter().map(|check| check.clone().cost(cost)).collect() };
        let told = ready(self.cached.decide(&of_cost(0), Ask::default().mode(AskMode::Cached))).decision;
        if told.source() == Source::DenyCache {
            (self.refused, self.answered) = (self.refused + 1, self.answered + 1);
            let units = of_cost(1);
            let real = ready(self.plain.decide(&units, Ask::default())).decision;
            assert!(!told.is_allowed() && !real.is_allowed(), "{checks:?}: {told:?} instead of {real:?}");
            self.assert_true(&units, &told, &real);
        } else {
            let real = ready(self.plain.decide(&of_cost(0), Ask::default())).decision;
            assert_eq!(told.outcomes(), real.outcomes(), "{checks:?}");
        }
    }

    /// Checks that a refusal from the cache sends nobody back earlier than the store would for this very cost.
    #[track_caller]
    fn assert_true(&self, checks: &[Check], told: &Decision, real: &Decision) {
        for ((told, real), check) in told.outcomes().iter().zip(real.outcomes()).zip(checks) {
            assert!(told.is_allowed() || !real.is_allowed(), "{check:?}: {told:?} instead of {real:?}");
            assert!(!told.is_banned() || real.is_banned(), "{check:?}: {told:?} instead of {real:?}");
            assert!(told.remaining() <= real.remaining(), "{check:?}: {told:?} instead of {real:?}");
            if !told.is_allowed() {
                let (told, real) = (told.retry_after(), real.retry_after());
                // A store counts from the tick that has begun.
                let millis = check.counter.quota().window() > Duration::from_secs(60) || check.ban.is_some();
                let begun = if millis { Duration::from_micros(self.now % 1_000) } else { Duration::ZERO };
                let enough = real.map(|real| real.saturating_sub(begun));
                let latest = real.map(|real| real + Duration::from_millis(2));
                assert!(enough <= told && told <= latest, "{check:?}: {told:?} instead of {real:?}");
                assert_eq!(told.is_none(), real.is_none(), "{check:?}: {told:?} instead of {real:?}");
            }
        }
    }

    /// A change through the store, of what was taken or of a counter.
    fn change(&mut self, rng: &mut Rng, quota: Quota) {
        let units = rng.u64(1..3);
        let change = match (self.ban.as_ref(), rng.u8(..4)) {
            (Some(ban), 0) => Change::Strike(ban.ban),
            (_, 0 | 1) => Change::Refund(units),
            _ => Change::Charge(units),
        };
        if rng.bool() && !self.receipts.is_empty() {
            let (plain, cached) = self.receipts.swap_remove(rng.usize(..self.receipts.len()));
            let changes = [Settlement::new(0, change)];
            drop(self.plain.settle(plain, &changes));
            drop(self.cached.settle(cached, &changes));
            return;
        }
        let (key, change) = match rng.u8(..6) {
            0 => ("b", Change::Reset),
            1 => ("a", Change::Lift),
            _ => ("a", change),
        };
        ready(self.plain.adjust(&counter(key, quota), change));
        ready(self.cached.adjust(&counter(key, quota), change));
    }

    fn check(&self, rng: &mut Rng, key: &str, quota: Quota) -> Check {
        let most = quota.capacity();
        let cost = match rng.u8(..10) {
            0 => 0,
            1..6 => 1,
            6..9 => rng.u64(1..=most),
            _ => most + rng.u64(..3),
        };
        let floor = if rng.u8(..4) == 0 { rng.u64(..=most) } else { 0 };
        let settles = if rng.u8(..20) == 0 { Settles::ByOutcome } else { Settles::AsTaken };
        let mode = if rng.u8(..20) == 0 { Mode::Shadow } else { Mode::Enforce };
        let check = check(key, quota, cost).floor(floor).settles(settles).mode(mode);
        match &self.ban {
            Some(ban) if key == "a" => check.ban(ban.clone()),
            _ => check,
        }
    }
}

/// A ban of one key, if any: while that is served, no strikes of others are counted.
fn any_ban(rng: &mut Rng) -> Option<BanCheck> {
    let time = Duration::from_millis([1, 30, 700, 5_000][rng.usize(..4)]);
    let ban = Ban::new(rng.u32(1..5), Duration::from_secs(60), time);
    let ban = BanCheck::new(if rng.bool() { ban.backoff(2.0, Duration::from_secs(20)) } else { ban });
    let ban = if rng.bool() { ban } else { ban.without_strikes() };
    (rng.u8(..3) == 0).then_some(ban)
}

#[test]
fn a_random_trace_is_decided_alike_with_and_without_a_cache_on_every_algorithm() {
    let plain = |algorithm: &Algorithm| Quota::try_new(*algorithm, 6, Duration::from_secs(2)).ok();
    let mut quotas: Vec<Quota> = EACH.into_iter().chain(MORE).chain(Algorithm::ALL.iter().filter_map(plain)).collect();
    // Refusals of slots are not cached, so they only come beside others.
    quotas.sort_by_key(|quota| quota.algorithm() == Algorithm::Concurrency);
    let cached = quotas.iter().filter(|quota| quota.algorithm() != Algorithm::Concurrency).count();
    assert_eq!(cached, quotas.len() - 1);
    let (mut refused, mut answered) = (0, 0);
    for (seed, index) in (0..many(TRACES)).zip((0..cached).cycle()) {
        let mut rng = Rng::with_seed(seed);
        let cap = [3_600 * S, 3_600 * S, S, 20 * MS][rng.usize(..4)];
        let (mut pair, quota) = (Pair::new(cap, any_ban(&mut rng)), quotas[index]);
        println!("seed {seed}: {quota}, {cap} us, {:?}", pair.ban);
        let mut last = Vec::new();
        for _ in 0..STEPS {
            pair.pass(&mut rng, quota);
            if seed % 2 == 0 && rng.u8(..10) == 0 {
                pair.change(&mut rng, quota);
            }
            let other = quotas[rng.usize(..quotas.len())];
            let request = match rng.u8(..6) {
                0 | 1 if !last.is_empty() => last,
                0..=3 => vec![pair.check(&mut rng, "a", quota)],
                4 => vec![pair.check(&mut rng, "a", quota), pair.check(&mut rng, "b", other)],
                _ => {
                    ["a", "a", "c"].map(|key| pair.check(&mut rng, key, if key == "c" { other } else { quota })).into()
                }
            };
            // What is refused for a unit of each is a strike, if there is a ban.
            let looks = rng.u8(..6) == 0 && pair.ban.is_none() && request.iter().all(|check| check.cost > 0);
            if looks {
                pair.look(&request);
            } else {
                pair.decide(&request);
            }
            last = request;
        }
        assert_eq!(pair.cached.denied_from_cache(), pair.answered);
        (refused, answered) = (refused + pair.refused, answered + pair.answered);
    }
    println!("{answered} of {refused} are refused by the cache");
    assert!(answered * 100 > refused * 23, "only {answered} of {refused} are refused by the cache");
}
