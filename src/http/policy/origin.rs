//! Which policies share their counters, and whether that is meant: clones of one policy are meant to.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Policy;

/// The identity of a policy and its clones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin(u64);

impl Origin {
    /// A new identity, different from all others.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Policy {
    /// Returns whether both are clones of one policy.
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        self.origin == other.origin
    }

    /// Returns whether a key has one counter for both policies in a store.
    pub(crate) fn shares_counters(&self, other: &Self) -> bool {
        self.name() == other.name() && self.quota().shares_shape(other.quota())
    }

    /// Returns the policy as a clone of the one among `others` whose counters it continues, if there is one.
    pub(crate) fn continuing(self, others: &[Self]) -> Self {
        let before = others.iter().find(|other| self.shares_counters(other));
        Self { origin: before.map_or(self.origin, |before| before.origin), ..self }
    }
}
