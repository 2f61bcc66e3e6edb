//! What each policy asks of the store for a request.

use std::sync::Arc;

use http::request::Parts;

use crate::admission::Verdict;
use crate::gate::Gate;
use crate::key::Extracted;
use crate::policy::{AccessList, Cost, Tiers};
use crate::store::{Answer, Check, Counter, Mode};
use crate::waiting::{Stage, Waiting};
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
}

impl Gate {
    /// Finds out what a policy makes of a request.
    pub(crate) fn resolve(&self, place: usize, parts: &Parts) -> Resolved {
        let options = self.policies[place].options();
        if !options.scope.covers(parts) {
            return Resolved::Skip;
        }
        let resolved = self.resolve_covered(place, parts, |cost| cost.of(parts));
        if options.mode == Mode::Enforce { resolved } else { resolved.in_shadow() }
    }

    /// As [`resolve`](Self::resolve), for a request to which the policy applies, and which takes what
    /// `units` makes of its cost.
    pub(crate) fn resolve_covered(&self, place: usize, parts: &Parts, units: impl FnOnce(&Cost) -> u64) -> Resolved {
        let policy = &self.policies[place];
        let options = policy.options();
        let listed =
            |list: &Option<Arc<AccessList>>| list.as_deref().is_some_and(|list| self.lists(list, policy, parts));
        if listed(&options.deny) {
            return Resolved::verdict(Verdict::Denied);
        }
        if listed(&options.allow) {
            return Resolved::Skip;
        }
        let tier = match &options.tiers {
            Some(Tiers::By(choose)) => choose(parts),
            _ => None,
        };
        let critical = options.reserve.as_ref().is_none_or(|reserve| reserve.is_critical(parts));
        let quota = tier.unwrap_or(*policy.quota());
        let ask = Ask { policy: place, cost: units(&options.cost), critical, quota };
        match policy.extractor().extract(parts) {
            Answer::Ready(extracted) => self.resolve_key(ask, extracted, Some(parts)),
            Answer::Pending(extracting) => Resolved::Waiting(Box::new(Waiting::new(ask, Stage::Key(extracting)))),
        }
    }

    /// Whether the request comes from an address on a list.
    fn lists(&self, list: &AccessList, policy: &Policy, parts: &Parts) -> bool {
        let address = || policy.extractor().address(parts).or_else(|| self.client.address(parts));
        if !list.has_nets() {
            return false;
        }
        let Some(address) = address() else {
            if list.meets_unknown() {
                tracing::warn!(
                    code = "list_without_address",
                    policy = policy.name(),
                    "a request carries no address, so that lists of addresses to allow or deny do not match it"
                );
            }
            return false;
        };
        list.has_address(address)
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
            (Extracted::Rejected(response), _) => return Resolved::verdict(Verdict::Rejected(response)),
            (Extracted::Failed(error), _) => return self.without_key(ask, *error),
            (Extracted::Missing, MissingKey::Skip) => return Resolved::Skip,
            (Extracted::Missing, MissingKey::Deny) => return Resolved::verdict(Verdict::NoKey),
            (Extracted::Missing, MissingKey::Share) => Key::new("anonymous", ""),
        };
        let listed = |list: &Option<Arc<AccessList>>| list.as_deref().is_some_and(|list| list.has_key(&key));
        if listed(&options.deny) {
            return Resolved::verdict(Verdict::Denied);
        }
        if listed(&options.allow) {
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
            (OnFailure::Fallback, _) => Resolved::Check(ask.check(policy, Key::new("unknown", ""))),
        }
    }
}

impl Ask {
    /// An ask of what is no request.
    pub(crate) fn new(policy: usize, cost: u64, quota: Quota) -> Self {
        Self { policy, cost, critical: true, quota }
    }

    pub(crate) fn with_tier(self, tier: Option<Quota>) -> Self {
        Self { quota: tier.unwrap_or(self.quota), ..self }
    }

    pub(crate) fn check(&self, policy: &Policy, key: Key) -> Check {
        let options = policy.options();
        let kept = options.reserve.as_ref().filter(|_| !self.critical).map(|reserve| reserve.kept(&self.quota));
        let counter = Counter { policy: policy.shared_name().clone(), key, quota: self.quota };
        let (floor, settles) = (kept.unwrap_or(0), options.settles());
        Check { counter, cost: self.cost, floor, mode: options.mode, settles }
    }
}
