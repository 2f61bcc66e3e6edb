//! The ratio store and its decisions, which never wait.
//!
//! Checks are a cascade in their order: each is offered only if the enforced checks before it pass. If a check were
//! offered only when all others pass, the ratios of two counters would feed back into each other, and alternate.

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate::store::{
    Ask, Capabilities, Change, ChangeResult, Check, Counter, MaybeFuture, Mode, Receipt, Requirement, Settlement,
    Settling, Store, StoreDecision,
};
use tollgate::{Decision, Error, Outcome, Source};

use crate::builder::{RatioStoreBuilder, check_policy, check_quota};
use crate::shared::RatioInner;
use crate::tally::Tally;
use crate::ticking::{close, start};

/// A store that calls no server for a request, but allows the share of each key's requests that fits the limit of all
/// processes.
///
/// **How ratios are computed**: every process counts what it is *offered*, and reports it to a [`Tally`] once in each tick, 1 s by
/// default. From the totals of all processes each computes the same drop ratio, 1 - limit / offered, and drops that
/// share of its requests at random. Requests that may use a [reserve](tollgate::Policy::reserve) are dropped only if
/// they alone exceed the limit.
///
/// **The lag**: a ratio is up to 3 ticks old. Under steady load, 10 s means are within 5% of the limit from the fourth
/// tick on if a tick allows 1,000 requests, within 8% if it allows 100, and from 24% below to 30% above it if it allows
/// 10. A limit of fewer than 10 units a tick is an error when a layer is built. A sudden burst passes for up to 3
/// ticks. In each of them a process allows at most its burst and the units that the limit replenishes in a tick. Load
/// that changes faster than in 3 ticks is limited badly: use a [`LeaseStore`](tollgate::store::LeaseStore) for it.
///
/// **The cost**: one call a process and tick, however many requests there are; none after 60 ticks without a request. No
/// request waits.
///
/// **Without the tally**: the last ratios hold for their TTL, 10 ticks by default. After that, and before the first
/// totals, each process allows its share of each limit: the limit divided by the number of processes that reported
/// last, or by [`instances`](RatioStoreBuilder::instances) if that is more.
///
/// **Several policies** of one layer are a cascade in their order: a policy is offered the requests that the enforced
/// policies before it allow. Put narrow policies first. For an exact limit of each user in addition to a global one,
/// nest two layers, the exact one outside.
///
/// Limits are rates: token buckets, fixed and sliding windows of up to 60 s. A burst only bounds the units that one
/// process allows before it knows a ratio. There are no refunds, no bans and no changes of counters, and a
/// [reset](Change::Reset) affects only this process. The time to retry is a [guess](tollgate::Outcome::retry_is_guess).
///
/// All processes need the same ticks, shards and limits. Reports need a tokio runtime: until the store is used in one,
/// each process allows its share.
///
/// # Examples
///
/// ```
/// use tollgate_ratio::{MemoryTally, RatioStore};
/// use tollgate::{Policy, Quota, RateLimitLayer, key};
///
/// let policy = Policy::new("all", Quota::per_second(50_000)).key(key::global());
/// let layer = RateLimitLayer::new(RatioStore::new(MemoryTally::new()), policy);
/// # let _ = layer;
/// ```
#[derive(Clone)]
pub struct RatioStore {
    shared: Arc<RatioInner>,
}

impl RatioStoreBuilder {
    /// Builds the store. In a tokio runtime it calls the tally immediately, to learn the ratios of other processes.
    ///
    /// # Panics
    ///
    /// If a setting is outside of its bounds, or a name set by [`fair`](Self::fair) is no valid policy name.
    #[track_caller]
    pub fn build(self) -> RatioStore {
        match self.try_build() {
            Ok(store) => store,
            Err(error) => panic!("{error:#}"),
        }
    }

    /// Fallible version of [`build`](Self::build).
    ///
    /// # Errors
    ///
    /// If a setting is outside of its bounds, or a name set by [`fair`](Self::fair) is no valid policy name.
    pub fn try_build(self) -> Result<RatioStore, Error> {
        self.check()?;
        let shared = Arc::new(RatioInner::new(self));
        // So that hot keys are known before the first request.
        start(&shared, Instant::now());
        Ok(RatioStore { shared })
    }
}

impl RatioStore {
    /// Creates a store with ratios from `tally` and the default settings.
    ///
    /// In a tokio runtime it calls the tally immediately, like [`build`](RatioStoreBuilder::build).
    pub fn new(tally: impl Tally) -> Self {
        Self::builder(tally).build()
    }

    /// Returns settings of a store with ratios from `tally`: ticks of 1 s, a life of 10 ticks, and reports of 256
    /// counters.
    pub fn builder(tally: impl Tally) -> RatioStoreBuilder {
        RatioStoreBuilder::new(tally)
    }

    /// Returns the drop ratio of a counter's requests, of those that may not use the reserve: from 0 to 1. `None` if
    /// none is known.
    pub fn ratio(&self, counter: &Counter) -> Option<f64> {
        let (hash, now) = (self.shared.parts.hash(counter), Instant::now());
        self.shared.live(now)?;
        self.shared.parts.lock(hash).find(hash, counter)?.ratio(now)
    }

    fn reset(&self, counter: &Counter) -> MaybeFuture<Result<ChangeResult, Error>> {
        let hash = self.shared.parts.hash(counter);
        let found = match self.shared.parts.lock(hash).table.find_entry(hash, |entry| entry.is_of(counter)) {
            Ok(entry) => {
                entry.remove();
                true
            }
            Err(_) => false,
        };
        let locally = self.shared.local.adjust(counter, Change::Reset);
        locally.map(move |applied| {
            applied.map(|mut applied| {
                applied.units = applied.units.max(found.into());
                applied
            })
        })
    }

