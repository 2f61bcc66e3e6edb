//! What every service of one layer shares.

#[cfg(feature = "axum")]
use std::mem;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::key::KeyExtractor;
use super::policy::Policy;
use super::response::{Refusal, Responses};
use crate::Error;
use crate::limiter::{Limits, Published};
use crate::lookup::Warning;
use crate::store::SharedStore;

/// A gate whose policies can be replaced while it is used.
pub(crate) type SharedGate = Arc<ArcSwap<Gate>>;

/// Limits, and what they are over HTTP: published as one.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) limits: Limits,
    /// Their rules are those of the limits.
    pub(crate) policies: Vec<Policy>,
    pub(crate) responses: Responses,
    /// By whose address clients are allowed or denied, where a policy's key does not know it.
    pub(crate) client: Arc<dyn KeyExtractor>,
    /// That keys are not found out.
    pub(crate) unknown_keys: Arc<Warning>,
}

impl Gate {
    pub(crate) fn new(store: SharedStore) -> Self {
        Self {
            limits: Limits::new(store),
            policies: Vec::new(),
            responses: Responses::new(),
            #[cfg(feature = "axum")]
            client: Arc::new(super::key::client_ip()),
            #[cfg(not(feature = "axum"))]
            client: Arc::new(super::key::global()),
            unknown_keys: Arc::default(),
        }
    }

    /// Sets by whose address clients are known, also to policies that are there.
    #[cfg(feature = "axum")]
    pub(crate) fn set_client(&mut self, client: Arc<dyn KeyExtractor>) {
        let policies = mem::take(&mut self.policies).into_iter();
        let policies = policies.map(|policy| policy.with_client(&client)).collect();
        self.client = client;
        self.set_policies(policies);
    }

    /// Sets policies that are [accepted](Self::accepts).
    pub(crate) fn set_policies(&mut self, policies: Vec<Policy>) {
        self.limits.set_rules(policies.iter().map(|policy| policy.rule().clone()));
        self.responses.set_policies(&policies);
        self.policies = policies;
    }

    /// The policies as they are in this layer, if the store supports all of them, and their routes and lists can
    /// match some request.
    pub(crate) fn accepts(&self, policies: Vec<Policy>) -> Result<Vec<Policy>, Error> {
        let policies: Vec<Policy> = policies.into_iter().map(|policy| policy.with_client(&self.client)).collect();
        policies.iter().try_for_each(|policy| policy.check_matches(&*self.client))?;
        self.limits.supports(policies.iter().map(Policy::rule))?;
        Ok(policies)
    }

    /// The response to a request that is not admitted, by its head.
    pub(crate) fn turn_away(&self, refusal: Refusal, parts: &Parts) -> Response<Bytes> {
        self.responses.of(refusal, parts, |error| self.limits.store.next_probe(error))
    }
}

impl Published for Gate {
    fn limits(&self) -> &Limits {
        &self.limits
    }
}
