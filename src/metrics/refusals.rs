//! What one policy refuses, and of which requests it cannot tell whom to count.

use std::sync::OnceLock;

use metrics::{Counter, Label};

use super::names::{AMBIGUOUS_KEYS, POLICY_REFUSALS};
use crate::core::{Mode, Outcome, PolicyName};

/// The refusals of a policy. A handle is made with its first outcome, so that a policy which has not
/// refused yet is seen to be at 0.
#[derive(Clone, Default)]
pub(crate) struct Refusals {
    enforced: OnceLock<Counter>,
    in_shadow: OnceLock<Counter>,
    ambiguous: OnceLock<Counter>,
}

impl Refusals {
    /// Counts what a policy says if that is a refusal.
    pub(crate) fn count(&self, outcome: &Outcome) {
        let (handle, mode) = match outcome.mode() {
            Mode::Enforce => (&self.enforced, "enforce"),
            Mode::Shadow => (&self.in_shadow, "shadow"),
        };
        let policy = outcome.policy_name();
        let labels = || vec![Label::new("policy", policy.as_str().to_owned()), Label::from_static_parts("mode", mode)];
        let counter = handle.get_or_init(|| POLICY_REFUSALS.counter_of(labels()));
        if !outcome.is_allowed() {
            counter.increment(1);
        }
        self.ambiguous(policy);
    }

    /// Counts a request whose key is not certain.
    pub(crate) fn count_ambiguous(&self, policy: &PolicyName) {
        self.ambiguous(policy).increment(1);
    }

    fn ambiguous(&self, policy: &PolicyName) -> &Counter {
        let labels = || vec![Label::new("policy", policy.as_str().to_owned())];
        self.ambiguous.get_or_init(|| AMBIGUOUS_KEYS.counter_of(labels()))
    }
}
