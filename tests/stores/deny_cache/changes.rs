//! Changes, bans and looks beside cached refusals: nothing older is served, and waits are those of the store.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures::FutureExt;
use tokio::sync::Semaphore;
use tollgate::store::DenyCache;
use tollgate::store::{
    Ask, AskMode, BanCheck, Capabilities, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, Requirement,
    Settlement, Settles, Settling, Store, StoreDecision,
};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, Error, MemoryStore, Quota, Source};

use super::rig::{MS, Rig, S};
use crate::support::checks::{check, counter};
use crate::support::time::{at, memory};

const HOUR: Duration = Duration::from_secs(3_600);
const QUOTA: Quota = Quota::token_bucket(2, HOUR);

/// Invariant: no refusal that was decided before a refund is served after it.
#[test]
fn a_refusal_is_not_served_after_a_refund_that_was_made_while_the_clock_had_stepped_back() {
    let rig = Rig::new();
    rig.clock.set(at(10 * S));
    rig.refuse("ada", QUOTA);
    rig.clock.set(at(5 * S));
    drop(rig.store.adjust(&counter("ada", QUOTA), Change::Refund(1)));
    rig.clock.set(at(10 * S + 50 * MS));
    assert!(rig.plain(&[check("ada", QUOTA, 0)]).outcomes()[0].remaining() > 0, "the store has a unit");
    assert!(rig.asks(&[check("ada", QUOTA, 1)]).is_allowed());
}

/// A policy that has a ban no more: the store does not look at it.
#[test]
fn a_ban_that_the_policy_has_no_more_is_not_served() {
    let quota = Quota::fixed_window(100, HOUR);
    let rig = Rig::new();
    let ban = || BanCheck::new(Ban::new(1, HOUR, HOUR));
    // Refused, as it is too much: that bans.
    let _ = rig.asks(&[check("ada", quota, 101).ban(ban())]);
    let banned = rig.asks(&[check("ada", quota, 1).ban(ban())]);
    assert!(banned.is_banned());
    assert!(rig.remembers(&[check("ada", quota, 1).ban(ban())]).is_banned());
    // The policies were replaced: this one has no ban.
    assert!(rig.plain(&[check("ada", quota, 1)]).is_allowed());
    assert!(rig.asks(&[check("ada", quota, 1)]).is_allowed());
}

/// A banned client that alternates two costs.
#[test]
fn a_flood_of_a_banned_client_costs_the_store_nothing_whatever_the_costs() {
    let quota = Quota::fixed_window(100, HOUR);
    let rig = Rig::new();
    let ban = || BanCheck::new(Ban::new(1, HOUR, HOUR));
    let _ = rig.asks(&[check("ada", quota, 101).ban(ban())]);
    let before = rig.calls();
    for request in 0..100_u64 {
        let decision = rig.decide(&[check("ada", quota, 1 + request % 2).ban(ban())], Ask::default());
        assert!(decision.is_banned());
    }
    let calls = rig.calls() - before;
    assert!(calls <= 2, "{calls} calls for 100 requests of two costs");
}

/// A receipt of a cached refusal.
#[test]
fn a_settlement_returns_the_result_of_each_change() {
    let rig = Rig::new();
    rig.refuse("ada", QUOTA);
    let refused = rig.decided(&[check("ada", QUOTA, 1)]);
    assert_eq!(refused.decision.source(), Source::DenyCache);
    let applied = rig.store.settle(refused.receipt, &[Settlement::new(0, Change::Refund(1))]);
    let applied = applied.wait().now_or_never().expect("at once").expect("memory does not fail");
    assert_eq!(applied.len(), 1, "the result of each");
}

/// A store whose refunds arrive when they are let.
struct Late {
    inner: MemoryStore,
    gate: Arc<Semaphore>,
}

impl Store for Late {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        self.inner.decide(checks, ask)
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let (inner, gate, changes) = (self.inner.clone(), Arc::clone(&self.gate), changes.to_vec());
        MaybeFuture::pending(async move {
            drop(gate.acquire().await);
            inner.settle(receipt, &changes).wait().await
        })
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        self.inner.adjust(counter, change)
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        self.inner.capabilities(requirements)
    }
}

