//! A request: its checks come in, a decision goes out, at once.
//!
//! Checks are a cascade in their order: each is offered only if the enforced ones before it pass. If a check were
//! offered only if all others pass, the ratios of two counters would feed back into each other, and alternate.

use std::slice;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::law::has_ratio;
use super::shared::{Part, Shared};
use super::ticking;
use crate::core::decision::{Decision, Outcome, Source};
use crate::core::{Error, Mode};
use crate::store::map::Locked;
use crate::store::{Check, Decided, Receipt, share};

/// How much longer than a tick the wait of a refused request may be, in ticks.
const MOST_LATER: u64 = 2;

/// Decides by the ratios, or, without a tally, by the share of this process.
///
/// # Errors
///
/// If a quota has no ratio, and those of the memory store, for checks that it cannot decide.
pub(super) fn decide(shared: &Arc<Shared>, checks: &[Check]) -> Result<Decided, Error> {
    // Tiers have quotas that `supports` has not checked.
    checks.iter().try_for_each(|check| has_ratio(check.counter.policy(), check.counter.quota()))?;
    let now = Instant::now();
    ticking::start(shared, now);
    let mut locked = shared.lock_all(checks);
    if !shared.is_known(now) {
        return by_share(shared, &mut locked, checks, now);
    }
    let mut passes = true;
    let mut outcomes = SmallVec::<[Outcome; 2]>::new();
    for (index, check) in checks.iter().enumerate() {
        let (hash, part) = locked.of(index);
        let outcome = if passes && check.cost > 0 {
            one(shared, (hash, part), check, caller(shared, checks, check), now)?
        } else {
            look(shared, (hash, part), check, now)
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
    if never_fits(check) {
        return Ok(Outcome::denied(check, remaining(shared, (hash, part), check, now), None).resets_after(tick));
    }
    let (moment, mut draws) = (shared.moment(now, part.since), part.draws.clone());
    let Some(entry) = part.make(shared, hash, check, now) else {
        return of_share(shared, check);
    };
    if entry.by_share {
        entry.offer(check, caller);
        return of_share(shared, check);
    }
    let admits = entry.admits(check, caller, &moment, &mut draws);
    let remaining = entry.remaining(check, &moment);
    let later = 1 + u32::try_from(draws.draw() % (MOST_LATER + 1)).unwrap_or_default();
    part.draws = draws;
    Ok(if admits {
        Outcome::allowed(check, remaining).resets_after(tick)
    } else {
        // The band may refuse what the ratio would admit.
        let remaining = remaining.min(check.cost.saturating_sub(1));
        Outcome::denied(check, remaining, Some(tick * later)).guessed().resets_after(tick)
    })
}

/// Returns the outcome of a check that is not offered.
fn look(shared: &Shared, (hash, part): (u64, &Part), check: &Check, now: Instant) -> Outcome {
    Outcome::allowed(check, remaining(shared, (hash, part), check, now)).resets_after(shared.settings.tick)
}

fn remaining(shared: &Shared, (hash, part): (u64, &Part), check: &Check, now: Instant) -> u64 {
    match part.find(hash, &check.counter) {
        Some(entry) => entry.remaining(check, &shared.moment(now, part.since)),
        None => check.counter.quota().capacity().saturating_sub(check.floor),
    }
}

/// Decides all checks by the share of this process, and counts what is offered.
fn by_share(shared: &Shared, locked: &mut Locked<'_, Part>, checks: &[Check], now: Instant) -> Result<Decided, Error> {
    let decided = share::decide(&shared.local, shared.instances(), checks)?;
    for (index, (check, outcome)) in checks.iter().zip(decided.decision.outcomes()).enumerate() {
        let (hash, part) = locked.of(index);
        if check.cost > 0
            && !never_fits(check)
            && let Some(entry) = part.make(shared, hash, check, now)
        {
            entry.offer(check, caller(shared, checks, check));
        }
        if !passes_by(check, outcome) {
            break;
        }
    }
    Ok(decided)
}

/// Decides one check by the share of this process.
fn of_share(shared: &Shared, check: &Check) -> Result<Outcome, Error> {
    let decided = share::decide(&shared.local, shared.instances(), slice::from_ref(check))?;
    let [outcome] = decided.decision.outcomes() else { unreachable!("one check has one outcome") };
    Ok(outcome.clone())
}

fn passes_by(check: &Check, outcome: &Outcome) -> bool {
    outcome.is_allowed() || check.mode == Mode::Shadow
}

/// Whether a check costs more than the quota can ever have left.
fn never_fits(check: &Check) -> bool {
    check.cost.saturating_add(check.floor) > check.counter.quota().capacity()
}

/// Returns the caller of a request, if its drops are divided among callers.
fn caller(shared: &Shared, checks: &[Check], check: &Check) -> Option<u64> {
    let (policy, by) = shared.settings.fair.as_ref().filter(|(policy, _)| policy == check.counter.policy())?;
    let of_caller = |check: &&Check| check.counter.policy() == by && by != policy;
    checks.iter().find(of_caller).map(|check| shared.hash(&check.counter))
}
