//! Giving policies to a layer, and replacing them.

use super::RateLimitLayer;
use crate::http::gate::Gate;
use crate::http::key::{self, KeyExtractor};
use crate::{Error, Policy, Quota};

impl RateLimitLayer {
    /// Adds a policy. Names should be unique: policies that share a name, key, algorithm and window
    /// share their counters.
    ///
    /// # Panics
    ///
    /// If the store does not [support](crate::Store::supports) it beside those that are there, or if no
    /// request can match one of its [routes](crate::Policy::routes) or an entry of its lists: see
    /// [`AccessList`](crate::AccessList). Most stores support all. The other methods that add a policy panic
    /// likewise.
    pub fn policy(self, policy: Policy) -> Self {
        self.try_policy(policy).expect("the store supports the policy, and its routes and lists can match")
    }

    /// As [`policy`](Self::policy).
    ///
    /// # Errors
    ///
    /// If the store does not [support](crate::Store::supports) the policy beside those that are there, or no
    /// request can match one of its routes or an entry of its lists: the message says why not.
    pub fn try_policy(self, policy: Policy) -> Result<Self, Error> {
        self.try_policies([policy])
    }

    /// Adds policies.
    ///
    /// # Panics
    ///
    /// As [`policy`](Self::policy).
    pub fn policies(self, policies: impl IntoIterator<Item = Policy>) -> Self {
        self.try_policies(policies).expect("the store supports the policies, and their routes and lists can match")
    }

    /// As [`policies`](Self::policies): for those of a file, say.
    ///
    /// # Errors
    ///
    /// As [`try_policy`](Self::try_policy).
    pub fn try_policies(self, policies: impl IntoIterator<Item = Policy>) -> Result<Self, Error> {
        let mut all = self.gate.load().policies.clone();
        all.extend(policies);
        let all = self.gate.load().accepts(all)?;
        Ok(self.change(|gate| gate.set_policies(all)))
    }

    /// Adds the policy `ip`, counted by the client's address: that of the peer, unless [`client`](Self::client) says
    /// how it is known behind proxies, before or after this.
    #[cfg(feature = "axum")]
    pub fn ip(self, quota: Quota) -> Self {
        self.policy(Policy::new("ip", quota).by_client())
    }

    /// Adds the policy `user`, counted by `key`.
    pub fn user(self, quota: Quota, key: impl KeyExtractor) -> Self {
        self.policy(Policy::new("user", quota).key(key))
    }

    /// Adds the policy `route`, counted by the route that matched, for all clients together.
    #[cfg(feature = "axum")]
    pub fn route(self, quota: Quota) -> Self {
        self.policy(Policy::new("route", quota).key(key::route()))
    }

    /// Adds the policy `global`, which counts all requests together.
    pub fn global(self, quota: Quota) -> Self {
        self.policy(Policy::new("global", quota).key(key::global()))
    }

    /// Replaces all policies of this layer, of its clones and of the services made of them, while
    /// they are used.
    ///
    /// What was taken stays: a policy whose name, key, algorithm and window are as before goes on with
    /// its counters. Requests under way end by the policies they began with. What a
    /// [status service](Self::status_service) for all may not show it leaves out, with a warning.
    ///
    /// # Errors
    ///
    /// As [`try_policy`](Self::try_policy): then those in force stay.
    pub fn replace_policies(&self, policies: impl IntoIterator<Item = Policy>) -> Result<(), Error> {
        let policies = self.gate.load().accepts(policies.into_iter().collect())?;
        self.gate.rcu(|gate| {
            let mut gate = Gate::clone(gate);
            gate.set_policies(policies.clone());
            gate
        });
        self.warn_of_unproven();
        Ok(())
    }
}
