//! Counts the slots that are held, and those that stores have lost.
//!
//! Several layers add up in one gauge, so what this one added is subtracted when it is dropped.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge};

use super::names::{SLOTS_HELD, SLOTS_LOST};
use crate::core::observer::ObserveSlots;

/// The slots that are held of one store.
#[derive(Debug, Default)]
pub(super) struct Slots {
    handles: OnceLock<Handles>,
    held: AtomicU64,
}

/// The handles, registered with the first event.
#[derive(Debug)]
struct Handles {
    held: Gauge,
    lost: Counter,
}

impl Slots {
    fn handles(&self) -> &Handles {
        self.handles.get_or_init(Handles::new)
    }
}

#[allow(clippy::cast_precision_loss, reason = "there are far fewer slots")]
impl ObserveSlots for Slots {
    fn taken(&self, slots: u64) {
        self.held.fetch_add(slots, Ordering::Relaxed);
        self.handles().held.increment(slots as f64);
    }

    fn released(&self, slots: u64) {
        self.held.fetch_sub(slots, Ordering::Relaxed);
        self.handles().held.decrement(slots as f64);
    }

    fn lost(&self, slots: u64) {
        self.handles().lost.increment(slots);
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let held = *self.held.get_mut();
        if held > 0 {
            self.released(held);
        }
    }
}

impl Handles {
    fn new() -> Self {
        Self { held: SLOTS_HELD.gauge(), lost: SLOTS_LOST.counter([]) }
    }
}

/// Registers all series, so that they are seen at 0.
pub(super) fn announce() {
    let _ = Handles::new();
}