    /// Returns the number of processes that reported in the last tick, or `None` if it is unknown, before the first
    /// totals and a TTL after the last ones.
    pub fn live(&self) -> Option<u64> {
        self.shared.live(Instant::now())
    }

    /// Reports once more, and ends the task of all clones. After that this process allows its share of each limit, so
    /// that it continues to serve while it drains.
    ///
    /// Outside of a tokio runtime, no last report is sent.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the last report may be lost, but the task still ends.
    pub async fn close(&self) {
        close(&self.shared).await;
    }
}

impl Store for RatioStore {
    fn decide(&self, checks: &[Check], _: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        MaybeFuture::Ready(decide(&self.shared, checks))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() != self.shared.id {
            return self.shared.local.settle(receipt, changes);
        }
        // A ratio takes nothing.
        MaybeFuture::Ready(Ok(changes.iter().map(|_| ChangeResult::new(0, 0)).collect()))
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        if change == Change::Reset {
            return self.reset(counter);
        }
        MaybeFuture::Ready(Err(Error::invalid(format!(
            "policy {:?} is limited by a ratio, and has no counter to change: use another store for it",
            counter.policy().as_str()
        ))))
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        let settings = &self.shared.settings;
        requirements.iter().try_for_each(|requirement| check_policy(requirement, Some(settings.tick)))?;
        settings.check_fair(requirements)?;
        Ok(Capabilities::default().id(self.shared.id))
    }
}

impl fmt::Debug for RatioStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RatioStore").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

fn decide(shared: &Arc<RatioInner>, checks: &[Check]) -> Result<StoreDecision, Error> {
    // Tiers have quotas that `capabilities` has not checked.
    checks.iter().try_for_each(|check| check_quota(check.counter.policy(), check.counter.quota()))?;
    let now = Instant::now();
    shared.is_used.store(true, Ordering::Relaxed);
    start(shared, now);
    if shared.live(now).is_none() {
        return all_by_share(shared, checks, now);
    }
    let mut passes = true;
    let mut outcomes = SmallVec::<[Outcome; 2]>::new();
    for check in checks {
        let outcome = if !passes || check.cost == 0 {
            Outcome::allowed(check, remaining(shared, check, now)).with_reset_after(shared.settings.tick)
        } else if fits(check) {
            one(shared, check, caller(shared, checks, check), now)?
        } else {
            Outcome::denied(check, remaining(shared, check, now), None).with_reset_after(shared.settings.tick)
        };
        passes &= passes_by(check, &outcome);
        outcomes.push(outcome);
    }
    shared.metrics.applied(checks, &outcomes);
    Ok(StoreDecision::new(Decision::new(outcomes, Source::Ratio), Receipt::new(shared.id, [])))
}

fn one(shared: &RatioInner, check: &Check, caller: Option<u64>, now: Instant) -> Result<Outcome, Error> {
    let (tick, hash) = (shared.settings.tick, shared.parts.hash(&check.counter));
    let part = &mut *shared.parts.lock(hash);
    let ticks = now.saturating_duration_since(part.since).div_duration_f64(tick);
    let (drawn, later) = (part.draw(), (3.0 * part.draw()).floor());
    let by_share = || {
        let decided = shared.local.decide_share(slice::from_ref(check), shared.instances())?;
        Ok(decided.decision.outcomes()[0].clone())
    };
    let Some(entry) = part.make(shared, hash, check) else { return by_share() };
    let passes = entry.offer(check, caller, now, drawn);
    if entry.by_share {
        return by_share();
    }
    if passes && entry.takes(check, ticks) {
        return Ok(Outcome::allowed(check, entry.remaining(check, now)).with_reset_after(tick));
    }
    let remaining = entry.remaining(check, now);
    Ok(Outcome::denied(check, remaining, Some(tick + tick.mul_f64(later))).guessed().with_reset_after(tick))
}

fn remaining(shared: &RatioInner, check: &Check, now: Instant) -> u64 {
    let hash = shared.parts.hash(&check.counter);
    match shared.parts.lock(hash).find(hash, &check.counter) {
        Some(entry) => entry.remaining(check, now),
        None => check.counter.quota().capacity().saturating_sub(check.floor),
    }
}

fn all_by_share(shared: &RatioInner, checks: &[Check], now: Instant) -> Result<StoreDecision, Error> {
    let decided = shared.local.decide_share(checks, shared.instances())?;
    for (check, outcome) in checks.iter().zip(decided.decision.outcomes()) {
        let hash = shared.parts.hash(&check.counter);
        if check.cost > 0
            && fits(check)
            && let Some(entry) = shared.parts.lock(hash).make(shared, hash, check)
        {
            entry.offer(check, caller(shared, checks, check), now, 0.0);
        }
        if !passes_by(check, outcome) {
            break;
        }
    }
    Ok(decided)
}

fn passes_by(check: &Check, outcome: &Outcome) -> bool {
    outcome.is_allowed() || check.mode == Mode::Shadow
}

fn fits(check: &Check) -> bool {
    check.cost.saturating_add(check.floor) <= check.counter.quota().capacity()
}

fn caller(shared: &RatioInner, checks: &[Check], check: &Check) -> Option<u64> {
    let (policy, by) = shared.settings.fair.as_ref().filter(|(policy, _)| policy == check.counter.policy().as_str())?;
    let of_caller = |check: &&Check| check.counter.policy().as_str() == by && by != policy;
    checks.iter().find(of_caller).map(|check| shared.parts.hash(&check.counter))
}
