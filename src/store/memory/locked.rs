//! The part of the memory store one request is decided on.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::shard::Shard;
use super::store::{Inner, lock};
use crate::algorithm::{self, State};
use crate::store::Check;
use crate::store::evaluate::{Steps, evaluate, look_again};

/// The shards of one request, locked.
pub(super) struct Locked<'a> {
    inner: &'a Inner,
    hashes: SmallVec<[u64; 4]>,
    shards: SmallVec<[(usize, MutexGuard<'a, Shard>); 4]>,
}

impl Locked<'_> {
    /// Decides every check; whether one refuses.
    pub(super) fn evaluate(&self, checks: &[Check], now_us: u64) -> (Steps, bool) {
        let step = |index: usize, state: Option<&State>, cost: u64| {
            let Check { counter, floor, .. } = &checks[index];
            let hash = self.hashes[index];
            let now = now_us / counter.quota.tick().micros();
            let state = state.or_else(|| self.shard(hash).state(hash, counter));
            algorithm::decide(&counter.quota, state, now, cost, *floor)
        };
        let (mut steps, refused) = evaluate(checks, step);
        checks.iter().zip(&steps).for_each(|(check, step)| step.found.warn(check));
        if refused {
            look_again(&mut steps, step);
        }
        (steps, refused)
    }

    pub(super) fn note_refusals(&mut self, checks: &[Check], steps: &Steps) {
        for (index, check) in checks.iter().enumerate().filter(|(index, _)| !steps[*index].fits) {
            let hash = self.hashes[index];
            self.shard_mut(hash).refused(hash, &check.counter);
        }
    }

    pub(super) fn commit(&mut self, checks: &[Check], steps: Steps, now_us: u64) {
        for (index, (check, mut step)) in checks.iter().zip(steps).enumerate() {
            if step.fits && check.cost > 0 {
                let hash = self.hashes[index];
                self.shard_mut(hash).keep(hash, &check.counter, &mut step, now_us);
            }
        }
    }

    fn shard(&self, hash: u64) -> &Shard {
        let index = self.inner.index(hash);
        let place = self.shards.iter().position(|(shard, _)| *shard == index);
        &self.shards[place.expect("every check's shard is locked")].1
    }

    fn shard_mut(&mut self, hash: u64) -> &mut Shard {
        let index = self.inner.index(hash);
        let place = self.shards.iter().position(|(shard, _)| *shard == index);
        &mut self.shards[place.expect("every check's shard is locked")].1
    }
}

impl Inner {
    /// Locks the shards of all checks in ascending order, so that two requests never wait for each
    /// other in a circle.
    pub(super) fn lock_all<'a>(&'a self, checks: &[Check]) -> Locked<'a> {
        let hashes: SmallVec<[u64; 4]> = checks.iter().map(|check| self.hash(&check.counter)).collect();
        let mut indices: SmallVec<[usize; 4]> = hashes.iter().map(|&hash| self.index(hash)).collect();
        indices.sort_unstable();
        indices.dedup();
        let shards = indices.into_iter().map(|index| (index, lock(&self.shards[index]))).collect();
        Locked { inner: self, hashes, shards }
    }
}
