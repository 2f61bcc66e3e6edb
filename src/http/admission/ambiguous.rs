//! Requests that do not say for certain whom a policy counts.

use super::judge::Judge;
use super::resolved::{Ask, Resolved};
use crate::http::key::{MissingKey, site};
use crate::http::response::Refusal;
use crate::{Key, RawValues};

impl Judge<'_> {
    /// Goes on with a policy of which a request does not say for certain whom it counts.
    ///
    /// It must not pass a list of those to refuse by that, nor start a counter of its own: all such
    /// requests of a policy share one, of the policy's own quota. Where the key has the client's address,
    /// which is certain, those of one address do, so that nobody uses up what is others'.
    pub(super) fn ambiguous(self, ask: Ask, rule: MissingKey) -> Resolved {
        let policy = self.policy;
        policy.rule().refusals().count_ambiguous(policy.rule().name());
        tracing::debug!(policy = policy.name(), ?rule, "a request does not say for certain whom to count");
        if let Some(list) = policy.options().deny.as_deref().filter(|list| list.has_values()) {
            let offered = self.offered();
            if offered.iter().any(|value| list.has_value(value)) {
                return Resolved::refused(Refusal::Denied);
            }
            if !offered.are_all() {
                return Resolved::refused(Refusal::Ambiguous);
            }
        }
        let address = self.parts.and_then(|parts| policy.extractor().address(parts));
        let key = || address.map_or(Key::fixed("ambiguous:"), |address| Key::new("ambiguous", site(address)));
        match rule {
            MissingKey::Deny if ask.terms.keyed => Resolved::refused(Refusal::Ambiguous),
            _ if !ask.terms.counted => Resolved::Skip,
            _ => self.check(ask.draft.with_tier(Some(*policy.quota())), key()),
        }
    }

    /// Whether a part of a joined key is on a list of those to refuse, though another part is missing.
    pub(super) fn denies_part(self) -> bool {
        let list = self.policy.options().deny.as_deref().filter(|list| list.has_values());
        let Some((list, parts)) = list.zip(self.parts) else { return false };
        let mut found = Vec::new();
        self.policy.extractor().keys(parts, &mut found);
        found.iter().any(|key| list.has_key(key))
    }

    /// The values of which the key of a request may be made.
    fn offered(self) -> RawValues {
        let mut offered = RawValues::default();
        if let Some(parts) = self.parts {
            self.policy.extractor().raw_values(parts, &mut offered);
        }
        offered
    }
}
