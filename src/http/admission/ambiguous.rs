//! Requests whose key is ambiguous, such as one with two different values of the header that identifies the client, or
//! whose cost is.
//!
//! A client can make any request ambiguous, so that must have no advantage: not pass a deny list, not start a fresh
//! counter, not use up the counter of another client. docs/names.md has the rules for users.

use super::judge::Judge;
use super::resolved::{Keyless, Resolved};
use crate::core::Key;
use crate::http::key::{self, MissingKey};
use crate::http::response::Refusal;
use crate::store::Answer;

impl Judge<'_> {
    /// Resolves a policy for which the request has an ambiguous key.
    ///
    /// All ambiguous requests of a policy share one counter, with the policy's own quota. Where the key contains the
    /// client's address, which is certain, those of one address share one, so that no client uses up the units of
    /// others. A deny list of values refuses the request, as any of them may be the client's.
    ///
    /// The request counts in `tollgate_ambiguous_keys_total`, whatever becomes of it.
    pub(super) fn ambiguous(self, keyless: Keyless) -> Resolved {
        let policy = self.policy;
        self.note_ambiguous("a request has an ambiguous key");
        if policy.refuses_by_key(keyless.terms) {
            return Resolved::refused(Refusal::Ambiguous);
        }
        if keyless.terms.counted { self.check_ambiguous(keyless) } else { Resolved::Skip(keyless.uncounted) }
    }

    /// Resolves a policy for which the request has a key, but an ambiguous cost: as one with an ambiguous key, unless the
    /// policy bans keys, as no client may leave its ban that way.
    pub(super) fn ambiguous_cost(self, keyless: Keyless) -> Resolved {
        self.note_ambiguous("a request has an ambiguous cost");
        if self.policy.rule().banning().is_some() || self.policy.rule_for_missing_key() == MissingKey::Deny {
            return Resolved::refused(Refusal::Ambiguous);
        }
        self.check_ambiguous(keyless)
    }

    fn check_ambiguous(self, mut keyless: Keyless) -> Resolved {
        let address = self.parts.and_then(|parts| {
            let mut keys = key::parts(self.policy.extractor()).into_iter().filter(|key| key.info().address_in_key);
            keys.find_map(|key| key.address(parts))
        });
        let of_address = |address| Key::new("ambiguous", key::ip_key(address, key::DEFAULT_V6_PREFIX).value());
        let key = address.map_or(Key::fixed("ambiguous:"), of_address);
        keyless.draft.limit = self.policy.rule().limit(None);
        self.check_shared(keyless.draft, key)
    }

    fn note_ambiguous(self, what: &'static str) {
        let policy = self.policy;
        self.gate.limits.telemetry.ambiguous(policy.rule().name());
        tracing::debug!(policy = policy.name(), rule = ?policy.rule_for_missing_key(), "{what}");
    }

    /// Returns whether a part of a joined key is on the deny list, although another part is missing.
    ///
    /// Otherwise a denied client would be admitted by leaving the other part out.
    pub(super) fn denies_part(self) -> bool {
        let list = self.policy.options().deny.as_deref().filter(|list| list.has_values());
        let Some((list, parts)) = list.zip(self.parts) else { return false };
        key::parts(self.policy.extractor()).into_iter().any(|part| match part.extract(parts) {
            Answer::Ready(found) => found.into_key().is_ok_and(|(key, _)| list.has_key(&key)),
            // It would have to be looked up.
            Answer::Pending(_) => false,
        })
    }
}
