//! The layer: a store, policies, and what to send.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tower_layer::Layer;

use crate::admission::Limiter;
use crate::key::{self, KeyExtractor};
use crate::{Decision, Headers, OnFailure, Policy, Quota, RateLimit, Store};

/// Limits the rate of requests to the service it wraps.
///
/// It has no type parameters, so it can be named, stored and returned. Clones share all state.
///
/// Several policies in one layer are decided as one: a request refused by one of them costs nothing
/// on the others. Layers around layers cannot do that.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{MemoryStore, Quota, RateLimitLayer, key};
///
/// let layer = RateLimitLayer::composite(MemoryStore::new())
///     .ip(Quota::per_minute(300))
///     .user(Quota::per_hour(5_000).burst(200), key::header("x-api-key"))
///     .route(Quota::fixed_window(50, Duration::from_secs(1)));
/// # let _ = layer;
/// ```
#[derive(Clone)]
#[must_use]
pub struct RateLimitLayer {
    limiter: Arc<Limiter>,
}

impl RateLimitLayer {
    /// A layer with one policy.
    pub fn new(store: impl Store, policy: Policy) -> Self {
        Self::composite(store).policy(policy)
    }

    /// A layer without a policy yet: it admits everything.
    pub fn composite(store: impl Store) -> Self {
        Self { limiter: Arc::new(Limiter::new(Arc::new(store))) }
    }

    /// Adds a policy. Names should be unique: policies that share a name, key, algorithm and window
    /// share their counters.
    pub fn policy(self, policy: Policy) -> Self {
        self.change(|limiter| limiter.add(policy))
    }

    /// Adds policies.
    pub fn policies(self, policies: impl IntoIterator<Item = Policy>) -> Self {
        policies.into_iter().fold(self, Self::policy)
    }

    /// Adds the policy `ip`, counted by the peer's address.
    #[cfg(feature = "axum")]
    pub fn ip(self, quota: Quota) -> Self {
        self.policy(Policy::new("ip", quota).key(key::peer_ip()))
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

    /// Sets which headers are sent.
    pub fn headers(self, headers: Headers) -> Self {
        self.change(|limiter| limiter.headers = headers)
    }

    /// Builds the response to refused requests, instead of a 429 with a problem document.
    ///
    /// The closure sees the head of the request and the decision. The limit's headers, `Retry-After`
    /// and `Cache-Control: no-store` are added to what it returns, unless it set them.
    pub fn on_reject<F, T>(self, build: F) -> Self
    where
        F: Fn(&Parts, &Decision) -> Response<T> + Send + Sync + 'static,
        T: Into<Bytes>,
    {
        self.change(|limiter| {
            limiter.reject = Some(Arc::new(move |parts, decision| build(parts, decision).map(Into::into)));
        })
    }

    /// Sets what happens to requests the store could not decide, instead of a local fallback.
    pub fn on_failure(self, rule: OnFailure) -> Self {
        self.change(|limiter| limiter.on_failure = rule).change(Limiter::wrap_store)
    }

    /// Sets how many processes share the limits: each one's fallback admits that share.
    pub fn instances(self, instances: NonZeroU32) -> Self {
        self.change(|limiter| limiter.instances = instances.get()).change(Limiter::wrap_store)
    }

    fn change(mut self, change: impl FnOnce(&mut Limiter)) -> Self {
        change(Arc::make_mut(&mut self.limiter));
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.limiter))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("policies", &self.limiter.policies).finish_non_exhaustive()
    }
}
