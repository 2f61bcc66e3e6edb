//! Requests that do not say for certain whom a policy counts.

use http::request::Parts;

use super::{Ask, Resolved};
use crate::http::admission::Verdict;
use crate::http::gate::Gate;
use crate::http::key::site;
use crate::{Key, MissingKey, Policy, RawValues};

impl Gate {
    /// Goes on with a policy of which a request does not say for certain whom it counts.
    ///
    /// It must not pass a list of those to refuse by that, nor start a counter of its own: all such
    /// requests of a policy share one, of the policy's own quota. Where the key has the client's address,
    /// which is certain, those of one address do, so that nobody uses up what is others'.
    pub(super) fn ambiguous(&self, ask: Ask, rule: MissingKey, parts: Option<&Parts>) -> Resolved {
        let policy = &self.policies[ask.policy];
        policy.refusals().count_ambiguous(policy.shared_name());
        tracing::debug!(policy = policy.name(), ?rule, "a request does not say for certain whom to count");
        if let Some(list) = policy.options().deny.as_deref().filter(|list| list.has_values()) {
            let offered = offered(policy, parts);
            if offered.iter().any(|value| list.has_value(value)) {
                return Resolved::verdict(Verdict::Denied);
            }
            if !offered.are_all() {
                return Resolved::verdict(Verdict::Ambiguous);
            }
        }
        let address = parts.and_then(|parts| policy.extractor().address(parts));
        let key = || address.map_or(Key::fixed("ambiguous:"), |address| Key::new("ambiguous", site(address)));
        match rule {
            MissingKey::Deny if ask.terms.keyed => Resolved::verdict(Verdict::Ambiguous),
            _ if !ask.terms.counted => Resolved::Skip,
            _ => Resolved::Check(ask.with_quota(*policy.quota()).check(policy, key())),
        }
    }
}

/// Whether a part of a joined key is on a list of those to refuse, though another part is missing.
pub(super) fn denies_part(policy: &Policy, parts: Option<&Parts>) -> bool {
    let list = policy.options().deny.as_deref().filter(|list| list.has_values());
    let Some((list, parts)) = list.zip(parts) else { return false };
    let mut found = Vec::new();
    policy.extractor().keys(parts, &mut found);
    found.iter().any(|key| list.has_key(key))
}

/// The values of which the key of a request may be made.
fn offered(policy: &Policy, parts: Option<&Parts>) -> RawValues {
    let mut offered = RawValues::default();
    if let Some(parts) = parts {
        policy.extractor().raw_values(parts, &mut offered);
    }
    offered
}
