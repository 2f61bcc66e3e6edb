//! What the answer of the script comes to: its twins come to the same verdicts, and to the rest.

use smallvec::SmallVec;

use super::reply::{Answered, Seen, no_decision};
use super::request::{tells_all, tells_all_after};
use crate::core::Error;
use crate::core::algorithm::{State, Step};
use crate::store::evaluate::{Steps, applied, evaluate, look_again};
use crate::store::{Applied, Change, Check, Counter, Taken};

/// What was decided of some checks.
pub(in crate::store::redis) struct Verdict {
    pub(in crate::store::redis) steps: Steps,
    pub(in crate::store::redis) refused: bool,
    now_us: u64,
    seen: SmallVec<[Seen; 1]>,
}

impl Verdict {
    pub(in crate::store::redis) fn of(checks: &[Check], mut answered: Answered) -> Result<Self, Error> {
        let mut seen: SmallVec<[Seen; 1]> = SmallVec::new();
        for (index, check) in checks.iter().enumerate() {
            let next = answered.next(&check.counter.quota, tells_all(checks, index)).ok_or_else(no_decision)?;
            next.found.warn(check);
            seen.push(next);
        }
        let now_us = answered.now_us;
        let (steps, refused) = evaluate(checks, |index, state, cost| {
            step(&checks[index], state.or(seen[index].state.as_ref()), now_us, cost)
        });
        if steps.iter().zip(&seen).any(|(step, seen)| step.fits != seen.fits) {
            return Err(no_decision());
        }
        Ok(Self { steps, refused, now_us, seen })
    }

    /// Looks again at the checks that fit, as nothing is taken from them after all.
    pub(in crate::store::redis) fn look_again(&mut self, checks: &[Check]) {
        let Self { steps, now_us, seen, .. } = self;
        look_again(steps, |index, _, cost| step(&checks[index], seen[index].state.as_ref(), *now_us, cost));
    }
}

/// As [`Verdict::of`], for what most requests ask.
pub(in crate::store::redis) fn step_of_one(check: &Check, mut answered: Answered) -> Result<Step, Error> {
    let seen = answered.next(&check.counter.quota, false).ok_or_else(no_decision)?;
    seen.found.warn(check);
    let step = step(check, seen.state.as_ref(), answered.now_us, check.cost);
    if step.fits == seen.fits { Ok(step) } else { Err(no_decision()) }
}

/// What became of a change to what was taken.
pub(in crate::store::redis) fn applied_change(
    taken: &Taken,
    change: Change,
    mut answered: Answered,
) -> Result<Applied, Error> {
    let quota = &taken.counter.quota;
    let (units, seen) = answered.change(quota, tells_all_after(taken)).ok_or_else(no_decision)?;
    let step = quota.decide(seen.state.as_ref(), quota.tick().of(answered.now_us), 0, taken.floor);
    Ok(applied(taken, change, units, &step))
}

fn step(check: &Check, state: Option<&State>, now_us: u64, cost: u64) -> Step {
    let Counter { quota, .. } = &check.counter;
    quota.decide(state, quota.tick().of(now_us), cost, check.floor)
}
