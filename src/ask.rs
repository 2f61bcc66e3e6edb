//! What each policy asks of the store for a request.

use std::sync::Arc;

use http::request::Parts;

use crate::admission::Verdict;
use crate::gate::Gate;
use crate::key::Extracted;
use crate::policy::{AccessList, Tiers};
use crate::store::{Answer, Check, Counter, Mode};
use crate::{Key, MissingKey, Policy, Quota};

/// What a policy makes of a request.
pub(crate) enum Resolved {
    /// It asks the store.
    Check(Check),
    /// It does not apply.
    Skip,
    /// It knows what becomes of it; boxed, as it is large and rare.
    Verdict(Box<Verdict>),
}

impl Resolved {
    fn verdict(verdict: Verdict) -> Self {
        Resolved::Verdict(Box::new(verdict))
    }

    /// What is left of it for a policy that never refuses.
    fn in_shadow(self) -> Self {
        match self {
            Resolved::Verdict(_) => Resolved::Skip,
            other => other,
        }
    }
}

/// What is known of a policy's check before its key.
struct Ask {
    policy: usize,
    cost: u64,
    critical: bool,
    quota: Quota,
}

impl Gate {
    /// Finds out what a policy makes of a request.
    pub(crate) fn resolve(self: &Arc<Self>, place: usize, parts: &Parts) -> Answer<Resolved> {
        let options = self.policies[place].options();
        if !options.scope.covers(parts) {
            return Answer::Ready(Resolved::Skip);
        }
        let resolved = self.resolve_covered(place, parts);
        if options.mode == Mode::Enforce {
            return resolved;
        }
        match resolved {
            Answer::Ready(resolved) => resolved.in_shadow().into(),
            Answer::Pending(pending) => Answer::pending(async move { pending.await.in_shadow() }),
        }
    }

    /// As [`resolve`](Self::resolve), for a request to which the policy applies.
    fn resolve_covered(self: &Arc<Self>, place: usize, parts: &Parts) -> Answer<Resolved> {
        let policy = &self.policies[place];
        let options = policy.options();
        let listed =
            |list: &Option<Arc<AccessList>>| list.as_deref().is_some_and(|list| self.lists(list, policy, parts));
        if listed(&options.deny) {
            return Answer::Ready(Resolved::verdict(Verdict::Denied));
        }
        if listed(&options.allow) {
            return Answer::Ready(Resolved::Skip);
        }
        let tier = match &options.tiers {
            Some(Tiers::By(choose)) => choose(parts),
            _ => None,
        };
        let critical = options.reserve.as_ref().is_none_or(|reserve| reserve.is_critical(parts));
        let quota = tier.unwrap_or(*policy.quota());
        let ask = Ask { policy: place, cost: options.cost.of(parts), critical, quota };
        match policy.extractor().extract(parts) {
            Answer::Ready(extracted) => self.resolve_key(ask, extracted),
            Answer::Pending(extracting) => {
                let gate = Arc::clone(self);
                Answer::pending(async move { gate.resolve_key(ask, extracting.await).wait().await })
            }
        }
    }

    /// What every policy would ask of the client who sent this request, if it only looked.
    ///
    /// The looks are at all that is left; beside them are the units that are kept from this client.
    pub(crate) async fn looks(self: &Arc<Self>, parts: &Parts) -> (Vec<Check>, Vec<u64>) {
        let answers: Vec<_> = (0..self.policies.len()).map(|policy| self.resolve_covered(policy, parts)).collect();
        let (mut checks, mut kept) = (Vec::new(), Vec::new());
        for answer in answers {
            if let Resolved::Check(check) = answer.wait().await {
                kept.push(check.floor);
                checks.push(Check { cost: 0, floor: 0, ..check });
            }
        }
        (checks, kept)
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

    /// Goes on with a policy whose key is known.
    fn resolve_key(self: &Arc<Self>, ask: Ask, extracted: Extracted) -> Answer<Resolved> {
        let policy = &self.policies[ask.policy];
        let options = policy.options();
        let key = match (extracted, policy.rule_for_missing_key()) {
            (Extracted::Key(key), _) => key,
            (Extracted::Rejected(response), _) => return Resolved::verdict(Verdict::Rejected(response)).into(),
            (Extracted::Missing, MissingKey::Skip) => return Resolved::Skip.into(),
            (Extracted::Missing, MissingKey::Deny) => return Resolved::verdict(Verdict::NoKey).into(),
            (Extracted::Missing, MissingKey::Share) => Key::new("anonymous", ""),
        };
        let listed = |list: &Option<Arc<AccessList>>| list.as_deref().is_some_and(|list| list.has_key(&key));
        if listed(&options.deny) {
            return Resolved::verdict(Verdict::Denied).into();
        }
        if listed(&options.allow) {
            return Resolved::Skip.into();
        }
        let Some(Tiers::Lookup(lookup)) = &options.tiers else { return Resolved::Check(ask.check(policy, key)).into() };
        match lookup.find(&key) {
            Answer::Ready(tier) => Resolved::Check(ask.with_tier(tier).check(policy, key)).into(),
            Answer::Pending(finding) => {
                let gate = Arc::clone(self);
                Answer::pending(async move {
                    let ask = ask.with_tier(finding.await);
                    let policy = &gate.policies[ask.policy];
                    Resolved::Check(ask.check(policy, key))
                })
            }
        }
    }
}

impl Ask {
    fn with_tier(self, tier: Option<Quota>) -> Self {
        Self { quota: tier.unwrap_or(self.quota), ..self }
    }

    fn check(&self, policy: &Policy, key: Key) -> Check {
        let options = policy.options();
        let kept = options.reserve.as_ref().filter(|_| !self.critical).map(|reserve| reserve.kept(&self.quota));
        let counter = Counter { policy: policy.shared_name().clone(), key, quota: self.quota };
        let (floor, settles) = (kept.unwrap_or(0), options.settles());
        Check { counter, cost: self.cost, floor, mode: options.mode, settles }
    }
}
