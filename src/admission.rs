//! Whether a request is admitted: who asks for what, then one decision over all policies.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use smallvec::SmallVec;

use crate::account::Account;
use crate::gate::Gate;
use crate::key::Extracted;
use crate::policy::{AccessList, Tiers};
use crate::store::{Answer, Check, Counter, Decided, Mode};
use crate::{Decision, Error, Key, MissingKey, Outcome, Policy, Quota, Store};

/// What becomes of a request.
pub(crate) enum Verdict {
    /// The inner service is called.
    Admitted(Account),
    /// A policy refuses it.
    Refused(Decision),
    /// A key extractor refuses it.
    Rejected(Box<Response<Bytes>>),
    /// It lacks the key of a policy that refuses such requests.
    NoKey,
    /// Its client is on a list of those to refuse.
    Denied,
    /// No decision could be made.
    Failed(Error),
}

/// The way to a [`Verdict`].
pub(crate) enum Admission {
    Known(Option<Verdict>),
    Deciding { pending: Pin<Box<dyn Future<Output = Result<Decided, Error>> + Send>>, policies: Places },
    Resolving(Pin<Box<dyn Future<Output = Verdict> + Send>>),
}

impl Admission {
    pub(crate) fn poll(&mut self, gate: &Arc<Gate>, cx: &mut Context<'_>) -> Poll<Verdict> {
        match self {
            Admission::Known(verdict) => Poll::Ready(verdict.take().expect("an admission is polled until it is ready")),
            Admission::Deciding { pending, policies } => {
                pending.as_mut().poll(cx).map(|decided| gate.verdict(std::mem::take(policies), decided))
            }
            Admission::Resolving(pending) => pending.as_mut().poll(cx),
        }
    }
}

/// Policies by their places in the gate.
type Places = SmallVec<[usize; 4]>;

/// The policies that apply to a request, by their places, and what they ask the store.
#[derive(Default)]
struct Asked {
    policies: Places,
    checks: SmallVec<[Check; 2]>,
}

/// What a policy makes of a request.
enum Resolved {
    /// It asks the store.
    Check(Check),
    /// It does not apply.
    Skip,
    /// It knows what becomes of it.
    Verdict(Verdict),
}

impl Resolved {
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

impl Asked {
    /// Adds what one policy makes of the request; or the verdict is known.
    fn add(&mut self, policy: usize, resolved: Resolved) -> Option<Verdict> {
        match resolved {
            Resolved::Check(check) => {
                self.policies.push(policy);
                self.checks.push(check);
                None
            }
            Resolved::Skip => None,
            Resolved::Verdict(verdict) => Some(verdict),
        }
    }
}

impl Gate {
    /// Asks for a request's admission.
    pub(crate) fn admit(self: &Arc<Self>, parts: &Parts) -> Admission {
        let mut asked = Asked::default();
        for policy in 0..self.policies.len() {
            match self.resolve(policy, parts) {
                Answer::Ready(resolved) => {
                    if let Some(verdict) = asked.add(policy, resolved) {
                        return Admission::Known(Some(verdict));
                    }
                }
                pending @ Answer::Pending(_) => return self.admit_later(asked, policy, pending, parts),
            }
        }
        match self.store.decide(&asked.checks) {
            Answer::Ready(decided) => Admission::Known(Some(self.verdict(asked.policies, decided))),
            Answer::Pending(pending) => Admission::Deciding { pending, policies: asked.policies },
        }
    }

    /// Goes on when all is known, the first of which has to be waited for.
    fn admit_later(
        self: &Arc<Self>,
        mut asked: Asked,
        from: usize,
        first: Answer<Resolved>,
        parts: &Parts,
    ) -> Admission {
        let others = (from + 1..self.policies.len()).map(|policy| self.resolve(policy, parts));
        let answers: Vec<Answer<Resolved>> = std::iter::once(first).chain(others).collect();
        let gate = Arc::clone(self);
        Admission::Resolving(Box::pin(async move {
            for (policy, answer) in (from..).zip(answers) {
                if let Some(verdict) = asked.add(policy, answer.wait().await) {
                    return verdict;
                }
            }
            let decided = gate.store.decide(&asked.checks).wait().await;
            gate.verdict(asked.policies, decided)
        }))
    }

    /// Finds out what a policy makes of a request.
    fn resolve(self: &Arc<Self>, place: usize, parts: &Parts) -> Answer<Resolved> {
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
            return Answer::Ready(Resolved::Verdict(Verdict::Denied));
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
        list.has_nets() && address().is_some_and(|address| list.has_address(address))
    }

    /// Goes on with a policy whose key is known.
    fn resolve_key(self: &Arc<Self>, ask: Ask, extracted: Extracted) -> Answer<Resolved> {
        let policy = &self.policies[ask.policy];
        let options = policy.options();
        let key = match (extracted, policy.rule_for_missing_key()) {
            (Extracted::Key(key), _) => key,
            (Extracted::Rejected(response), _) => return Resolved::Verdict(Verdict::Rejected(response)).into(),
            (Extracted::Missing, MissingKey::Skip) => return Resolved::Skip.into(),
            (Extracted::Missing, MissingKey::Deny) => return Resolved::Verdict(Verdict::NoKey).into(),
            (Extracted::Missing, MissingKey::Share) => Key::new("anonymous", ""),
        };
        let listed = |list: &Option<Arc<AccessList>>| list.as_deref().is_some_and(|list| list.has_key(&key));
        if listed(&options.deny) {
            return Resolved::Verdict(Verdict::Denied).into();
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

    fn verdict(self: &Arc<Self>, policies: Places, decided: Result<Decided, Error>) -> Verdict {
        if let Ok(decided) = &decided {
            log_shadows(&decided.decision);
        }
        match decided {
            Ok(decided) if decided.decision.is_allowed() => {
                Verdict::Admitted(Account::new(Arc::clone(self), policies, decided))
            }
            Ok(Decided { decision, .. }) => Verdict::Refused(decision),
            Err(error) => Verdict::Failed(error),
        }
    }
}

/// Logs what policies in shadow would have done.
fn log_shadows(decision: &Decision) {
    let refusing = |outcome: &&Outcome| outcome.mode() == Mode::Shadow && !outcome.is_allowed();
    for outcome in decision.outcomes().iter().filter(refusing) {
        let retry_after = outcome.retry_after();
        tracing::info!(policy = outcome.policy(), ?retry_after, "a policy in shadow would refuse this request");
    }
}

impl Ask {
    fn with_tier(self, tier: Option<Quota>) -> Self {
        Self { quota: tier.unwrap_or(self.quota), ..self }
    }

    fn check(&self, policy: &Policy, key: Key) -> Check {
        let options = policy.options();
        let kept = options.reserve.as_ref().filter(|_| !self.critical).map(|reserve| reserve.kept(&self.quota));
        let counter = Counter { policy: Arc::clone(policy.shared_name()), key, quota: self.quota };
        Check { counter, cost: self.cost, floor: kept.unwrap_or(0), mode: options.mode }
    }
}
