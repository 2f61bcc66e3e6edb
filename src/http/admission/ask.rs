//! What each policy asks of the store for a request.

mod ambiguous;

use std::sync::Arc;

use http::request::Parts;

use crate::http::admission::Verdict;
use crate::http::admission::waiting::{Stage, Waiting};
use crate::http::gate::Gate;
use crate::http::key::Extracted;
use crate::http::policy::{AccessList, Cost, Terms, Tiers};
use crate::store::{Answer, Check, Counter, Mode};
use crate::{Error, Key, MissingKey, OnFailure, Policy, Quota, RawValues};

/// What a policy makes of a request.
pub(crate) enum Resolved {
    /// It asks the store.
    Check(Check),
    /// It does not apply.
    Skip,
    /// It has to look something up, and has not begun.
    Waiting(Box<Waiting>),
    /// It knows what becomes of it; boxed, as it is large and rare.
    Verdict(Box<Verdict>),
}

impl Resolved {
    fn verdict(verdict: Verdict) -> Self {
        Resolved::Verdict(Box::new(verdict))
    }

    /// What is left of it for a policy that never refuses.
    pub(crate) fn in_shadow(self) -> Self {
        match self {
            Resolved::Verdict(_) => Resolved::Skip,
            Resolved::Waiting(waiting) => Resolved::Waiting(Box::new(waiting.in_shadow())),
            other => other,
        }
    }
}

/// What is known of a policy's check before its key.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) policy: usize,
    cost: u64,
    critical: bool,
    quota: Quota,
    terms: Terms,
}

impl Gate {
    /// Finds out what a policy makes of a request.
    pub(crate) fn resolve(&self, place: usize, parts: &Parts) -> Resolved {
        let options = self.policies[place].options();
        let Some(terms) = options.scope.terms(parts) else { return Resolved::Skip };
        let resolved = self.judge(place, parts, terms, |cost| cost.of(parts));
        if options.mode == Mode::Enforce { resolved } else { resolved.in_shadow() }
    }

    /// As [`resolve`](Self::resolve), for a request that the policy counts, and which takes what `units` makes
    /// of its cost.
    pub(crate) fn resolve_covered(&self, place: usize, parts: &Parts, units: impl FnOnce(&Cost) -> u64) -> Resolved {
        self.judge(place, parts, Terms::ALL, units)
    }

    fn judge(&self, place: usize, parts: &Parts, terms: Terms, units: impl FnOnce(&Cost) -> u64) -> Resolved {
        let policy = &self.policies[place];
        let options = policy.options();
        let listed = |list: &AccessList| self.lists(list, policy, parts);
        if options.deny.as_deref().is_some_and(|list| listed(list).unwrap_or(list.denies_unknown())) {
            return Resolved::verdict(Verdict::Denied);
        }
        let allowed = options.allow.as_deref().is_some_and(|list| listed(list).unwrap_or(false));
        let terms = if allowed { Terms::NONE } else { terms };
        if !terms.counted && !terms.keyed && !policy.denies_values() {
            return Resolved::Skip;
        }
        let ask = Ask::of(place, policy, parts, terms, units);
        match policy.extractor().extract(parts) {
            Answer::Ready(extracted) => self.resolve_key(ask, extracted, Some(parts)),
            // What looks like a preflight is not to have keys looked up without need: it costs nothing.
            Answer::Pending(_) if !terms.counted && !policy.refuses_by_key(terms) => Resolved::Skip,
            Answer::Pending(extracting) => Resolved::Waiting(Box::new(Waiting::new(ask, Stage::Key(extracting)))),
        }
    }

    /// Whether the request comes from an address on a list, which is unknown if its address is.
    fn lists(&self, list: &AccessList, policy: &Policy, parts: &Parts) -> Option<bool> {
        if !list.has_nets() {
            return Some(false);
        }
        let address = policy.extractor().address(parts).or_else(|| self.client.address(parts));
        if address.is_none() && list.meets_unknown() {
            tracing::warn!(
                code = "list_without_address",
                policy = policy.name(),
                "a request carries no address, so that it is on no list of addresses to allow, and refused by those to \
                 deny, unless they serve unknown addresses"
            );
        }
        address.map(|address| list.has_address(address))
    }

