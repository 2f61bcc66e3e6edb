//! A combiner for each slot in use: keys of one slot can be in one call.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use super::combine::Combiner;

/// As many as there are slots at most, each made when it is first needed.
pub(super) struct Combiners {
    slots: Box<[OnceLock<Arc<Combiner>>]>,
    batch_size: usize,
    all_waiting: Arc<AtomicUsize>,
}

impl Combiners {
    pub(super) fn new(slots: u16, batch_size: usize) -> Self {
        let slots = (0..slots).map(|_| OnceLock::new()).collect();
        Self { slots, batch_size, all_waiting: Arc::default() }
    }

    pub(super) fn of(&self, slot: u16) -> &Arc<Combiner> {
        let made = &self.slots[usize::from(slot) % self.slots.len()];
        made.get_or_init(|| Arc::new(Combiner::new(slot, self.batch_size, &self.all_waiting)))
    }
}
