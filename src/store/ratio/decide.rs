//! The decision of a request, at once.
//!
//! Checks are a cascade in their order: each is offered only if the enforced ones before it pass. If a check were
//! offered only if all others pass, the ratios of two counters would feed back into each other, and alternate.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::builder::check_quota;
use super::shared::{Part, Shared};
use super::ticking::start;
use crate::core::decision::{Decision, Outcome, Source};
use crate::core::{Error, Mode};
use crate::store::map::Locked;
use crate::store::{Check, Decided, Receipt, share};

/// Decides by the ratios, or, while none are known, by the share of this process.
///
/// # Errors
///
/// If a quota has no ratio, and those of the memory store, for checks that it cannot decide.
pub(super) fn decide(shared: &Arc<Shared>, checks: &[Check]) -> Result<Decided, Error> {
    // Tiers have quotas that `capabilities` has not checked.
    checks.iter().try_for_each(|check| check_quota(check.counter.policy(), check.counter.quota()))?;
    let now = Instant::now();
    shared.is_used.store(true, Ordering::Relaxed);
    start(shared, now);
    let mut locked = shared.parts.lock_all(checks.iter().map(|check| shared.hasher.of(&check.counter)));
    if shared.live(now).is_none() {
        return all_by_share(shared, &mut locked, checks, now);
    }
    let mut passes = true;
    let mut outcomes = SmallVec::<[Outcome; 2]>::new();
    for (index, check) in checks.iter().enumerate() {
        let (hash, part) = locked.of(index);
        let outcome = if !passes || check.cost == 0 {
            Outcome::allowed(check, remaining((hash, part), check, now)).resets_after(shared.settings.tick)
        } else if fits(check) {
            one(shared, (hash, part), check, caller(shared, checks, check), now)?
        } else {
            Outcome::denied(check, remaining((hash, part), check, now), None).resets_after(shared.settings.tick)
        };
        passes &= passes_by(check, &outcome);
        outcomes.push(outcome);
    }
    drop(locked);
    shared.telemetry.ratios_applied(checks, &outcomes);
    Ok(Decided::new(Decision::new(outcomes, Source::Ratio), Receipt::new(shared.id, [])))
}

/// Decides a check that is offered.
fn one(
    shared: &Shared,
    (hash, part): (u64, &mut Part),
    check: &Check,
    caller: Option<u64>,
    now: Instant,
) -> Result<Outcome, Error> {
    let tick = shared.settings.tick;
    let ticks = now.saturating_duration_since(part.since).div_duration_f64(tick);
    let (drawn, later) = (part.draw(), (3.0 * part.draw()).floor());
    let by_share = || {
        let decided = share::decide(&shared.local, shared.instances(), slice::from_ref(check))?;
        Ok(decided.decision.outcomes()[0].clone())
    };
    let Some(entry) = part.make(shared, hash, check) else { return by_share() };
    let passes = entry.offer(check, caller, now, drawn);
    if entry.by_share {
        return by_share();
    }
    if passes && entry.takes(check, ticks) {
        return Ok(Outcome::allowed(check, entry.remaining(check, now)).resets_after(tick));
    }
    let remaining = entry.remaining(check, now);
    Ok(Outcome::denied(check, remaining, Some(tick + tick.mul_f64(later))).guessed().resets_after(tick))
}

fn remaining((hash, part): (u64, &Part), check: &Check, now: Instant) -> u64 {
    match part.find(hash, &check.counter) {
        Some(entry) => entry.remaining(check, now),
        None => check.counter.quota().capacity().saturating_sub(check.floor),
    }
}

/// Decides all checks by the share of this process, and counts what is offered.
fn all_by_share(
    shared: &Shared,
    locked: &mut Locked<'_, Part>,
    checks: &[Check],
    now: Instant,
) -> Result<Decided, Error> {
    let decided = share::decide(&shared.local, shared.instances(), checks)?;
    for (index, (check, outcome)) in checks.iter().zip(decided.decision.outcomes()).enumerate() {
        let (hash, part) = locked.of(index);
        if check.cost > 0
            && fits(check)
            && let Some(entry) = part.make(shared, hash, check)
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

/// Whether the quota can ever have as much left as a check costs.
fn fits(check: &Check) -> bool {
    check.cost.saturating_add(check.floor) <= check.counter.quota().capacity()
}

/// Returns the caller of a request, if its drops are divided among callers.
fn caller(shared: &Shared, checks: &[Check], check: &Check) -> Option<u64> {
    let (policy, by) = shared.settings.fair.as_ref().filter(|(policy, _)| policy == check.counter.policy().as_str())?;
    let of_caller = |check: &&Check| check.counter.policy().as_str() == by && by != policy;
    checks.iter().find(of_caller).map(|check| shared.hasher.of(&check.counter))
}
