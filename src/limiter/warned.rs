//! Warnings about limits that limit nothing, each cause once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(crate) struct Warned {
    no_rules: AtomicBool,
    slots: AtomicBool,
    unmetered: AtomicBool,
    twice: AtomicBool,
}

impl Warned {
    /// Warns again, for another layer with the same limits.
    pub(crate) fn renewed(&self) -> Self {
        Self { no_rules: AtomicBool::new(self.no_rules.load(Relaxed)), ..Self::default() }
    }

    pub(crate) fn no_rules_is_meant(&self) {
        self.no_rules.store(true, Relaxed);
    }

    #[cold]
    pub(crate) fn no_rules(&self) {
        if is_first(&self.no_rules) {
            tracing::warn!(code = "TG005", "no policy, so nothing is limited");
        }
    }

    #[cold]
    pub(crate) fn unmetered(&self) {
        if is_first(&self.unmetered) {
            tracing::warn!(code = "TG006", "cost of a request ignored, no policy is metered");
        }
    }

    #[cold]
    pub(crate) fn twice(&self) {
        if is_first(&self.twice) {
            tracing::warn!(code = "TG008", "layer wraps a request twice, counting it once");
        }
    }

    #[cold]
    pub(super) fn slots(&self) {
        if is_first(&self.slots) {
            tracing::warn!(code = "TG007", "check released its slots at once");
        }
    }
}

pub(crate) fn is_first(warned: &AtomicBool) -> bool {
    !warned.load(Relaxed) && !warned.swap(true, Relaxed)
}
