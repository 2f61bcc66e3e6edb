//! The counters of a request with several checks.

use smallvec::SmallVec;

use super::counters::Counters;
use crate::core::algorithm::State;
use crate::store::Check;
use crate::store::evaluate::{Steps, evaluate, look_again};
use crate::store::map::{Fingerprint, Fingerprints, Locked, Shards};

/// The counters that the checks of one request are decided on, locked.
pub(super) struct Several<'a> {
    fingerprints: SmallVec<[Fingerprint; 4]>,
    parts: Locked<'a, Counters>,
}

impl<'a> Several<'a> {
    /// Locks the counters of all checks.
    #[inline]
    pub(super) fn lock(shards: &'a Shards<Counters>, fingerprints: &Fingerprints, checks: &[Check]) -> Self {
        let fingerprints: SmallVec<[Fingerprint; 4]> =
            checks.iter().map(|check| fingerprints.of(&check.counter)).collect();
        let parts = shards.lock_all(fingerprints.iter().map(|of| of.hash));
        Self { fingerprints, parts }
    }

    /// Decides every check; whether one refuses.
    #[inline]
    pub(super) fn evaluate(&self, checks: &[Check], now_us: u64) -> (Steps, bool) {
        let step = |index: usize, state: Option<&State>, cost: u64| {
            let Check { counter, floor, .. } = &checks[index];
            let now = counter.quota.tick().of(now_us);
            let kept = if state.is_none() { self.parts.part(index).state(self.fingerprints[index]) } else { None };
            counter.quota.decide(state.or(kept.as_deref()), now, cost, *floor)
        };
        let (mut steps, refused) = evaluate(checks, step);
        checks.iter().zip(&steps).for_each(|(check, step)| step.found.warn(check));
        if refused {
            look_again(&mut steps, step);
        }
        (steps, refused)
    }

    pub(super) fn note_refusals(&mut self, steps: &Steps) {
        for (index, _) in steps.iter().enumerate().filter(|(_, step)| !step.fits) {
            self.parts.of(index).1.refused(self.fingerprints[index]);
        }
    }

    #[inline]
    pub(super) fn commit(&mut self, checks: &[Check], steps: Steps, now_us: u64) {
        for (index, (check, mut step)) in checks.iter().zip(steps).enumerate() {
            if step.fits && check.cost > 0 {
                let of = self.fingerprints[index];
                self.parts.of(index).1.keep(of, &check.counter.quota, &mut step, now_us);
            }
        }
    }
}
