//! What one policy makes of a request.

use std::sync::Arc;

use http::request::Parts;

use super::resolved::{Ask, Resolved, Stage, Waiting};
use crate::core::Mode;
use crate::http::gate::Gate;
use crate::http::key::{Extracted, MissingKey};
use crate::http::policy::{AccessList, Policy, Terms};
use crate::http::response::Refusal;
use crate::limiter::Draft;
use crate::store::Answer;
use crate::{Error, Key, OnFailure, RawValues};

/// One policy, and a request that it judges.
#[derive(Clone, Copy)]
pub(crate) struct Judge<'a> {
    pub(super) gate: &'a Arc<Gate>,
    pub(super) policy: &'a Policy,
    place: usize,
    /// The head of the request, where it is at hand.
    pub(super) parts: Option<&'a Parts>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(gate: &'a Arc<Gate>, place: usize, parts: &'a Parts) -> Self {
        Self { gate, policy: &gate.policies[place], place, parts: Some(parts) }
    }

    /// For a request whose head is gone, as something had to be looked up for it.
    pub(super) fn without_parts(gate: &'a Arc<Gate>, place: usize) -> Self {
        Self { gate, policy: &gate.policies[place], place, parts: None }
    }

    /// What the policy makes of the request.
    pub(crate) fn resolve(self) -> Resolved {
        let options = self.policy.options();
        let Some(parts) = self.parts else { return Resolved::Skip };
        let Some(terms) = options.scope.terms(parts) else { return Resolved::Skip };
        let resolved = self.judge(parts, terms, |policy| policy.cost_of(parts));
        if self.policy.rule().mode() == Mode::Enforce { resolved } else { resolved.in_shadow() }
    }

    /// As [`resolve`](Self::resolve), for a request that the policy counts, and which only looks.
    pub(crate) fn resolve_look(self) -> Resolved {
        self.parts.map_or(Resolved::Skip, |parts| self.judge(parts, Terms::ALL, |_| 0))
    }

    fn judge(self, parts: &Parts, terms: Terms, units: impl FnOnce(&Policy) -> u64) -> Resolved {
        let (policy, options) = (self.policy, self.policy.options());
        let listed = |list: &AccessList| self.lists(list, parts);
        if options.deny.as_deref().is_some_and(|list| listed(list).unwrap_or(list.denies_unknown())) {
            return Resolved::refused(Refusal::Denied);
        }
        let allowed = options.allow.as_deref().is_some_and(|list| listed(list).unwrap_or(false));
        let terms = if allowed { Terms::NONE } else { terms };
        if !terms.counted && !terms.keyed && !policy.denies_values() {
            return Resolved::Skip;
        }
        let ask = self.ask(parts, terms, units);
        match policy.extractor().extract(parts) {
            Answer::Ready(extracted) => self.resolve_key(ask, extracted),
            // What looks like a preflight is not to have keys looked up without need: it costs nothing.
            Answer::Pending(_) if !terms.counted && !policy.refuses_by_key(terms) => Resolved::Skip,
            Answer::Pending(extracting) => self.waits(ask, Stage::Key(extracting)),
        }
    }

    /// The check so far; only a request that is counted has a cost and a tier.
    fn ask(self, parts: &Parts, terms: Terms, units: impl FnOnce(&Policy) -> u64) -> Ask {
        let policy = self.policy;
        let draft = if terms.counted {
            let (critical, quota) = (policy.is_critical(parts), policy.quota_of(parts));
            Draft { critical, ..Draft::new(self.place, units(policy), quota) }
        } else {
            Draft::new(self.place, 0, *policy.quota())
        };
        Ask { draft, terms }
    }

    /// Whether the request comes from an address on a list, which is unknown if its address is.
    fn lists(self, list: &AccessList, parts: &Parts) -> Option<bool> {
        if !list.has_nets() {
            return Some(false);
        }
        let address = self.policy.extractor().address(parts).or_else(|| self.gate.client.address(parts));
        if address.is_none() && list.meets_unknown() {
            tracing::warn!(
                code = "list_without_address",
                policy = self.policy.name(),
                "a request carries no address, so that it is on no list of addresses to allow, and refused by those to \
                 deny, unless they serve unknown addresses"
            );
        }
        address.map(|address| list.has_address(address))
    }

    /// Goes on once the key is known.
    pub(super) fn resolve_key(self, ask: Ask, extracted: Extracted) -> Resolved {
        let (policy, options) = (self.policy, self.policy.options());
        let mut offered = RawValues::default();
        let key = match (extracted, policy.rule_for_missing_key()) {
            (Extracted::Key(key), _) => key,
            (Extracted::Secret(secret), _) => {
                let key;
                (key, offered) = secret.into_parts();
                key
            }
            (Extracted::Missing, _) if self.denies_part() => return Resolved::refused(Refusal::Denied),
            (Extracted::Rejected(_) | Extracted::Missing, _) if !ask.terms.keyed => return Resolved::Skip,
            (Extracted::Rejected(response), _) => return Resolved::refused(Refusal::Rejected(response)),
            (Extracted::Failed(error), _) => return self.without_key(ask, *error),
            (Extracted::Ambiguous, rule) => return self.ambiguous(ask, rule),
            (Extracted::Missing, MissingKey::Skip) => return Resolved::Skip,
            (Extracted::Missing, MissingKey::Deny) => return Resolved::refused(Refusal::NoKey),
            (Extracted::Missing, MissingKey::Share) => Key::new("anonymous", ""),
        };
        let listed = |list: &Option<Arc<AccessList>>| list.as_deref().is_some_and(|list| list.has_key(&key));
        if listed(&options.deny) {
            return Resolved::refused(Refusal::Denied);
        }
        if !ask.terms.counted || listed(&options.allow) {
            return Resolved::Skip;
        }
        let Some(lookup) = policy.rule().tiers() else { return self.check(ask.draft, key) };
        let offered = || {
            if let Some(parts) = self.parts {
                policy.extractor().raw_values(parts, &mut offered);
            }
            offered
        };
        match lookup.find(&key, offered) {
            Answer::Ready(tier) => self.check(ask.draft.with_tier(tier), key),
            Answer::Pending(finding) => self.waits(ask, Stage::Tier(key, finding)),
        }
    }

    /// Goes on with a policy whose key could not be found out, as the layer says of failures.
    pub(super) fn without_key(self, ask: Ask, error: Error) -> Resolved {
        let (policy, rule) = (self.policy, self.gate.limits.failure.on_failure);
        if self.gate.unknown_keys.is_due() {
            let (policy, error) = (policy.name(), format!("{error:#}"));
            tracing::warn!(code = "key_unknown", policy, error, ?rule, "a key was not found out");
        }
        match (rule, policy.rule_for_missing_key()) {
            (OnFailure::Allow, _) => Resolved::Skip,
            (OnFailure::Deny, _) | (_, MissingKey::Deny) => Resolved::refused(Refusal::Failed(error)),
            // Anybody can bring about that keys are not found out, and may be on the list.
            _ if policy.denies_values() => Resolved::refused(Refusal::Failed(error)),
            (OnFailure::Fallback, _) if !ask.terms.counted => Resolved::Skip,
            (OnFailure::Fallback, _) => self.check(ask.draft, Key::new("unknown", "")),
        }
    }

    pub(super) fn check(self, draft: Draft, key: Key) -> Resolved {
        Resolved::Check(draft.check(self.policy.rule(), key))
    }

    fn waits(self, ask: Ask, stage: Stage) -> Resolved {
        Resolved::Waiting(Box::new(Waiting::new(Arc::clone(self.gate), ask, stage)))
    }
}
