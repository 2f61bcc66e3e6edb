//! What one policy refuses.

use std::sync::OnceLock;

use metrics::{Counter, Label};

use super::names::POLICY_REFUSALS;
use crate::store::Mode;
use crate::{Outcome, Policy};

/// The refusals of a policy. A handle is made with its first outcome, so that a policy which has not
/// refused yet is seen to be at 0.
#[derive(Clone, Default)]
pub(crate) struct Refusals {
    enforced: OnceLock<Counter>,
    in_shadow: OnceLock<Counter>,
}

impl Refusals {
    /// Counts what a policy says if that is a refusal.
    pub(crate) fn count(&self, policy: &Policy, outcome: &Outcome) {
        let (handle, mode) = match outcome.mode() {
            Mode::Enforce => (&self.enforced, "enforce"),
            Mode::Shadow => (&self.in_shadow, "shadow"),
        };
        let labels = || vec![Label::new("policy", policy.name().to_owned()), Label::from_static_parts("mode", mode)];
        let counter = handle.get_or_init(|| POLICY_REFUSALS.counter_of(labels()));
        if !outcome.is_allowed() {
            counter.increment(1);
        }
    }
}
