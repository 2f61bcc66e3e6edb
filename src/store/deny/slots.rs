//! When counters were changed, so that what was refused before is not told after.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters share at most so many slots: one forgotten, a few others are too.
const MOST_SLOTS: usize = 16_384;

/// A change that is sent in the background may arrive this much later. Refusals asked for meanwhile
/// are not remembered.
const ON_ITS_WAY_US: u64 = 100_000;

/// Slots for counters, by their hash. Times are microseconds.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[Slot]>,
    /// Until when there may be refusals to forget in any of them.
    live_until: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    /// How often the counters were forgotten.
    generation: AtomicU64,
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

    /// Whether there may be a refusal of any counter that holds at a time: mostly there is none.
    pub(super) fn may_be_live(&self, now: u64) -> bool {
        self.live_until.load(Ordering::SeqCst) > now
    }

    pub(super) fn generation(&self, hash: u64) -> u64 {
        self.slot(hash).generation.load(Ordering::SeqCst)
    }

    pub(super) fn forget(&self, hash: u64) {
        self.slot(hash).generation.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn forget_if_live(&self, hash: u64, now: u64) {
        if self.slot(hash).live_until.load(Ordering::SeqCst) > now {
            self.forget(hash);
        }
    }

    /// Forgets what is known, and what is asked for before the change has surely arrived.
    pub(super) fn forget_for_a_while(&self, hash: u64, now: u64) {
        let until = now.saturating_add(ON_ITS_WAY_US);
        self.slot(hash).unsettled_until.store(until, Ordering::SeqCst);
        self.forget(hash);
    }

    /// Whether a refusal asked for at `sent` may be remembered: nothing was changed since, nor may
    /// have been on its way.
    pub(super) fn admit(&self, hash: u64, generation: u64, sent: u64, until: u64) -> bool {
        let slot = self.slot(hash);
        let settled =
            slot.generation.load(Ordering::SeqCst) == generation && sent >= slot.unsettled_until.load(Ordering::SeqCst);
        if settled {
            // Before the slot's, so that who sees that sees this.
            self.live_until.fetch_max(until, Ordering::SeqCst);
            slot.live_until.fetch_max(until, Ordering::SeqCst);
        }
        settled
    }

    fn slot(&self, hash: u64) -> &Slot {
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let bits = hash as usize;
        &self.slots[bits & (self.slots.len() - 1)]
    }
}
