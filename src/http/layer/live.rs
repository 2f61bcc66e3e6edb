use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tower::Layer;

use super::RateLimitLayer;
use crate::core::Error;
use crate::http::gate::LayerState;
#[cfg(feature = "axum")]
use crate::http::key::ClientIp;
use crate::http::policy::Policy;
use crate::http::service::RateLimit;
use crate::limiter::{InForce, Limiter, Overrides};
use crate::store::{BreakerState, OnFailure};

/// A [`Layer`] whose settings are final, and whose policies can be replaced while it serves.
///
/// Created by [`RateLimitLayer::live`]. All clones share one state with all services, limiters and status services made
/// from them. Methods read the state that is in use, and their changes apply to all of these.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100))).live();
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer.clone());
/// layer.replace_policies([Policy::new("api", Quota::per_minute(50))])?;
/// # let _ = app;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct LiveLayer {
    pub(in crate::http) layer: RateLimitLayer,
}

impl LiveLayer {
    pub(super) fn new(layer: RateLimitLayer) -> Self {
        Self { layer }
    }

    /// Returns the policies in force, in their order, with the settings of the layer's client in their keys.
    ///
    /// Use it to add a policy or leave one out by [`replace_policies`](Self::replace_policies).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let policies = [("burst", 50), ("trial", 5)].map(|(name, limit)| Policy::new(name, Quota::per_second(limit)));
    /// let layer = RateLimitLayer::composite(MemoryStore::new()).policies(policies).live();
    /// let others = layer.policies().into_iter().filter(|policy| policy.name() != "trial");
    /// layer.replace_policies(others)?;
    /// assert_eq!(layer.policies().len(), 1);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn policies(&self) -> Vec<Policy> {
        self.layer.gate.load().policies.clone()
    }

    /// Returns the policy in force with this name, whose key has the settings of the layer's client.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Quota, RateLimitLayer, key};
    ///
    /// let client = key::client_ip().v6_prefix(64);
    /// let layer = RateLimitLayer::composite(MemoryStore::new()).client(client).ip(Quota::per_minute(300)).live();
    /// let ip = layer.find_policy("ip").expect("it was added");
    /// assert_eq!(ip.key_of("2001:db8:0:1::9")?.as_str(), "ip:2001:db8:0:1::/64");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn find_policy(&self, name: &str) -> Option<Policy> {
        self.layer.gate.load().policies.iter().find(|policy| policy.name() == name).cloned()
    }

    /// Replaces all policies of this layer, of its clones, and of the services and limiters made from them, while they
    /// are used.
    ///
    /// A policy keeps its counters if its name, key, algorithm and window do not change. Requests that were allowed
    /// before are settled by the policies that allowed them. New policies that a [status service](Self::status_service)
    /// must not show to all clients are left out of it, with a warning.
    ///
    /// # Errors
    ///
    /// See [`RateLimitLayer::try_policy`]. Also if `policies` is empty and the layer has policies. On an error, nothing
    /// changes. If the layer's [client](RateLimitLayer::client) trusts proxies, a key that trusts others is an error:
    /// `replace_client` replaces the client, too.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100))).live();
    /// layer.replace_policies([Policy::new("api", Quota::per_minute(50))])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn replace_policies(&self, policies: impl IntoIterator<Item = Policy>) -> Result<(), Error> {
        self.replace(policies.into_iter().collect(), |_| {})
    }

    /// Removes all policies, so that every request is allowed, until you [add](Self::replace_policies) others.
    ///
    /// Requests that are in progress are settled by the policies that allowed them.
    pub fn remove_policies(&self) {
        self.layer.gate.load().limits.warned.no_rules_is_meant();
        self.publish(&[], |_| {});
    }

    /// Replaces the [client](RateLimitLayer::client) and all policies in one swap.
    ///
    /// No request is limited by the new policies behind the old proxies.
    ///
    /// # Errors
    ///
    /// See [`replace_policies`](Self::replace_policies). Also if a policy contradicts the client. On an error nothing
    /// changes.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let policy = || Policy::new("ip", Quota::per_minute(300)).key(key::client_ip());
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy()).live();
    /// layer.replace_client(&key::client_ip().trusted_proxies(["10.0.0.0/8"]), [policy()])?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "axum")]
    pub fn replace_client(&self, client: &ClientIp, policies: impl IntoIterator<Item = Policy>) -> Result<(), Error> {
        self.replace(policies.into_iter().collect(), |gate| gate.client = client.clone())
    }

    fn replace(&self, policies: Vec<Policy>, change: impl Fn(&mut LayerState)) -> Result<(), Error> {
        let before = self.layer.gate.load_full();
        let count = before.policies.len();
        if policies.is_empty() && count > 0 {
            return Err(Error::invalid(format!(
                "no policies in place of {count}: nothing would be limited any more: at least one is needed; if that is meant, \
                 call remove_policies, or write policy = [] in the file"
            )));
        }
        let mut next = LayerState::clone(&before);
        change(&mut next);
        let policies = next.accepts(policies)?.into_iter().map(|policy| policy.continuing(&before.policies));
        let policies: Vec<Policy> = policies.collect();
        self.publish(&policies, change);
        self.warn_of_forgeable();
        Ok(())
    }

    fn publish(&self, policies: &[Policy], change: impl Fn(&mut LayerState)) {
        self.layer.gate.rcu(|gate| {
            let mut gate = LayerState::clone(gate);
            change(&mut gate);
            gate.set_policies(policies.to_vec());
            gate
        });
    }

    /// Returns what happens to requests that the store could not decide.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, OnFailure, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::composite(MemoryStore::new()).on_failure(OnFailure::Deny).live();
    /// assert_eq!(layer.on_failure(), OnFailure::Deny);
    /// assert_eq!(layer.instances().get(), 1);
    /// ```
    pub fn on_failure(&self) -> OnFailure {
        self.layer.gate.load().limits.failure.on_failure
    }

    /// Returns for how long of one outage all requests are allowed, with [`OnFailure::Allow`].
    pub fn allow_for(&self) -> Duration {
        self.layer.gate.load().limits.failure.allow_for
    }

    /// Returns how many processes share the limits. While the store is unavailable, each takes its part of them.
    pub fn instances(&self) -> NonZeroU32 {
        self.layer.gate.load().limits.failure.instances
    }

    /// Returns the state of the layer's circuit breaker: whether the store is called, or has failed too often.
    ///
    /// [`OnFailure`](crate::OnFailure) defines what counts as a failure and when the store is probed. The breaker is
    /// half-open while a probe is in flight. It counts the requests of this layer, its clones, and the services and
    /// limiters made from them.
    ///
    /// On a Redis Cluster each primary has its own breaker: see
    /// [`RedisStore::breakers`](crate::RedisStore::breakers).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::store::BreakerState;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100))).live();
    /// assert_eq!(layer.breaker_state(), BreakerState::Closed);
    /// ```
    pub fn breaker_state(&self) -> BreakerState {
        self.layer.gate.load().limits.store.breaker_state()
    }

    /// Returns the overrides in force, which an operator sets while the layer serves.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::overrides::Override;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100))).live();
    /// layer.overrides().set(Override::off().policy("api")?.ends_in(Duration::from_secs(600)))?;
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn overrides(&self) -> Overrides {
        self.limiter().overrides()
    }

    /// Returns a limiter with the same policies, counters and circuit breaker, for work that is not an HTTP request.
    ///
    /// All its methods use the policies that count keys of the same kind as the given key. They leave out policies with
    /// another kind of key, policies for certain routes or methods or with a [`when`](Policy::when), and policies whose
    /// key is a closure. To name policies instead, use [`Limiter::only`]. A key that no policy uses is an error.
    /// [`Policy::key_of`] makes keys.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let user = Policy::new("user", Quota::per_hour(100)).key(key::header("x-user").plain());
    /// let login = Policy::new("login", Quota::per_hour(5)).key(key::header("x-user").plain()).routes(["/login"]);
    /// let layer = RateLimitLayer::composite(MemoryStore::new()).policy(user).policy(login).live();
    ///
    /// let decision = layer.limiter().check_n(&Key::new("header x-user", "ada"), 50).await?;
    /// assert!(decision.is_allowed());
    /// assert_eq!(decision.outcomes().len(), 1, "a job is no request to /login");
    /// assert!(layer.limiter().check(&Key::new("user", "ada")).await.is_err(), "no policy has such keys");
    /// # Ok(())
    /// # }
    /// ```
    pub fn limiter(&self) -> Limiter {
        Limiter::shared(Arc::clone(&self.layer.gate) as Arc<dyn InForce>)
    }
}

impl<S> Layer<S> for LiveLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        self.layer.layer(inner)
    }
}

impl fmt::Debug for LiveLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveLayer").field("policies", &self.layer.gate.load().policies).finish_non_exhaustive()
    }
}