/// A refund through this store takes effect at once; one that nobody waits for and that takes
/// longer than 100 ms takes effect within the cap. This one is waited for.
#[test]
fn a_refund_that_is_waited_for_takes_effect_at_once_however_long_it_takes() {
    let clock = ManualClock::new();
    let gate = Arc::new(Semaphore::new(0));
    let late = Late { inner: memory(&clock), gate: Arc::clone(&gate) };
    let store = DenyCache::builder(late).clock(clock.clone()).build();
    let ask = |cost| {
        let decided = store.decide(from_ref(&check("ada", QUOTA, cost)), Ask::default());
        decided.wait().now_or_never().expect("at once").expect("memory does not fail")
    };
    let receipt = ask(2).receipt;
    let settling = store.settle(receipt, &[Settlement::new(0, Change::Refund(2))]);
    let mut settling = Box::pin(settling.wait());
    assert!(settling.as_mut().now_or_never().is_none(), "it is on its way");
    clock.set(at(150 * MS));
    assert!(!ask(1).decision.is_allowed(), "it has not arrived");
    clock.set(at(300 * MS));
    gate.add_permits(1);
    let applied = settling.now_or_never().expect("it arrives").expect("memory does not fail");
    assert_eq!(applied[0].units, 2);
    let after = ask(1).decision;
    assert!(after.is_allowed(), "the refund was made and waited for: {after:?}");
}

/// A request of one to three keys.
fn request(rng: &mut Rng, step: usize, quota: Quota, bans: &[Option<Ban>], counts: bool) -> Vec<Check> {
    let mut one = |key: usize| {
        let cost = [0, 1, 1, 1, 2, 3, 5][rng.usize(..7)];
        let mut one = check(["a", "b", "c"][key], quota, cost);
        if rng.u8(..6) == 0 {
            one = one.floor(rng.u64(0..3));
        }
        if rng.u8(..10) == 0 {
            one = one.settles(Settles::ByOutcome);
        }
        match bans[key] {
            Some(ban) if counts => one.ban(BanCheck::new(ban)),
            Some(ban) => one.ban(BanCheck::new(ban).without_strikes()),
            None => one,
        }
    };
    match step % 4 {
        0 => vec![one(0), one(1)],
        1 => vec![one(0), one(1), one(2)],
        _ => vec![one(0)],
    }
}

/// A decision with a cache is that without one, but for what remains and a wait of a tick.
fn assert_alike(told: &str, found: &Decision, real: &Decision) {
    let is_cached = found.source() == Source::DenyCache;
    assert_eq!(found.is_allowed(), real.is_allowed(), "{told}: {found:#?} instead of {real:#?}");
    if !is_cached {
        assert_eq!(found.outcomes(), real.outcomes(), "{told}");
    }
    for (found, real) in found.outcomes().iter().zip(real.outcomes()) {
        assert!(!found.is_banned() || real.is_banned(), "{told}: {found:#?} instead of {real:#?}");
        assert!(found.remaining() <= real.remaining(), "{told}: {found:#?} instead of {real:#?}");
        if is_cached && !found.is_allowed() {
            let near = Duration::from_millis(2);
            assert_eq!(found.retry_after().is_none(), real.retry_after().is_none(), "{told}");
            if let (Some(found), Some(real)) = (found.retry_after(), real.retry_after()) {
                assert!(found + near >= real && found <= real + near, "{told}: {found:?} instead of {real:?}");
            }
        }
    }
}