    /// Goes on with a policy whose key is known; `parts` is the request's head where it is at hand.
    pub(crate) fn resolve_key(&self, ask: Ask, extracted: Extracted, parts: Option<&Parts>) -> Resolved {
        let policy = &self.policies[ask.policy];
        let options = policy.options();
        let mut offered = RawValues::default();
        let key = match (extracted, policy.rule_for_missing_key()) {
            (Extracted::Key(key), _) => key,
            (Extracted::Secret(secret), _) => {
                let key;
                (key, offered) = secret.into_parts();
                key
            }
            (Extracted::Missing, _) if ambiguous::denies_part(policy, parts) => {
                return Resolved::verdict(Verdict::Denied);
            }
            (Extracted::Rejected(_) | Extracted::Missing, _) if !ask.terms.keyed => return Resolved::Skip,
            (Extracted::Rejected(response), _) => return Resolved::verdict(Verdict::Rejected(response)),
            (Extracted::Failed(error), _) => return self.without_key(ask, *error),
            (Extracted::Ambiguous, rule) => return self.ambiguous(ask, rule, parts),
            (Extracted::Missing, MissingKey::Skip) => return Resolved::Skip,
            (Extracted::Missing, MissingKey::Deny) => return Resolved::verdict(Verdict::NoKey),
            (Extracted::Missing, MissingKey::Share) => Key::new("anonymous", ""),
        };
        let listed = |list: &Option<Arc<AccessList>>| list.as_deref().is_some_and(|list| list.has_key(&key));
        if listed(&options.deny) {
            return Resolved::verdict(Verdict::Denied);
        }
        if !ask.terms.counted || listed(&options.allow) {
            return Resolved::Skip;
        }
        let Some(Tiers::Lookup(lookup)) = &options.tiers else { return Resolved::Check(ask.check(policy, key)) };
        let offered = || {
            if let Some(parts) = parts {
                policy.extractor().raw_values(parts, &mut offered);
            }
            offered
        };
        match lookup.find(&key, offered) {
            Answer::Ready(tier) => Resolved::Check(ask.with_tier(tier).check(policy, key)),
            Answer::Pending(finding) => Resolved::Waiting(Box::new(Waiting::new(ask, Stage::Tier(key, finding)))),
        }
    }

    /// Goes on with a policy of which nobody knows whom it counts, as the layer says of failures.
    pub(crate) fn without_key(&self, ask: Ask, error: Error) -> Resolved {
        let (policy, rule) = (&self.policies[ask.policy], self.failure.on_failure);
        if self.unknown_keys.is_due() {
            let (policy, error) = (policy.name(), format!("{error:#}"));
            tracing::warn!(code = "key_unknown", policy, error, ?rule, "a key was not found out");
        }
        match (rule, policy.rule_for_missing_key()) {
            (OnFailure::Allow, _) => Resolved::Skip,
            (OnFailure::Deny, _) | (_, MissingKey::Deny) => Resolved::verdict(Verdict::Failed(error)),
            // Anybody can bring about that keys are not found out, and may be on the list.
            _ if policy.denies_values() => Resolved::verdict(Verdict::Failed(error)),
            (OnFailure::Fallback, _) if !ask.terms.counted => Resolved::Skip,
            (OnFailure::Fallback, _) => Resolved::Check(ask.check(policy, Key::new("unknown", ""))),
        }
    }
}

impl Ask {
    /// The ask of a request; only one that is counted has a cost and a tier.
    fn of(place: usize, policy: &Policy, parts: &Parts, terms: Terms, units: impl FnOnce(&Cost) -> u64) -> Self {
        let options = policy.options();
        if !terms.counted {
            return Self { terms, ..Self::new(place, 0, *policy.quota()) };
        }
        let tier = match &options.tiers {
            Some(Tiers::By(choose)) => choose(parts),
            _ => None,
        };
        let critical = options.reserve.as_ref().is_none_or(|reserve| reserve.is_critical(parts));
        Self { policy: place, cost: units(&options.cost), critical, quota: tier.unwrap_or(*policy.quota()), terms }
    }

    /// An ask of what is no request.
    pub(crate) fn new(policy: usize, cost: u64, quota: Quota) -> Self {
        Self { policy, cost, critical: true, quota, terms: Terms::ALL }
    }

    pub(crate) fn with_tier(self, tier: Option<Quota>) -> Self {
        self.with_quota(tier.unwrap_or(self.quota))
    }

    fn with_quota(self, quota: Quota) -> Self {
        Self { quota, ..self }
    }

    pub(crate) fn check(&self, policy: &Policy, key: Key) -> Check {
        let options = policy.options();
        let kept = options.reserve.as_ref().filter(|_| !self.critical).map(|reserve| reserve.kept(&self.quota));
        let counter = Counter { policy: policy.shared_name().clone(), key, quota: self.quota };
        let (floor, settles) = (kept.unwrap_or(0), options.settles());
        Check { counter, cost: self.cost, floor, mode: options.mode, settles }
    }
}
