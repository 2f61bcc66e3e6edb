//! The part of the memory store one request is decided on.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::shard::Shard;
use super::store::{Inner, lock};
use crate::algorithm::{self, Step};
use crate::store::{Check, Mode};

/// The shards of one request, locked.
pub(super) struct Locked<'a> {
    inner: &'a Inner,
    hashes: SmallVec<[u64; 4]>,
    shards: SmallVec<[(usize, MutexGuard<'a, Shard>); 4]>,
}

pub(super) type Steps = SmallVec<[Step; 4]>;

impl Locked<'_> {
    /// Decides every check, each on the state the earlier ones would leave; in a refused request
    /// those that fit are looked at again, as nothing is taken from them.
    pub(super) fn evaluate(&mut self, checks: &[Check], now_us: u64) -> (Steps, bool) {
        let mut steps = Steps::new();
        for (index, check) in checks.iter().enumerate() {
            let before = earlier(checks, &steps, index);
            let (state, asked) = if check.cost == 0 { (before.state, 0) } else { (None, before.units) };
            let step = self.step(index, check, state.as_ref(), asked.saturating_add(check.cost), now_us);
            steps.push(step);
        }
        let refused = checks.iter().zip(&steps).any(|(check, step)| !step.fits && check.mode == Mode::Enforce);
        if refused {
            for (index, check) in checks.iter().enumerate().filter(|_| checks.len() > 1) {
                if steps[index].fits {
                    steps[index] = self.step(index, check, None, 0, now_us);
                }
            }
        }
        (steps, refused)
    }

    fn step(&mut self, index: usize, check: &Check, state: Option<&algorithm::State>, cost: u64, now_us: u64) -> Step {
        let quota = &check.counter.quota;
        let hash = self.hashes[index];
        let now = now_us / quota.tick().micros();
        let state = state.or_else(|| self.shard(hash).state(hash, &check.counter));
        let step = algorithm::decide(quota, state, now, cost, check.floor);
        step.found.warn(check);
        step
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

/// What the checks of a request before one do to its counter.
#[derive(Default)]
struct Earlier {
    /// The units they ask for: a repeat asks for the sum.
    units: u64,
    /// The state they would leave.
    state: Option<algorithm::State>,
}

fn earlier(checks: &[Check], steps: &Steps, index: usize) -> Earlier {
    let before = checks[..index].iter().zip(steps);
    let same = before.filter(|(check, _)| check.counter.shares_state(&checks[index].counter));
    let counted = same.filter(|(check, step)| step.fits || check.mode == Mode::Enforce);
    counted.fold(Earlier::default(), |earlier, (check, step)| Earlier {
        units: earlier.units.saturating_add(check.cost),
        state: step.state.clone().or(earlier.state),
    })
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
