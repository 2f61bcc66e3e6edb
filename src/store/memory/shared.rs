//! The counters that clones share, and how requests are decided on them.
//!
//! A request with one check takes one lock and probes one table. One with several is decided under the locks of all parts
//! that it concerns, so no other request sees a part of its effects; a refused one takes nothing from any counter: it
//! writes strikes and ranks only. The clock is read after the locks were taken.
//!
//! Times are microseconds since the Unix epoch, as [`micros`](crate::store::clock::micros) bounds them. Aligned windows
//! are counted by the wall clock, and all else by the monotonic one, eviction included, which follows a wall clock that is
//! set back, by up to a day.

use std::sync::Arc;

use smallvec::SmallVec;

use super::counters::Counters;
use crate::core::Quota;
use crate::store::bans::{changed, log, with_bans};
use crate::store::clock::{Clock, Times};
use crate::store::evaluate::{adjustment, applied, decided, decided_one, evaluate, finish, is_kept};
use crate::store::map::{Fingerprint, Fingerprints, Shards};
use crate::store::{Change, ChangeResult, Check, Mode, ReceiptItem, StoreDecision, StoreId};

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

    /// Decides what most requests have: one check, with one look into one part.
    #[inline]
    pub(super) fn decide_one(&self, check: &Check) -> StoreDecision {
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
    pub(super) fn decide(&self, checks: &[Check]) -> StoreDecision {
        let checks = &*with_bans(checks);
        // Pushed one by one, which is quicker than to collect them where there are few.
        let mut fingerprints = SmallVec::<[Fingerprint; 4]>::with_capacity(checks.len());
        for check in checks {
            fingerprints.push(self.fingerprints.of(&check.counter));
        }
        let mut parts = self.shards.lock_all(fingerprints.iter().map(|of| of.hash));
        let times = Times::read(&*self.clock, checks.iter().map(|check| check.counter.quota()));
        let state = |index| parts.part(index).state(fingerprints[index]);
        let now = |quota: &Quota| times.ticks(quota);
        let (mut steps, refused) = evaluate(checks, state, now);
        finish(checks, &mut steps, refused, state, now);
        // Checks of one counter in their order, so the last of them, which was decided on the sum, stays.
        for (index, check) in checks.iter().enumerate() {
            let (of, counters) = (fingerprints[index], parts.of(index).1);
            if is_kept(checks, &steps, index, refused) {
                counters.keep(of, check.counter.quota(), &mut steps[index], times);
            } else if refused && !steps[index].fits && check.mode == Mode::Enforce {
                counters.refused(of);
            }
        }
        // Nothing is logged under the locks.
        drop(parts);
        log(checks, &steps);
        decided(self.id, checks, &steps, refused)
    }

    /// Changes what was taken, by a request that took others `before`; returns the units changed, and a look after it.
    ///
    /// `before` matters to token buckets, which refund no units that time has refilled since: which ones those are
    /// depends on what else the request took from the same bucket.
    pub(super) fn adjust(&self, before: &[ReceiptItem], taken: &ReceiptItem, change: Change) -> ChangeResult {
        let (taken, change) = changed(taken, change);
        let ReceiptItem { counter, floor, .. } = &*taken;
        let of = self.fingerprints.of(counter);
        if change == Change::Reset {
            // The next request finds an unused counter.
            let found = self.shards.lock(of.hash).remove(of);
            return ChangeResult::new(found.into(), taken.stamp);
        }
        let (units, step) = {
            let mut counters = self.shards.lock(of.hash);
            let times = Times::read(&*self.clock, [counter.quota()]);
            counters.adjust(of, counter.quota(), *floor, times, adjustment(before, &taken, change))
        };
        applied(&taken, change, units, &step)
    }
}
