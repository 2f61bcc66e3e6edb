//! Requests that do not say for certain whom a policy counts.

use http::request::Parts;

use super::{Ask, Resolved};
use crate::admission::Verdict;
use crate::gate::Gate;
use crate::{Key, MissingKey, RawValues};

impl Gate {
    /// Goes on with a policy of which a request does not say for certain whom it counts.
    ///
    /// It must not pass a list of those to refuse by that, nor start a counter of its own: all such
    /// requests of a policy share one, of the policy's own quota.
    pub(super) fn ambiguous(&self, ask: Ask, rule: MissingKey, parts: Option<&Parts>) -> Resolved {
        let policy = &self.policies[ask.policy];
        policy.refusals().count_ambiguous(policy);
        tracing::debug!(policy = policy.name(), ?rule, "a request does not say for certain whom to count");
        if let Some(list) = policy.options().deny.as_deref().filter(|list| list.has_values()) {
            let mut offered = RawValues::default();
            if let Some(parts) = parts {
                policy.extractor().raw_values(parts, &mut offered);
            }
            if offered.iter().any(|value| list.has_value(value)) {
                return Resolved::verdict(Verdict::Denied);
            }
            if !offered.are_all() {
                return Resolved::verdict(Verdict::Ambiguous);
            }
        }
        match rule {
            MissingKey::Deny if ask.terms.keyed => Resolved::verdict(Verdict::Ambiguous),
            _ if !ask.terms.counted => Resolved::Skip,
            _ => Resolved::Check(ask.with_quota(*policy.quota()).check(policy, Key::fixed("ambiguous:"))),
        }
    }
}