/// Random traces with bans: a store with a cache decides as one without.
#[test]
fn a_random_trace_with_bans_is_decided_alike_with_and_without_a_cache() {
    const MILLI: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);
    let quotas = [
        Quota::fixed_window(4, SECOND),
        Quota::token_bucket(4, 2 * SECOND),
        Quota::sliding_window(4, 61 * SECOND),
        Quota::sliding_log(4, SECOND),
        Quota::leaky_bucket(4, SECOND).queue(3),
        Quota::token_bucket(7, Duration::from_millis(61_003)),
    ];
    let (mut answered, mut banned) = (0, 0);
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let clock = ManualClock::new();
        let cap = [HOUR, 20 * MILLI, SECOND][rng.usize(..3)];
        let cached = DenyCache::builder(memory(&clock)).max_ttl(cap).clock(clock.clone()).build();
        let plain = memory(&clock);
        let quota = quotas[rng.usize(..quotas.len())];
        let bans: Vec<Option<Ban>> = (0..3)
            .map(|_| {
                let ban =
                    Ban::new(rng.u32(1..5), 60 * SECOND, [MILLI, 30 * MILLI, 700 * MILLI, 5 * SECOND][rng.usize(..4)]);
                rng.bool().then(|| if rng.bool() { ban.backoff(2.0, 20 * SECOND) } else { ban })
            })
            .collect();
        // Strikes of one are not counted while the ban of another one is served.
        let only = rng.usize(..3);
        let bans: Vec<_> = bans.into_iter().enumerate().map(|(key, ban)| ban.filter(|_| key == only)).collect();
        let counts = rng.bool();
        let mut receipts = Vec::new();
        for step in 0..200 {
            clock.advance(Duration::from_micros(
                [0, 0, 1, 999, 1_000, 5_300, 40_000, 250_000, 3_000_000][rng.usize(..9)],
            ));
            let request = request(&mut rng, step, quota, &bans, counts);
            let told = format!("seed {seed}, step {step}, {quota}, {request:#?}");
            if seed % 2 == 0 && rng.u8(..8) == 0 {
                // A look that may be answered from the cache: then one unit of each is refused.
                let looks: Vec<_> = request.iter().map(|check| check.clone().cost(0)).collect();
                let MaybeFuture::Ready(Ok(found)) = cached.decide(&looks, Ask::default().mode(AskMode::Cached)) else {
                    panic!()
                };
                let MaybeFuture::Ready(Ok(real)) = plain.decide(&looks, Ask::default()) else { panic!() };
                if found.decision.source() == Source::DenyCache {
                    answered += 1;
                    let refuses = real.decision.outcomes().iter().any(|look| look.remaining() == 0);
                    assert!(refuses && !found.decision.is_allowed(), "{told}: {found:#?} instead of {real:#?}");
                    for (found, real) in found.decision.outcomes().iter().zip(real.decision.outcomes()) {
                        assert!(!found.is_banned() || real.is_banned(), "{told}: {found:#?} instead of {real:#?}");
                    }
                } else {
                    assert_eq!(found.decision.outcomes(), real.decision.outcomes(), "{told}");
                }
                continue;
            }
            let MaybeFuture::Ready(Ok(found)) = cached.decide(&request, Ask::default()) else { panic!() };
            let MaybeFuture::Ready(Ok(real)) = plain.decide(&request, Ask::default()) else { panic!() };
            let is_cached = found.decision.source() == Source::DenyCache;
            answered += usize::from(is_cached);
            banned += usize::from(real.decision.is_banned());
            assert_alike(&told, &found.decision, &real.decision);
            if real.decision.is_allowed() {
                receipts.push((real.receipt, found.receipt));
            }
            let what = rng.u8(..30);
            match what {
                0 if !receipts.is_empty() => {
                    let (real, found) = receipts.swap_remove(rng.usize(..receipts.len()));
                    let change = match (bans[0], rng.u8(..3)) {
                        (Some(ban), 0) => Change::Strike(ban),
                        (_, 1) => Change::Refund(1),
                        _ => Change::Charge(1),
                    };
                    drop(plain.settle(real, &[Settlement::new(0, change)]));
                    drop(cached.settle(found, &[Settlement::new(0, change)]));
                }
                1 => {
                    let counter = counter(["a", "b", "c"][rng.usize(..3)], quota);
                    let change = [Change::Lift, Change::Reset, Change::Refund(1), Change::Charge(1)][rng.usize(..4)];
                    drop(plain.adjust(&counter, change));
                    drop(cached.adjust(&counter, change));
                }
                _ => {}
            }
        }
    }
    eprintln!("{answered} answered, {banned} banned");
    assert!(answered > 1_000 && banned > 1_000);
}

/// A look at a banned key, such as that of a status, is cached as the refusal of one unit: whose wait is longer.
#[test]
fn a_look_at_a_banned_key_does_not_shorten_the_wait_of_its_requests() {
    let rig = Rig::new();
    let quota = Quota::fixed_window(1, HOUR);
    let banning = |cost| [check("ada", quota, cost).ban(BanCheck::new(Ban::new(1, HOUR, Duration::from_millis(700))))];
    assert!(rig.asks(&banning(1)).is_allowed());
    let banned = rig.asks(&banning(1));
    let wait = banned.retry_after().expect("it helps to wait");
    assert!(banned.is_banned() && wait > Duration::from_secs(60), "the quota refuses for longer: {banned:?}");
    let _ = rig.decide(&banning(0), Ask::default());
    let told = rig.remembers(&banning(1)).retry_after().expect("it helps to wait");
    assert!(told >= wait, "{told:?} instead of {wait:?}");
}
