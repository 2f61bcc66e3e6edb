//! Keeps the handles of each policy from the first time on.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use arc_swap::ArcSwap;

use crate::core::PolicyName;

/// How many policies have handles that are kept; those of others are looked up each time.
const MOST_POLICIES: usize = 1_024;

type Handles<H> = HashMap<PolicyName, Arc<H>, RandomState>;

/// The handles of each policy.
#[derive(Debug)]
pub(super) struct ByPolicy<H>(ArcSwap<Handles<H>>);

impl<H> Default for ByPolicy<H> {
    fn default() -> Self {
        Self(ArcSwap::default())
    }
}

impl<H> ByPolicy<H> {
    /// Calls `count` with the handles of a policy, made the first time.
    pub(super) fn with(&self, policy: &PolicyName, make: impl FnOnce() -> H, count: impl FnOnce(&H)) {
        if let Some(handles) = self.0.load().get(policy) {
            return count(handles);
        }
        let handles = Arc::new(make());
        if self.0.load().len() < MOST_POLICIES {
            self.0.rcu(|each| {
                let mut each = HashMap::clone(each);
                each.entry(policy.clone()).or_insert_with(|| Arc::clone(&handles));
                each
            });
        }
        // Handles of the same names count together.
        count(&handles);
    }

    /// Returns the handles that are kept.
    pub(super) fn kept(&self) -> Arc<Handles<H>> {
        self.0.load_full()
    }
}
