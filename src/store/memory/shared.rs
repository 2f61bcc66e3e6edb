//! What all clones of a memory store share: the parts of its map, its clock, and its identity.
//!
//! Checks and changes come in from [`MemoryStore`](crate::MemoryStore); decisions and what was applied go out. A
//! request with one check takes one lock and probes one table; one with several goes by [`Several`]. The clock is read
//! after the locks were taken.
//!
//! Only `MemoryStore` uses it. Times are microseconds since the Unix epoch, as [`micros`] bounds them.
//! Aligned windows are counted by the wall clock, and all else by the monotonic one, eviction included, which follows a
//! wall clock that is set back, by up to a day.

use std::borrow::Cow;
use std::sync::Arc;

use super::counters::Counters;
use super::several::Several;
use crate::core::Ban;
use crate::core::algorithm::ban::{self, Struck};
use crate::store::bans::applied_strike;
use crate::store::clock::{Clock, Times, micros};
use crate::store::evaluate::{adjustment, applied, decided, decided_one};
use crate::store::map::{Fingerprint, Fingerprints, Shards};
use crate::store::{Applied, Change, Check, Decided, StoreId, Taken};

/// Several parts are made only if each has room for so many keys.
const KEYS_PER_PART: usize = 1_024;

/// The counters, and the time by which they are decided.
pub(super) struct SharedCounters {
    /// What this store's receipts carry; those of another store are not settled here.
    pub(super) id: StoreId,
    /// The keyed hash, drawn at random for this store.
    fingerprints: Fingerprints,
    /// The counters; a fingerprint's hash picks the part.
    pub(super) shards: Shards<Counters>,
    /// Where the time comes from, at each decision and change.
    clock: Arc<dyn Clock>,
}

impl SharedCounters {
    /// Returns counters for up to `capacity` keys, all parts together.
    pub(super) fn new(capacity: usize, clock: Box<dyn Clock>) -> Self {
        let clock: Arc<dyn Clock> = clock.into();
        let shards = Shards::new(capacity, KEYS_PER_PART, |capacity| Counters::new(capacity, Arc::clone(&clock)));
        Self { id: StoreId::new(), fingerprints: Fingerprints::new(), shards, clock }
    }

    /// Returns how many keys are kept, locking one part after the other: it may count a moment that never was.
    pub(super) fn len(&self) -> usize {
        self.shards.each().map(|counters| counters.len()).sum()
    }

    /// Decides what most requests have: one check, with one look into one part.
    #[inline]
    pub(super) fn decide_one(&self, check: &Check) -> Decided {
        let of = self.fingerprints.of(&check.counter);
        let step = {
            let mut counters = self.shards.lock(of.hash);
            // Read under the lock: a request that waited for it must not come with an older time.
            let times = Times::read(&*self.clock, [check.counter.quota()]);
            counters.decide(of, check, times)
        };
        step.found.warn(check.counter.policy());
        decided_one(self.id, check, &step)
    }

    /// Decides several checks as one: all are taken, or none is.
    pub(super) fn decide(&self, checks: &[Check]) -> Decided {
        let mut several = Several::lock(&self.shards, &self.fingerprints, checks);
        let times = Times::read(&*self.clock, checks.iter().map(|check| check.counter.quota()));
        let mut bans = several.bans(checks, times.now);
        let (steps, refused) = several.evaluate(checks, &mut bans, times);
        let decided = decided(self.id, checks, &bans, &steps, refused);
        if refused {
            several.note_refusals(&steps);
        } else {
            several.commit(checks, &bans, steps, times);
        }
        several.keep_bans(checks, bans, times.now);
        decided
    }

    /// Changes what was taken, by a request that took others `before`; returns the units changed, and a look after it.
    ///
    /// `before` matters to token buckets, which refund no units that time has refilled since: which ones those are
    /// depends on what else the request took from the same bucket.
    pub(super) fn adjust(&self, before: &[Taken], taken: &Taken, change: Change) -> Applied {
        let Taken { counter, floor, .. } = taken;
        match change {
            Change::Strike(ban) => return self.strike(taken, &ban),
            Change::Lift => return self.forget(self.fingerprints.of_ban(counter), taken.stamp),
            Change::Reset => return self.forget(self.fingerprints.of(counter), taken.stamp),
            _ => {}
        }
        let of = self.fingerprints.of(counter);
        let (units, step) = {
            let mut counters = self.shards.lock(of.hash);
            let times = Times::read(&*self.clock, [counter.quota()]);
            counters.adjust(of, counter.quota(), *floor, times, adjustment(before, taken, change))
        };
        applied(taken, change, units, &step)
    }

    /// Forgets a counter or a ban: the next request finds an unused one.
    fn forget(&self, of: Fingerprint, stamp: u64) -> Applied {
        let found = self.shards.lock(of.hash).remove(of);
        Applied::new(found.into(), stamp)
    }

    /// Counts a strike against the key of a counter.
    fn strike(&self, taken: &Taken, ban: &Ban) -> Applied {
        let of = self.fingerprints.of_ban(&taken.counter);
        let mut counters = self.shards.lock(of.hash);
        let now_us = micros(self.clock.now());
        let before = counters.state(of).map(Cow::into_owned);
        let Some(struck) = ban::strike(before.as_ref(), now_us / 1_000, ban) else {
            return applied_strike(taken, ban, before.as_ref(), 0, now_us);
        };
        let Struck { state, life, units, .. } = struck;
        let applied = applied_strike(taken, ban, Some(&state), units, now_us);
        counters.keep_ban(of, state, life, now_us);
        applied
    }
}
