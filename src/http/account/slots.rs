//! The slots of one request: held by its account until the response has a body, then by that body.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::{SlotGuard, WeakSlots};

/// The slots of a request, as its layer and all handles share them. Handles do not hold them: they may be kept for hours.
pub(super) struct RequestSlots(Mutex<State>);

enum State {
    /// There is no response yet: what the request takes is held here.
    Held(SlotGuard),
    /// The body of the response holds them, or they were released.
    Passed(WeakSlots),
}

impl RequestSlots {
    /// The slots that the layer's decision took.
    pub(super) fn new(slots: SlotGuard) -> Self {
        Self(Mutex::new(State::Held(slots)))
    }

    /// Adds what a check of the handler took. After the response it is released at once, as no end of a body follows.
    pub(super) fn add(&self, slots: SlotGuard) {
        if slots.is_empty() {
            return;
        }
        if let State::Held(all) = &mut *self.state() {
            return all.add(slots);
        }
        // Dropped without the lock.
        drop(slots);
    }

    /// Returns a guard of the slots that the request still holds.
    pub(super) fn guard(&self) -> SlotGuard {
        match &*self.state() {
            State::Held(slots) => slots.clone(),
            State::Passed(slots) => SlotGuard::upgrade(slots),
        }
    }

    /// Returns the slots, from then on held by the returned guard alone; nothing if they were passed on before.
    pub(super) fn pass(&self) -> SlotGuard {
        let mut state = self.state();
        let State::Held(slots) = &mut *state else { return SlotGuard::default() };
        let slots = mem::take(slots);
        *state = State::Passed(slots.downgrade());
        slots
    }

    /// Locks the state. Nothing panics while it is locked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
