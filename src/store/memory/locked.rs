//! The part of the memory store one request is decided on.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::fingerprint::Fingerprint;
use super::shard::Shard;
use super::store::{Inner, lock};
use crate::core::algorithm::State;
use crate::store::Check;
use crate::store::evaluate::{Steps, evaluate, look_again};

/// The shards of one request, locked.
pub(super) struct Locked<'a> {
    inner: &'a Inner,
    fingerprints: SmallVec<[Fingerprint; 4]>,
    shards: SmallVec<[(usize, MutexGuard<'a, Shard>); 4]>,
}

impl Locked<'_> {
    /// Decides every check; whether one refuses.
    pub(super) fn evaluate(&self, checks: &[Check], now_us: u64) -> (Steps, bool) {
        let step = |index: usize, state: Option<&State>, cost: u64| {
            let Check { counter, floor, .. } = &checks[index];
            let of = self.fingerprints[index];
            let now = counter.quota.tick().of(now_us);
            let kept = if state.is_none() { self.shard(of).state(of) } else { None };
            counter.quota.decide(state.or(kept.as_deref()), now, cost, *floor)
        };
        let (mut steps, refused) = evaluate(checks, step);
        checks.iter().zip(&steps).for_each(|(check, step)| step.found.warn(check));
        if refused {
            look_again(&mut steps, step);
        }
        (steps, refused)
    }

    pub(super) fn note_refusals(&mut self, checks: &[Check], steps: &Steps) {
        for index in (0..checks.len()).filter(|index| !steps[*index].fits) {
            let of = self.fingerprints[index];
            self.shard_mut(of).refused(of);
        }
    }

    pub(super) fn commit(&mut self, checks: &[Check], steps: Steps, now_us: u64) {
        for (index, (check, mut step)) in checks.iter().zip(steps).enumerate() {
            if step.fits && check.cost > 0 {
                let of = self.fingerprints[index];
                self.shard_mut(of).keep(of, &check.counter.quota, &mut step, now_us);
            }
        }
    }

    fn shard(&self, of: Fingerprint) -> &Shard {
        let index = self.inner.index(of);
        let place = self.shards.iter().position(|(shard, _)| *shard == index);
        &self.shards[place.expect("every check's shard is locked")].1
    }

    fn shard_mut(&mut self, of: Fingerprint) -> &mut Shard {
        let index = self.inner.index(of);
        let place = self.shards.iter().position(|(shard, _)| *shard == index);
        &mut self.shards[place.expect("every check's shard is locked")].1
    }
}

impl Inner {
    /// Locks the shards of all checks in ascending order, so that two requests never wait for each
    /// other in a circle.
    pub(super) fn lock_all<'a>(&'a self, checks: &[Check]) -> Locked<'a> {
        let fingerprints: SmallVec<[Fingerprint; 4]> =
            checks.iter().map(|check| self.fingerprints.of(&check.counter)).collect();
        let mut indices: SmallVec<[usize; 4]> = fingerprints.iter().map(|&of| self.index(of)).collect();
        indices.sort_unstable();
        indices.dedup();
        let shards = indices.into_iter().map(|index| (index, lock(&self.shards[index]))).collect();
        Locked { inner: self, fingerprints, shards }
    }
}
