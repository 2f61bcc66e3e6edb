//! Methods that add policies to a layer.
//!
//! All these methods go through [`LayerState::accepts`]: a policy that the store cannot keep, or that no request can
//! match, is an error when the layer is built or its policies are replaced, never when a request arrives.

use super::RateLimitLayer;
use crate::core::error::built;
use crate::core::{Error, Quota};
use crate::http::key::{self, KeyExtractor};
use crate::http::policy::Policy;

impl RateLimitLayer {
    /// Adds a policy.
    ///
    /// If policies of several layers have the same store, name, key, algorithm and window, they share their counters.
    ///
    /// # Panics
    ///
    /// In the cases in which [`try_policy`](Self::try_policy) returns an error. The other methods that add a policy
    /// panic for the same reasons.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
    ///
    /// let layer = RateLimitLayer::composite(MemoryStore::new())
    ///     .policy(Policy::new("search", Quota::per_minute(30)).routes(["/search"]).key(key::header("x-api-key")));
    /// # let _ = layer;
    /// ```
    #[track_caller]
    pub fn policy(self, policy: Policy) -> Self {
        built(self.try_policy(policy))
    }

    /// Fallible version of [`policy`](Self::policy).
    ///
    /// # Errors
    ///
    /// The error has the name of the policy, and what to change. It is returned if
    ///
    /// - another policy of the layer has its name, or its key contradicts the [client](Self::client) of the layer,
    /// - no request can match one of its [routes](crate::Policy::routes) or an entry of its
    ///   [lists](crate::policy::AccessList), or it has an empty list of routes or [methods](crate::Policy::methods),
    /// - its [cost](crate::Policy::cost) is more than its quota ever holds, or it is 0 and the policy has no other way
    ///   to deny requests,
    /// - no status [counts](crate::Policy::count), or slots of a [concurrency](crate::Quota::concurrency) are to be
    ///   [metered](crate::Policy::metered) or counted,
    /// - clients could get others [banned](crate::Policy::ban) by its key, or a ban by failures is
    ///   [extending](crate::Ban::extending),
    /// - the store does not [support](crate::store::Store::capabilities) it together with the earlier policies. Most
    ///   stores support everything.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::composite(MemoryStore::new());
    /// // A route begins with a slash.
    /// assert!(layer.try_policy(Policy::new("search", Quota::per_minute(30)).routes(["search"])).is_err());
    /// ```
    pub fn try_policy(self, policy: Policy) -> Result<Self, Error> {
        self.try_policies([policy])
    }

    /// Adds policies, in their order.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let quotas = [("burst", Quota::per_second(50)), ("hour", Quota::per_hour(20_000))];
    /// let policies = quotas.map(|(name, quota)| Policy::new(name, quota));
    /// let layer = RateLimitLayer::composite(MemoryStore::new()).policies(policies);
    /// # let _ = layer;
    /// ```
    ///
    /// # Panics
    ///
    /// See [`policy`](Self::policy).
    #[track_caller]
    pub fn policies(self, policies: impl IntoIterator<Item = Policy>) -> Self {
        built(self.try_policies(policies))
    }

    /// Fallible version of [`policies`](Self::policies).
    ///
    /// # Errors
    ///
    /// See [`try_policy`](Self::try_policy). On an error none of them is added.
    pub fn try_policies(self, policies: impl IntoIterator<Item = Policy>) -> Result<Self, Error> {
        self.try_change(|gate| gate.policies.extend(policies))
    }

    /// Adds a policy named `ip`, whose key is the client's address.
    ///
    /// The key is the peer's address, unless [`client`](Self::client) sets how the address is extracted behind proxies.
    ///
    /// # Panics
    ///
    /// See [`policy`](Self::policy).
    #[cfg(feature = "axum")]
    #[track_caller]
    pub fn ip(self, quota: Quota) -> Self {
        built(self.try_ip(quota))
    }

    /// Fallible version of [`ip`](Self::ip).
    ///
    /// # Errors
    ///
    /// See [`try_policy`](Self::try_policy).
    #[cfg(feature = "axum")]
    pub fn try_ip(self, quota: Quota) -> Result<Self, Error> {
        self.try_policy(Policy::new("ip", quota).key(key::client_ip()))
    }

    /// Adds a policy named `user`, whose key is `key`.
    ///
    /// The policy does not limit requests without this key, unless the key is an IP address. To deny them instead, add
    /// a [`policy`](Self::policy) with [`missing_key`](crate::Policy::missing_key).
    ///
    /// # Panics
    ///
    /// See [`policy`](Self::policy).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Quota, RateLimitLayer, key};
    ///
    /// let layer = RateLimitLayer::composite(MemoryStore::new()).user(Quota::per_hour(5_000), key::bearer());
    /// # let _ = layer;
    /// ```
    #[track_caller]
    pub fn user(self, quota: Quota, key: impl KeyExtractor) -> Self {
        built(self.try_user(quota, key))
    }

    /// Fallible version of [`user`](Self::user).
    ///
    /// # Errors
    ///
    /// See [`try_policy`](Self::try_policy).
    pub fn try_user(self, quota: Quota, key: impl KeyExtractor) -> Result<Self, Error> {
        self.try_policy(Policy::new("user", quota).key(key))
    }

    /// Adds a policy named `route`, whose key is the route that axum matched. All clients of a route share a counter.
    ///
    /// # Panics
    ///
    /// See [`policy`](Self::policy).
    #[cfg(feature = "axum")]
    #[track_caller]
    pub fn route(self, quota: Quota) -> Self {
        built(self.try_route(quota))
    }

    /// Fallible version of [`route`](Self::route).
    ///
    /// # Errors
    ///
    /// See [`try_policy`](Self::try_policy).
    #[cfg(feature = "axum")]
    pub fn try_route(self, quota: Quota) -> Result<Self, Error> {
        self.try_policy(Policy::new("route", quota).key(key::route()))
    }

    /// Adds a policy named `global`, which counts all requests together.
    ///
    /// # Panics
    ///
    /// See [`policy`](Self::policy).
    #[track_caller]
    pub fn global(self, quota: Quota) -> Self {
        built(self.try_global(quota))
    }

    /// Fallible version of [`global`](Self::global).
    ///
    /// # Errors
    ///
    /// See [`try_policy`](Self::try_policy).
    pub fn try_global(self, quota: Quota) -> Result<Self, Error> {
        self.try_policy(Policy::new("global", quota).key(key::global()))
    }
}

#[cfg(all(test, not(feature = "axum")))]
mod tests {
    use super::*;
    use crate::http::policy::AccessList;
    use crate::store::MemoryStore;

    #[test]
    fn a_list_of_addresses_is_an_error_where_no_address_is_ever_known() {
        let list = AccessList::parse(["10.0.0.0/8"]).expect("a CIDR");
        let policy = Policy::new("user", Quota::per_hour(1)).key(key::header("x-user")).deny(list);
        let error = RateLimitLayer::try_new(MemoryStore::new(), policy).expect_err("it can never match");
        assert!(error.is_invalid() && error.to_string().contains("without the feature axum"), "{error}");
    }
}
