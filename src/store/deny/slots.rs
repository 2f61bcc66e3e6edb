//! When counters were changed, so that an older refusal is not served afterwards.
//!
//! Hashes of counters come in. Each of at most 16,384 slots has a generation, a number that grows with each change
//! of a counter that picks the slot. A refusal carries the generation of when the store was called; it is live only as
//! long as the slot has the same one. So forgetting a counter is one addition, without a search for its refusals, but
//! counters of the same slot are forgotten with it.
//!
//! All fields are atomics, read and written in one total order (`SeqCst`) without any lock. Times are microseconds
//! of the cache's clock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The most slots, which counters share: if one is forgotten, a few others are too.
const MOST_SLOTS: usize = 16_384;

/// A change that is sent in the background may arrive this much later. Refusals by calls made
/// meanwhile are not cached.
const ON_ITS_WAY_US: u64 = 100_000;

/// Slots for counters, by their hash. Times are microseconds.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[Slot]>,
    /// Until when there may be refusals to forget in any of them.
    live_until: AtomicU64,
}

/// The state of all counters that pick this slot.
#[derive(Debug, Default)]
struct Slot {
    /// How often the counters were forgotten.
    generation: AtomicU32,
    /// Until when there may be refusals to forget.
    live_until: AtomicU64,
    /// Until when a change may be on its way.
    unsettled_until: AtomicU64,
}

impl Slots {
    /// Slots for so many refusals.
    pub(super) fn new(refusals: usize) -> Self {
        let slots = refusals.min(MOST_SLOTS).next_power_of_two();
        Self { slots: (0..slots).map(|_| Slot::default()).collect(), live_until: AtomicU64::new(0) }
    }

    /// Returns whether any counter may have a refusal that holds at `now`: mostly none has.
    pub(super) fn may_be_live(&self, now: u64) -> bool {
        self.live_until.load(Ordering::SeqCst) > now
    }

    /// Returns the generation of a counter's slot.
    pub(super) fn generation(&self, hash: u64) -> u32 {
        self.slot(hash).generation.load(Ordering::SeqCst)
    }

    /// Forgets all refusals of a counter's slot.
    pub(super) fn forget(&self, hash: u64) {
        self.slot(hash).generation.fetch_add(1, Ordering::SeqCst);
    }

    /// As [`forget`](Self::forget), if there may be a refusal that holds at `now`: otherwise there is nothing to
    /// forget.
    pub(super) fn forget_if_live(&self, hash: u64, now: u64) {
        if self.slot(hash).live_until.load(Ordering::SeqCst) > now {
            self.forget(hash);
        }
    }

    /// Forgets cached refusals, and those by calls made before the change has surely arrived.
    pub(super) fn forget_for_a_while(&self, hash: u64, now: u64) {
        let until = now.saturating_add(ON_ITS_WAY_US);
        self.slot(hash).unsettled_until.store(until, Ordering::SeqCst);
        self.forget(hash);
    }

    /// Returns whether a refusal by a call made at `sent` may be cached: nothing was changed since, nor may
    /// a change have been on its way.
    ///
    /// If it may, the slot and the whole are noted to have refusals until `until`.
    pub(super) fn admit(&self, hash: u64, generation: u32, sent: u64, until: u64) -> bool {
        let slot = self.slot(hash);
        let settled =
            slot.generation.load(Ordering::SeqCst) == generation && sent >= slot.unsettled_until.load(Ordering::SeqCst);
        if settled {
            // Before the slot's, so that a thread that sees that one sees this one too.
            self.live_until.fetch_max(until, Ordering::SeqCst);
            slot.live_until.fetch_max(until, Ordering::SeqCst);
        }
        settled
    }

    /// Returns the slot that the low bits of a hash pick.
    fn slot(&self, hash: u64) -> &Slot {
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let bits = hash as usize;
        &self.slots[bits & (self.slots.len() - 1)]
    }
}
