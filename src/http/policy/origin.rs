//! Which policies share their counters, and whether that is meant: clones of one policy are meant to.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Policy;

/// The identity of a policy and its clones, and of the policies that it replaced and whose counters it continues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    own: u64,
    continued: u64,
}

impl Origin {
    /// A new identity, different from all others.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let own = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { own, continued: own }
    }

    /// Whether one is a clone of the other, or continues the same policy, or the other.
    fn is_of(self, other: Self) -> bool {
        [self.own, self.continued].iter().any(|id| [other.own, other.continued].contains(id))
    }
}

impl Policy {
    /// Returns whether both are clones of one policy.
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        self.origin.is_of(other.origin)
    }

    /// Returns whether a key has one counter for both policies in a store.
    pub(crate) fn shares_counters(&self, other: &Self) -> bool {
        self.name() == other.name() && self.quota().shares_shape(other.quota())
    }

    /// Returns the policy as a clone of the one among `others` that it replaces, if there is one.
    pub(crate) fn continuing(self, others: &[Self]) -> Self {
        // Names are unique in a layer. Another window has other counters, which are shared as those before were.
        let before = others.iter().find(|other| self.name() == other.name());
        let continued = before.map_or(self.origin.continued, |before| before.origin.continued);
        Self { origin: Origin { continued, ..self.origin }, ..self }
    }
}
