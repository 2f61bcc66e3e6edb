//! Whether a request is admitted: keys, then one decision over all policies.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use smallvec::SmallVec;

use crate::fields::PolicyField;
use crate::key::Extracted;
use crate::store::{
    Answer, Change, Check, Counter, Decided, FailureStore, OnFailure, Receipt, Settlement, SharedStore,
};
use crate::{Decision, Error, Headers, Key, MissingKey, Policy, Store};

/// Builds the response to a refused request.
pub(crate) type Reject = dyn Fn(&Parts, &Decision) -> Response<Bytes> + Send + Sync;

/// What every service of one layer shares.
#[derive(Clone)]
pub(crate) struct Limiter {
    pub(crate) policies: Vec<Policy>,
    pub(crate) headers: Headers,
    pub(crate) reject: Option<Arc<Reject>>,
    pub(crate) on_failure: OnFailure,
    pub(crate) instances: u32,
    /// `RateLimit-Policy` for a request to which all policies apply.
    pub(crate) policy_field: PolicyField,
    given: SharedStore,
    store: Arc<FailureStore<SharedStore>>,
}

/// What becomes of a request.
pub(crate) enum Verdict {
    /// The inner service is called.
    Admitted(Decision, Held),
    /// A policy refuses it.
    Refused(Decision),
    /// A key extractor refuses it.
    Rejected(Box<Response<Bytes>>),
    /// It lacks the key of this policy, by its index, which refuses such requests.
    NoKey(usize),
    /// No decision could be made.
    Failed(Error),
}

/// A receipt, settled when it is dropped.
pub(crate) struct Held {
    store: Arc<FailureStore<SharedStore>>,
    receipt: Option<Receipt>,
    /// What is given back if the request goes away now.
    unused: SmallVec<[Settlement; 1]>,
}

impl Held {
    /// The request has to wait: what it queues for is unused until it has its turn.
    pub(crate) fn waits_for(mut self, decision: &Decision) -> Self {
        let taken = self.receipt.iter().flat_map(Receipt::taken);
        let outcomes = decision.outcomes().iter().zip(taken).enumerate();
        let queued = outcomes.filter(|(_, (outcome, _))| !outcome.delay().is_zero());
        let unused =
            queued.map(|(check, (_, taken))| Settlement { check, change: Change::Refund(taken.units) }).collect();
        self.unused = unused;
        self
    }

    pub(crate) fn has_its_turn(mut self) -> Self {
        self.unused.clear();
        self
    }

    /// Settles the decision with changes to what it took.
    fn settle(&mut self, changes: &[Settlement]) {
        if let Some(receipt) = self.receipt.take() {
            self.store.settle(receipt, changes);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let unused = std::mem::take(&mut self.unused);
        self.settle(&unused);
    }
}

/// The way to a [`Verdict`].
pub(crate) enum Admission {
    Known(Option<Verdict>),
    Deciding(Pin<Box<dyn Future<Output = Result<Decided, Error>> + Send>>),
    Extracting(Pin<Box<dyn Future<Output = Verdict> + Send>>),
}

impl Admission {
    pub(crate) fn poll(&mut self, limiter: &Limiter, cx: &mut Context<'_>) -> Poll<Verdict> {
        match self {
            Admission::Known(verdict) => Poll::Ready(verdict.take().expect("an admission is polled until it is ready")),
            Admission::Deciding(pending) => pending.as_mut().poll(cx).map(|decided| limiter.verdict(decided)),
            Admission::Extracting(pending) => pending.as_mut().poll(cx),
        }
    }
}

type Checks = SmallVec<[Check; 2]>;

impl Limiter {
    pub(crate) fn new(store: SharedStore) -> Self {
        let (on_failure, instances) = (OnFailure::default(), 1);
        let wrapped = Arc::new(FailureStore::new(Arc::clone(&store), on_failure, instances));
        Self {
            policies: Vec::new(),
            headers: Headers::both(),
            reject: None,
            on_failure,
            instances,
            policy_field: PolicyField::default(),
            given: store,
            store: wrapped,
        }
    }

    pub(crate) fn add(&mut self, policy: Policy) {
        self.policies.push(policy);
        self.policy_field = PolicyField::of(&self.policies);
    }

    pub(crate) fn wrap_store(&mut self) {
        let store = FailureStore::new(Arc::clone(&self.given), self.on_failure, self.instances);
        self.store = Arc::new(store);
    }

    /// Asks for a request's admission.
    pub(crate) fn admit(self: &Arc<Self>, parts: &Parts) -> Admission {
        let mut checks = Checks::new();
        for (index, policy) in self.policies.iter().enumerate() {
            match policy.extractor().extract(parts) {
                Answer::Ready(extracted) => {
                    if let Some(verdict) = self.add_check(&mut checks, index, extracted) {
                        return Admission::Known(Some(verdict));
                    }
                }
                pending @ Answer::Pending(_) => return self.admit_later(checks, index, pending, parts),
            }
        }
        match self.store.decide(&checks) {
            Answer::Ready(decided) => Admission::Known(Some(self.verdict(decided))),
            Answer::Pending(pending) => Admission::Deciding(pending),
        }
    }

    /// Goes on once the keys are known, the first of which has to be waited for.
    fn admit_later(
        self: &Arc<Self>,
        mut checks: Checks,
        from: usize,
        first: Answer<Extracted>,
        parts: &Parts,
    ) -> Admission {
        let others = self.policies[from + 1..].iter().map(|policy| policy.extractor().extract(parts));
        let answers: Vec<Answer<Extracted>> = std::iter::once(first).chain(others).collect();
        let limiter = Arc::clone(self);
        Admission::Extracting(Box::pin(async move {
            for (index, answer) in answers.into_iter().enumerate() {
                if let Some(verdict) = limiter.add_check(&mut checks, from + index, answer.wait().await) {
                    return verdict;
                }
            }
            let decided = limiter.store.decide(&checks).wait().await;
            limiter.verdict(decided)
        }))
    }

    /// Adds what a policy checks, if it applies; or knows the verdict without asking a store.
    fn add_check(&self, checks: &mut Checks, index: usize, extracted: Extracted) -> Option<Verdict> {
        let policy = &self.policies[index];
        let key = match (extracted, policy.rule_for_missing_key()) {
            (Extracted::Key(key), _) => key,
            (Extracted::Rejected(response), _) => return Some(Verdict::Rejected(response)),
            (Extracted::Missing, MissingKey::Skip) => return None,
            (Extracted::Missing, MissingKey::Deny) => return Some(Verdict::NoKey(index)),
            (Extracted::Missing, MissingKey::Share) => Key::new("anonymous", ""),
        };
        let counter = Counter { policy: Arc::clone(policy.shared_name()), key, quota: *policy.quota() };
        checks.push(Check::new(counter, policy.units()));
        None
    }

    fn verdict(&self, decided: Result<Decided, Error>) -> Verdict {
        match decided {
            Ok(Decided { decision, receipt }) if decision.is_allowed() => {
                let held = Held { store: Arc::clone(&self.store), receipt: Some(receipt), unused: SmallVec::new() };
                Verdict::Admitted(decision, held)
            }
            Ok(Decided { decision, .. }) => Verdict::Refused(decision),
            Err(error) => Verdict::Failed(error),
        }
    }

    /// Whether a policy may be named to clients.
    pub(crate) fn advertises(&self, name: &str) -> bool {
        self.policies.iter().all(|policy| policy.is_advertised() || policy.name() != name)
    }
}
