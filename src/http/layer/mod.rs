//! The layer: a store, policies, and what to send.

mod policies;
mod reject;
mod status;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwap;
use tower::Layer;

use crate::http::gate::{Gate, SharedGate};
#[cfg(feature = "axum")]
use crate::key;
use crate::limiter::InForce;
use crate::store::FailureRules;
use crate::{BreakerState, Error, Headers, Limiter, OnFailure, Policy, RateLimit, Store};

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
    gate: SharedGate,
    /// Whether a status service shows all clients what is theirs.
    shows_all: Arc<AtomicBool>,
}

impl RateLimitLayer {
    /// A layer with one policy.
    ///
    /// # Panics
    ///
    /// As [`policy`](Self::policy).
    pub fn new(store: impl Store, policy: Policy) -> Self {
        Self::composite(store).policy(policy)
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// As [`try_policy`](Self::try_policy).
    pub fn try_new(store: impl Store, policy: Policy) -> Result<Self, Error> {
        Self::composite(store).try_policy(policy)
    }

    /// A layer without a policy yet: it admits everything.
    pub fn composite(store: impl Store) -> Self {
        Self::of(Gate::new(Arc::new(store)))
    }

    /// Sets how the client's address is known, instead of by the peer's: for the policy of [`ip`](Self::ip), whether
    /// it was added before or is added after, and for lists of addresses to allow or deny.
    #[cfg(feature = "axum")]
    pub fn client(self, client: key::ClientIp) -> Self {
        self.change(|gate| gate.set_client(Arc::new(client)))
    }

    /// Sets which headers are sent.
    pub fn headers(self, headers: Headers) -> Self {
        self.change(|gate| gate.responses.set_headers(headers))
    }

    /// Sets what happens to requests the store could not decide, instead of a local fallback.
    pub fn on_failure(self, rule: OnFailure) -> Self {
        self.change_failure(|rules| rules.on_failure = rule)
    }

    /// Sets for how long [`OnFailure::Allow`] admits all in one outage, instead of 60 s: then a local
    /// fallback limits, until the store decides again. Zero is as [`OnFailure::Fallback`].
    ///
    /// It is counted from the first failure after which the store has not answered. Where a primary of
    /// a Redis Cluster answers and some of its keys fail (their slot is half moved, say), it is counted
    /// from the first such failure, and anew when there was none for as long.
    pub fn allow_for(self, time: Duration) -> Self {
        self.change_failure(|rules| rules.allow_for = time)
    }

    /// Sets how many processes share the limits: each one's fallback admits that share.
    pub fn instances(self, instances: NonZeroU32) -> Self {
        self.change_failure(|rules| rules.instances = instances.get())
    }

    /// Sets how long one decision may take, whatever the store; 0 is taken as 1 ms. Without it, it is
    /// the [store's own budget](Store::budget), which is 100 ms for a
    /// [`RedisStore`](crate::RedisStore), and 100 ms for a store without one.
    ///
    /// It is for all that a request waits for before it is admitted. Where keys or quotas have to be looked
    /// up, what is known of the request is looked at first; of the time that is left, look-ups, which are
    /// made side by side, have half, and the store what they leave. A quota that is not there then is the
    /// policy's own; a key, as if its look-up had failed: see [`OnFailure`](OnFailure#keys).
    ///
    /// What the store does not decide in time is decided as [`on_failure`](Self::on_failure) says.
    /// Its late answer goes nowhere: units it took stay taken, and slots are released. The shorter of
    /// this budget and the store's holds; timers add up to 2 ms. Outside of a tokio runtime with time
    /// only the store's does. On a Redis Cluster set the store's, not a shorter one here: what is late
    /// for the layer alone counts against all primaries, as it does not know whom it waited for.
    pub fn budget(self, budget: Duration) -> Self {
        self.change_failure(|rules| rules.budget = Some(budget.max(Duration::from_millis(1))))
    }

    /// Whether the store is asked, or has failed so often that it is not: see [`OnFailure`], which says
    /// what counts as a failure, and when the store is probed. It is half-open while a probe has no
    /// answer yet.
    ///
    /// It is about the requests of this layer, of its clones, and of what was made of them. On a Redis
    /// Cluster each primary has a breaker of its own: see
    /// [`RedisStore::breakers`](crate::RedisStore::breakers).
    pub fn breaker_state(&self) -> BreakerState {
        self.gate.load().limits.store.breaker_state()
    }

    /// The same policies and counters for what is no HTTP request.
    pub fn limiter(&self) -> Limiter {
        Limiter::shared(Arc::clone(&self.gate) as Arc<dyn InForce>)
    }

    fn change_failure(self, change: impl FnOnce(&mut FailureRules)) -> Self {
        self.change(|gate| gate.limits.change_failure(change))
    }

    /// A layer of its own, with a change.
    fn change(self, change: impl FnOnce(&mut Gate)) -> Self {
        let mut gate = Gate::clone(&self.gate.load());
        change(&mut gate);
        Self::of(gate)
    }

    fn of(gate: Gate) -> Self {
        Self { gate: Arc::new(ArcSwap::from_pointee(gate)), shows_all: Arc::default() }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.gate))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("policies", &self.gate.load().policies).finish_non_exhaustive()
    }
}
