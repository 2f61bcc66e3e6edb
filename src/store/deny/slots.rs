//! When counters were changed, so that an older refusal is not served afterwards.
//!
//! Hashes of counters come in. Each of at most 16,384 slots has the time of the last change of a counter that picks it; a
//! refusal is live only if the store was called later. So forgetting a counter is one write, without a search for its
//! refusals, but counters of the same slot are forgotten with it.
//!
//! All fields are atomics, read and written in one total order (`SeqCst`) without any lock. Times are microseconds
//! of the cache's clock.

use std::sync::atomic::{AtomicU64, Ordering};

/// The most slots, which counters share: if one is forgotten, a few others are too.
const MOST_SLOTS: usize = 16_384;

/// Slots for counters, by their hash.
#[derive(Debug)]
pub(super) struct Slots(Box<[Slot]>);

/// The state of all counters that pick this slot.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Refusals by calls made before this are forgotten.
    from: AtomicU64,
    /// Until when there may be refusals to serve or forget: mostly there are none.
    until: AtomicU64,
}

impl Slots {
    /// Slots for so many refusals.
    pub(super) fn new(refusals: usize) -> Self {
        let slots = refusals.min(MOST_SLOTS).next_power_of_two();
        Self((0..slots).map(|_| Slot::default()).collect())
    }

    /// Returns the slot that the low bits of a hash pick.
    pub(super) fn of(&self, hash: u64) -> &Slot {
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let bits = hash as usize;
        &self.0[bits & (self.0.len() - 1)]
    }
}

impl Slot {
    /// Returns whether there may be a refusal that holds at `now`.
    pub(super) fn may_be_live(&self, now: u64) -> bool {
        self.until.load(Ordering::SeqCst) > now
    }

    /// Returns until when there may be refusals.
    pub(super) fn until(&self) -> u64 {
        self.until.load(Ordering::SeqCst)
    }

    /// Forgets refusals by calls made before a time.
    pub(super) fn forget(&self, before: u64) {
        self.from.fetch_max(before, Ordering::SeqCst);
    }

    /// Returns whether a refusal by a call made at `sent` is not forgotten.
    pub(super) fn keeps(&self, sent: u64) -> bool {
        sent >= self.from.load(Ordering::SeqCst)
    }

    /// Notes that there is a refusal until then.
    pub(super) fn note(&self, until: u64) {
        self.until.fetch_max(until, Ordering::SeqCst);
    }
}
