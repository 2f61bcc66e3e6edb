//! A request with several checks, decided as one.
//!
//! The checks and the time come in; one step for each goes out, and whether the request as a whole is refused. It is a
//! sequence of calls by the store:
//!
//! 1. `lock` takes the locks of all parts that the checks concern, in ascending order.
//! 2. `evaluate` decides each check on the state that the earlier ones would leave, and writes nothing.
//! 3. `commit` keeps the states of an admitted request, or `note_refusals` raises the ranks of a refused one.
//! 4. `keep_bans` keeps the strikes of either.
//!
//! Invariant: the locks are held from the first to the last of these, so no other request sees a part of the effects,
//! and a refused request takes nothing from any counter: it writes strikes and ranks only. Nothing is logged under them.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::counters::Counters;
use crate::core::algorithm::State;
use crate::store::bans::Bans;
use crate::store::clock::Times;
use crate::store::evaluate::{Steps, evaluate, look_again};
use crate::store::map::{Fingerprint, Fingerprints, Locked, Shards};
use crate::store::{Check, Mode};

/// The counters that the checks of one request are decided on, locked.
pub(super) struct Several<'a> {
    /// One for each check, in the order of the checks; behind them one for each of their bans.
    fingerprints: SmallVec<[Fingerprint; 4]>,
    /// The parts of these fingerprints, in the same order; a part that several of them pick is locked once.
    parts: Locked<'a, Counters>,
}

impl<'a> Several<'a> {
    /// Locks the counters of all checks, and their bans.
    #[inline]
    pub(super) fn lock(shards: &'a Shards<Counters>, fingerprints: &Fingerprints, checks: &[Check]) -> Self {
        // Pushed one by one, which is quicker than to collect them where there are few.
        let mut all = SmallVec::<[Fingerprint; 4]>::with_capacity(checks.len());
        for check in checks {
            all.push(fingerprints.of(&check.counter));
        }
        for check in checks.iter().filter(|check| check.ban.is_some()) {
            all.push(fingerprints.of_ban(&check.counter));
        }
        let parts = shards.lock_all(all.iter().map(|of| of.hash));
        Self { fingerprints: all, parts }
    }

    /// Looks at the bans of the checks.
    pub(super) fn bans(&self, checks: &[Check], now_us: u64) -> Bans {
        Bans::look(checks, now_us, |bar| {
            let place = checks.len() + bar;
            self.parts.part(place).state(self.fingerprints[place]).map(Cow::into_owned)
        })
    }

    /// Decides every check; the second value is whether one refuses. Then strikes are counted.
    ///
    /// Where one does, the checks that fit are looked at again with a cost of 0, so that what they report is what is
    /// left when nothing is taken. A check in shadow mode refuses nothing.
    #[inline]
    pub(super) fn evaluate(&self, checks: &[Check], bans: &mut Bans, times: Times) -> (Steps, bool) {
        let step = |index: usize, state: Option<&State>, cost: u64| {
            let Check { counter, floor, .. } = &checks[index];
            let now = times.ticks(counter.quota());
            let kept = if state.is_none() { self.parts.part(index).state(self.fingerprints[index]) } else { None };
            counter.quota().decide(state.or(kept.as_deref()), now, cost, *floor)
        };
        let (mut steps, refused) = evaluate(checks, bans, step);
        bans.strike(checks, &steps, step);
        if refused {
            look_again(&mut steps, step);
        }
        (steps, refused)
    }

    /// Raises the rank of each counter whose check refuses the request.
    pub(super) fn note_refusals(&mut self, checks: &[Check], steps: &Steps) {
        for (index, (check, step)) in checks.iter().zip(steps).enumerate() {
            if !step.fits && check.mode == Mode::Enforce {
                self.parts.of(index).1.refused(self.fingerprints[index]);
            }
        }
    }

    /// Keeps the states of all checks that fit and have a cost; to be called only for an admitted request.
    ///
    /// Checks of one counter are kept in their order, so the last of them, which was decided on the sum, stays.
    #[inline]
    pub(super) fn commit(&mut self, checks: &[Check], bans: &Bans, steps: &mut Steps, times: Times) {
        for (index, (check, step)) in checks.iter().zip(steps).enumerate() {
            if step.fits && check.cost > 0 && !bans.bars(index) {
                let of = self.fingerprints[index];
                self.parts.of(index).1.keep(of, check.counter.quota(), step, times);
            }
        }
    }

    /// Keeps the strikes of a request, admitted or refused.
    pub(super) fn keep_bans(&mut self, checks: &[Check], bans: &mut Bans, now_us: u64) {
        for (bar, _, state, life) in bans.take_writes() {
            let place = checks.len() + bar;
            self.parts.of(place).1.keep_ban(self.fingerprints[place], state, life, now_us);
        }
    }
}
