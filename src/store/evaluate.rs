//! Deciding a request, all or nothing over its checks, and the decision and receipt of it.
//!
//! A store brings the state and the arithmetic of one check, as a closure that returns a [`Step`].
//! The functions here do what every store has in common:
//!
//! - `evaluate` decides each check on the state that the earlier ones would leave, so that checks
//!   that share a counter count together;
//! - `look_again` corrects the steps of a refused request, as nothing was taken;
//! - `decided` builds the decision and the receipt of the steps;
//! - `adjustment` and `applied` are the two ends of a change to what was taken.
//!
//! All of it is pure. Lua decides by the same rules (`lua/`), and tests compare the two.

use smallvec::SmallVec;

use super::bans::Bans;
use super::{Applied, Change, Check, Counter, Decided, Mode, Receipt, StoreId, Taken};
use crate::core::Quota;
use crate::core::algorithm::{self, Adjustment, Refund, State, Step};
use crate::core::decision::{Decision, Measures, Outcome, Source};

/// The steps of a request, in the order of its checks.
pub(super) type Steps = SmallVec<[Step; 4]>;

/// Decides every check, each on the state that the earlier ones would leave. Returns the steps, and
/// whether an enforced check refuses the request; checks in shadow mode never do.
///
/// A check whose key is banned refuses as well. Its step is that of the quota alone, by which its
/// wait and its strikes are known; in shadow mode it is a look, as it takes nothing.
///
/// `step` decides the check at an index, on the state given or else on its own, at a cost. A repeat
/// of a counter is decided at the sum of the costs so far; a look at one (cost 0), on the state
/// that the earlier checks would leave.
pub(super) fn evaluate(
    checks: &[Check],
    bans: &Bans,
    mut step: impl FnMut(usize, Option<&State>, u64) -> Step,
) -> (Steps, bool) {
    let (mut steps, mut refused) = (Steps::new(), false);
    for (index, check) in checks.iter().enumerate() {
        let before = earlier(checks, bans, &steps, index);
        let cost = cost(checks, bans, index);
        let (state, units) = if cost == 0 { (before.state, 0) } else { (None, before.units) };
        let decided = step(index, state.as_ref(), units.saturating_add(cost));
        refused |= check.mode == Mode::Enforce && (!decided.fits || bans.bars(index));
        steps.push(decided);
    }
    (steps, refused)
}

/// Looks again at the checks of a refused request that fit: nothing is taken from them, so what
/// remains has to be that of untouched state.
pub(super) fn look_again(steps: &mut Steps, mut step: impl FnMut(usize, Option<&State>, u64) -> Step) {
    for (index, decided) in steps.iter_mut().enumerate().filter(|(_, decided)| decided.fits) {
        *decided = step(index, None, 0);
    }
}

/// Returns the units of a check: none in shadow mode if its key is banned.
fn cost(checks: &[Check], bans: &Bans, index: usize) -> u64 {
    let Check { cost, mode, .. } = checks[index];
    if mode == Mode::Shadow && bans.bars(index) { 0 } else { cost }
}

/// The effect of the earlier checks of a request on the counter of one.
#[derive(Default)]
struct Earlier {
    /// The sum of their costs.
    units: u64,
    /// The state they would leave; `None` if there is no earlier check on the counter, or it would
    /// not change it.
    state: Option<State>,
}

/// Returns the effect of the checks before `index` on its counter: of those that fit, and of
/// enforced ones even if they do not.
fn earlier(checks: &[Check], bans: &Bans, steps: &Steps, index: usize) -> Earlier {
    let before = checks[..index].iter().zip(steps).enumerate();
    let same = before.filter(|(_, (check, _))| check.counter.shares_state(&checks[index].counter));
    let counted = same.filter(|(_, (check, step))| step.fits || check.mode == Mode::Enforce);
    counted.fold(Earlier::default(), |earlier, (before, (_, step))| Earlier {
        units: earlier.units.saturating_add(cost(checks, bans, before)),
        state: step.state.clone().or(earlier.state),
    })
}

/// Returns the decision over all checks, and the receipt for what it took: an empty one if it is
/// refused.
pub(super) fn decided(id: StoreId, checks: &[Check], bans: &Bans, steps: &[Step], refused: bool) -> Decided {
    if let ([check], [step], true) = (checks, steps, bans.is_empty()) {
        return decided_one(id, check, step);
    }
    let decision = decision(checks, bans, steps, refused);
    if refused {
        return Decided { decision, receipt: Receipt::empty(id) };
    }
    let all = checks.iter().zip(steps).map(|(check, step)| taken(check, step)).enumerate();
    let all = all.map(|(index, taken)| if bans.bars(index) { taken.units(0) } else { taken });
    Decided { decision, receipt: Receipt::new(id, all) }
}

