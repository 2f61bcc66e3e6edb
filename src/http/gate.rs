//! What every service of one layer shares.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::Response;
use http::request::Parts;
use smallvec::SmallVec;

use crate::http::headers::fields::PolicyField;
use crate::http::key::KeyExtractor;
use crate::lookup::Warning;
use crate::metrics::Decisions;
use crate::store::{FailureRules, FailureStore, SharedStore};
use crate::{Decision, Error, Headers, Policy, Store};

/// Builds the response to a refused request.
pub(crate) type Reject = dyn Fn(&Parts, &Decision) -> Response<Bytes> + Send + Sync;

/// A gate whose policies can be replaced while it is used.
pub(crate) type SharedGate = Arc<ArcSwap<Gate>>;

/// Policies, a store, and what is sent.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) policies: Vec<Policy>,
    pub(crate) headers: Headers,
    pub(crate) reject: Option<Arc<Reject>>,
    pub(crate) failure: FailureRules,
    /// What a request is told to which all policies apply.
    pub(crate) policy_field: PolicyField,
    /// By whose address clients are allowed or denied, where a policy's key does not know it.
    pub(crate) client: Arc<dyn KeyExtractor>,
    pub(crate) decisions: Decisions,
    /// That keys are not found out.
    pub(crate) unknown_keys: Arc<Warning>,
    given: SharedStore,
    pub(crate) store: Arc<FailureStore<SharedStore>>,
}

impl Gate {
    pub(crate) fn new(store: SharedStore) -> Self {
        let failure = FailureRules::default();
        let wrapped = Arc::new(FailureStore::new(Arc::clone(&store), failure));
        Self {
            policies: Vec::new(),
            headers: Headers::both(),
            reject: None,
            failure,
            policy_field: PolicyField::default(),
            #[cfg(feature = "axum")]
            client: Arc::new(crate::http::key::client_ip()),
            #[cfg(not(feature = "axum"))]
            client: Arc::new(crate::http::key::global()),
            decisions: Decisions::default(),
            unknown_keys: Arc::default(),
            given: store,
            store: wrapped,
        }
    }

    /// Sets policies that the store [supports](Self::supports).
    pub(crate) fn set_policies(&mut self, policies: Vec<Policy>) {
        self.policies = policies;
        self.policy_field = PolicyField::of(&self.policies);
    }

    /// Whether the store can decide all of these policies.
    pub(crate) fn supports(&self, policies: &[Policy]) -> Result<(), Error> {
        let requirements: SmallVec<[_; 4]> = policies.iter().map(Policy::requirement).collect();
        self.given.supports(&requirements)
    }

    /// As [`supports`](Self::supports), for policies of requests: their routes and lists have to match some.
    pub(crate) fn accepts(&self, policies: &[Policy]) -> Result<(), Error> {
        policies.iter().try_for_each(|policy| policy.check_matches(&*self.client))?;
        self.supports(policies)
    }

    pub(crate) fn change_failure(&mut self, change: impl FnOnce(&mut FailureRules)) {
        change(&mut self.failure);
        self.store = Arc::new(FailureStore::new(Arc::clone(&self.given), self.failure));
    }

    /// Whether a policy may be named to clients.
    pub(crate) fn advertises(&self, name: &str) -> bool {
        !self.policy_field.hides || self.policies.iter().all(|policy| policy.is_shown() || policy.name() != name)
    }
}
