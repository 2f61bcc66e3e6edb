//! The verdict: what a reply of the script comes to.
//!
//! Checks and the part of a reply that is theirs come in; a step for each check goes out, which
//! contains what remains and how long to wait. The script decides and writes; this works out the rest
//! from the state that the script found, by the same algorithms in Rust. Both come to a verdict on
//! every check. If the two differ, it is an error and never a decision: the server's Lua then
//! counts in another way, or the versions of both sides do not match.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::reply::{ReplyPart, Seen, no_decision};
use super::request::{returns_whole, returns_whole_after};
use crate::core::algorithm::{State, Step};
use crate::core::{Error, Quota};
use crate::store::bans::log;
use crate::store::evaluate::{Steps, applied, evaluate, finish, look_again, step};
use crate::store::{Applied, Change, Check, Taken};

/// What was decided of the checks of one request.
pub(in crate::store::redis) struct Verdict {
    /// A step for each check, in their order.
    pub(in crate::store::redis) steps: Steps,
    /// Whether an enforced check does not fit: then no check has taken anything.
    pub(in crate::store::redis) refused: bool,
    /// The time of the decision, in microseconds since the Unix epoch.
    now_us: u64,
    /// What the script found for each check, kept for [`look_again`](Self::look_again).
    seen: SmallVec<[Seen; 1]>,
}

impl Verdict {
    /// Works out the verdict. Values under a key that had to be set aside are logged.
    ///
    /// # Errors
    ///
    /// If the reply is not one to these checks, or its verdict on a check differs from the one
    /// worked out here.
    pub(in crate::store::redis) fn of(checks: &[Check], mut part: ReplyPart) -> Result<Self, Error> {
        let now_us = part.now_us;
        let mut seen: SmallVec<[Seen; 1]> = SmallVec::new();
        for (index, check) in checks.iter().enumerate() {
            let next =
                part.next(check.counter.quota(), returns_whole(checks, index)).ok_or_else(no_decision)?.decided()?;
            seen.push(next);
        }
        let (state, now) = (state_of(&seen), |quota: &Quota| quota.tick().of(now_us));
        let (mut steps, refused) = evaluate(checks, &state, now);
        if steps.iter().zip(&seen).any(|(step, seen)| step.fits != seen.fits) {
            return Err(no_decision());
        }
        finish(checks, &mut steps, refused, state, now);
        log(checks, &steps);
        Ok(Self { steps, refused, now_us, seen })
    }

    /// Works out what remains for the checks that fit when nothing is taken from them after all:
    /// another part of the request was refused. The server is not called for it.
    pub(in crate::store::redis) fn look_again(&mut self, checks: &[Check]) {
        let Self { steps, now_us, seen, .. } = self;
        look_again(checks, steps, state_of(seen), |quota| quota.tick().of(*now_us));
    }
}

fn state_of<'a>(seen: &'a [Seen]) -> impl Fn(usize) -> Option<Cow<'a, State>> {
    move |index| seen[index].state.as_ref().map(Cow::Borrowed)
}

/// As [`Verdict::of`], for the usual request of one check, which needs no list.
///
/// # Errors
///
/// As there.
pub(in crate::store::redis) fn step_of_one(check: &Check, mut part: ReplyPart) -> Result<Step, Error> {
    let seen = part.next(check.counter.quota(), false).ok_or_else(no_decision)?.decided()?;
    seen.found.warn(check.counter.policy());
    let step = step(check, seen.state.as_ref(), check.counter.quota().tick().of(part.now_us), check.cost);
    if step.fits == seen.fits { Ok(step) } else { Err(no_decision()) }
}

/// Returns what became of a change to what was taken: how many units it came to, and what the
/// counter shows after it.
///
/// # Errors
///
/// If the reply is not one to a change of this counter.
pub(in crate::store::redis) fn applied_change(
    taken: &Taken,
    change: Change,
    mut part: ReplyPart,
) -> Result<Applied, Error> {
    let quota = taken.counter.quota();
    if change == Change::Reset {
        let was_there = part.next(quota, false).ok_or_else(no_decision)?.fits;
        return Ok(Applied::new(was_there.into(), taken.stamp));
    }
    let (units, seen) = part.change(quota, returns_whole_after(taken)).ok_or_else(no_decision)?;
    let seen = seen.decided()?;
    let step = quota.decide(seen.state.as_ref(), quota.tick().of(part.now_us), 0, taken.floor);
    Ok(applied(taken, change, units, &step))
}