/// Returns the decision over all checks.
fn decision(checks: &[Check], bans: &Bans, steps: &[Step], refused: bool) -> Decision {
    let outcomes = checks.iter().zip(steps).map(|(check, step)| outcome(check, step)).enumerate();
    Decision::new(outcomes.map(|(index, outcome)| bans.note(index, outcome, refused)), Source::Store)
}

/// As `decided`, for a single check, which most requests have.
#[inline]
pub(super) fn decided_one(id: StoreId, check: &Check, step: &Step) -> Decided {
    let decision = Decision::of_one(outcome(check, step), Source::Store);
    let receipt = if decision.is_allowed() { Receipt::of_one(id, taken(check, step)) } else { Receipt::empty(id) };
    Decided { decision, receipt }
}

/// Returns the result of a change that came to `units`, after which a look finds `step`. The units
/// that are left keep their stamp after a refund, except the last in a line, which ends earlier
/// now.
pub(super) fn applied(taken: &Taken, change: Change, units: u64, step: &Step) -> Applied {
    let is_in_line = taken.counter.quota().facts().refund == Refund::LastInLine;
    let keeps = matches!(change, Change::Refund(_)) && (units == 0 || !is_in_line);
    let look = Check { floor: taken.floor, ..Check::new(taken.counter.clone(), 0) };
    Applied::new(units, if keeps { taken.stamp } else { step.stamp }).outcome(outcome(&look, step))
}

/// Returns the change to what was taken, as the algorithm is to make it. `before` is what the same
/// request took before this part.
///
/// A bucket has refilled some of the units since, and these are not refunded. They are refilled
/// one after the other, as they were taken: so it is counted from when those before, and those that
/// stay taken, were refilled, as if this request alone had taken units. With a stamp `s` and `u`
/// units, that is `s + u * window / limit`, in ticks.
pub(super) fn adjustment(before: &[Taken], taken: &Taken, change: Change) -> Adjustment {
    let Taken { counter, units, stamp, .. } = taken;
    let quota = counter.quota();
    let back = match change {
        Change::Refund(back) => back,
        // Only slots are renewed.
        Change::Renew(_) if !quota.facts().held => return Adjustment::new(Change::Refund(0), *stamp),
        _ => return Adjustment::new(change, *stamp),
    };
    if quota.facts().refund != Refund::Unrefilled || *stamp == algorithm::NEVER {
        return Adjustment::new(change, *stamp);
    }
    let refilled = |(since, units): (u64, u64)| {
        let ticks = u128::from(units) * u128::from(quota.window_ticks()) / u128::from(quota.limit());
        since.saturating_add(u64::try_from(ticks).unwrap_or(algorithm::NEVER)).min(algorithm::NEVER - 1)
    };
    let same = before.iter().filter(|part| part.counter.shares_state(&taken.counter));
    let parts = same.map(|part| (part.stamp, part.units)).chain([(*stamp, units.saturating_sub(back))]);
    let line = parts.fold((0, 0), |line, (stamp, units)| {
        if stamp <= refilled(line) { (line.0, line.1.saturating_add(units)) } else { (stamp, units) }
    });
    Adjustment::new(change, refilled(line))
}

/// Returns what a change outside of any decision is made to: nothing was taken, and no stamp limits
/// the change.
pub(super) fn of_any(counter: &Counter) -> Taken {
    Taken { counter: counter.clone(), units: 0, floor: 0, stamp: algorithm::NEVER }
}

/// Returns the outcome of a check, as clients and callers see it.
fn outcome(check: &Check, step: &Step) -> Outcome {
    Outcome::from_measures(check, &measures(check.counter.quota(), step))
}

/// Returns what decisions say of a step.
#[inline]
fn measures(quota: &Quota, step: &Step) -> Measures {
    let Step { fits, remaining, wait, reset, delay, .. } = *step;
    Measures { fits, remaining, wait, reset, window: quota.window_of(step), delay }
}

/// Returns what a check took: nothing if it did not fit, as in shadow mode.
fn taken(check: &Check, step: &Step) -> Taken {
    let units = if step.fits { check.cost } else { 0 };
    Taken { counter: check.counter.clone(), units, floor: check.floor, stamp: step.stamp }
}
