//! Which keys the policy of a rule counts.

use crate::core::{Key, PolicyName};

/// Returns `true` if requests without a certain key share the counter, of any policy.
fn is_shared(key: &Key) -> bool {
    matches!(key.as_str(), "anonymous:" | "unknown:") || key.kind() == "ambiguous"
}

/// Which keys the rule of a policy counts.
#[derive(Clone, Debug)]
pub(crate) struct RuleKeys {
    /// `None` if it is not known, as a closure makes the keys.
    kind: Option<Box<str>>,
    /// Whether the policy applies to some requests only.
    has_scope: bool,
}

impl RuleKeys {
    pub(crate) fn new(kind: Option<Box<str>>, has_scope: bool) -> Self {
        Self { kind, has_scope }
    }

    /// Returns `true` if a key counts wherever requests have it, and some may.
    pub(super) fn are_for(&self, key: &Key) -> bool {
        !self.has_scope && (self.kind.as_deref() == Some(key.kind()) || is_shared(key))
    }

    /// Returns what an error says of a policy that is not selected.
    pub(super) fn describe(&self, name: &PolicyName) -> String {
        match (self.kind.as_deref(), self.has_scope) {
            (Some(kind), false) => format!("{:?} has keys of kind {kind:?}", name.as_str()),
            (Some(kind), true) => format!("{:?} has keys of kind {kind:?}, of some requests only", name.as_str()),
            (None, _) => format!("{:?} has keys of a closure", name.as_str()),
        }
    }
}
