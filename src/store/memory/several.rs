//! A request with several checks, decided as one.
//!
//! The checks and the time come in; one step for each goes out, and whether the request as a whole is refused. It is a
//! sequence of calls by the store:
//!
//! 1. `lock` takes the locks of all parts that the checks concern, in ascending order.
//! 2. `evaluate` decides each check on the state that the earlier ones would leave, and writes nothing.
//! 3. `commit` keeps the states of an admitted request, or raises the ranks of a refused one, and keeps the strikes of
//!    either.
//!
//! Invariant: the locks are held from the first to the last of these, so no other request sees a part of the effects,
//! and a refused request takes nothing from any counter: it writes strikes and ranks only. Nothing is logged under them.

use smallvec::SmallVec;

use super::counters::Counters;
use crate::core::Quota;
use crate::store::clock::Times;
use crate::store::evaluate::{Steps, evaluate, finish, is_kept};
use crate::store::map::{Fingerprint, Fingerprints, Locked, Shards};
use crate::store::{Check, Mode};

/// The counters that the checks of one request are decided on, locked.
pub(super) struct Several<'a> {
    /// One for each check, in the order of the checks.
    fingerprints: SmallVec<[Fingerprint; 4]>,
    /// The parts of these fingerprints, in the same order; a part that several of them pick is locked once.
    parts: Locked<'a, Counters>,
}

impl<'a> Several<'a> {
    /// Locks the counters of all checks.
    #[inline]
    pub(super) fn lock(shards: &'a Shards<Counters>, fingerprints: &Fingerprints, checks: &[Check]) -> Self {
        // Pushed one by one, which is quicker than to collect them where there are few.
        let mut all = SmallVec::<[Fingerprint; 4]>::with_capacity(checks.len());
        for check in checks {
            all.push(fingerprints.of(&check.counter));
        }
        let parts = shards.lock_all(all.iter().map(|of| of.hash));
        Self { fingerprints: all, parts }
    }

    /// Decides every check; the second value is whether one refuses. A check in shadow mode refuses nothing.
    #[inline]
    pub(super) fn evaluate(&self, checks: &[Check], times: Times) -> (Steps, bool) {
        let state = |index| self.parts.part(index).state(self.fingerprints[index]);
        let now = |quota: &Quota| times.ticks(quota);
        let (mut steps, refused) = evaluate(checks, state, now);
        finish(checks, &mut steps, refused, state, now);
        (steps, refused)
    }

    /// Keeps the states of all checks that took something, and of strikes. Raises the rank of each counter whose check
    /// refuses the request.
    ///
    /// Checks of one counter are kept in their order, so the last of them, which was decided on the sum, stays.
    #[inline]
    pub(super) fn commit(&mut self, checks: &[Check], steps: &mut Steps, refused: bool, times: Times) {
        for (index, check) in checks.iter().enumerate() {
            let (of, counters) = (self.fingerprints[index], self.parts.of(index).1);
            if is_kept(checks, steps, index, refused) {
                counters.keep(of, check.counter.quota(), &mut steps[index], times);
            } else if refused && !steps[index].fits && check.mode == Mode::Enforce {
                counters.refused(of);
            }
        }
    }
}
