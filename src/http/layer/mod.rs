//! Layers, built from a store, policies and settings, and put around a service.
//!
//! [`RateLimitLayer`] is the builder as well. Each setter copies the shared [state](super::gate) and changes the copy,
//! so existing services keep theirs. [`LiveLayer`] has no setter. It reads and changes the state that its services
//! share.

mod explain;
mod live;
mod policies;
mod reject;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tower::Layer;

pub use self::explain::{Explanation, PolicyExplanation};
pub use self::live::LiveLayer;
use crate::core::error::built;
use crate::core::{Decision, Error};
use crate::http::events::{LogKeys, OnDecision};
use crate::http::gate::{LayerState, SharedGate};
use crate::http::headers::RateLimitHeaders;
#[cfg(feature = "axum")]
use crate::http::key;
use crate::http::policy::Policy;
use crate::http::response::Drain;
use crate::http::service::RateLimit;
use crate::store::{FailureRules, OnFailure, Store, StoreDecision};

/// A [`Layer`] that limits the rate of requests to the service it wraps.
///
/// It has no type parameters, so it can be named, stored and returned. Clones share all state, and so do the services
/// that a layer makes.
///
/// All policies of a layer are decided together: a request that one of them denies takes nothing from the others.
/// Nested layers cannot do that. [`RateLimit`] documents the responses to denied requests and to denied [gRPC
/// calls](RateLimit#grpc).
///
/// A request that passes a layer and, further inside, the same layer or a clone of it is counted once by each policy:
/// the inner layer finds the [`RateLimitHandle`](crate::RateLimitHandle) of the outer one, and warns once (TG008). If a
/// handler sends several requests with the extensions of the request that it handles, all but the first are counted.
///
/// Each setter returns a new layer with the same store and counters. Services that were made before keep their
/// settings. Set everything first, then apply the layer, or make it [`live`](Self::live) to replace its policies or
/// read its state while it serves.
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
    pub(super) gate: SharedGate,
    /// `true` after `status_service` was called on this layer or a clone.
    pub(super) shows_all: Arc<AtomicBool>,
}

impl RateLimitLayer {
    /// Creates a layer with one policy.
    ///
    /// # Panics
    ///
    /// See [`policy`](Self::policy).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
    ///
    /// let policy = Policy::new("api", Quota::per_minute(100)).key(key::header("x-api-key"));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy);
    /// # let _ = layer;
    /// ```
    #[track_caller]
    pub fn new(store: impl Store, policy: Policy) -> Self {
        Self::composite(store).policy(policy)
    }

    /// Fallible version of [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// See [`try_policy`](Self::try_policy).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let layer = RateLimitLayer::try_new(MemoryStore::new(), Policy::try_new("api", Quota::per_minute(100))?)?;
    /// # let _ = layer;
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_new(store: impl Store, policy: Policy) -> Result<Self, Error> {
        Self::composite(store).try_policy(policy)
    }

    /// Creates a layer without a policy, which allows every request until one is added.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::composite(MemoryStore::new())
    ///     .policy(Policy::new("burst", Quota::per_second(50)))
    ///     .policy(Policy::new("day", Quota::per_hour(20_000)));
    /// # let _ = layer;
    /// ```
    pub fn composite(store: impl Store) -> Self {
        Self::from_state(LayerState::new(Arc::new(store)))
    }

    /// Sets how the client's address is extracted, instead of taking the peer's address.
    ///
    /// The setting applies to allow and deny lists of addresses, to the policy of [`ip`](Self::ip), and to each key
    /// [`client_ip()`](key::client_ip), also as a part of another key. It applies whether a policy is added before or
    /// after. Such a key may have its own prefix length, but no other proxies and no other header. Your own closures
    /// and extractors that read an address do not follow it.
    ///
    /// # Panics
    ///
    /// If it contradicts the key of a policy, or a policy is not valid with it, such as a policy with a ban by an
    /// address that clients choose.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
    ///
    /// let behind_proxy = key::client_ip().trusted_proxies(["10.0.0.0/8"]);
    /// let login = Policy::new("login", Quota::per_minute(5)).key(key::client_ip());
    /// let layer = RateLimitLayer::composite(MemoryStore::new()).client(behind_proxy).policy(login);
    /// # let _ = layer;
    /// ```
    #[cfg(feature = "axum")]
    #[track_caller]
    pub fn client(self, client: key::ClientIp) -> Self {
        built(self.try_client(client))
    }

    /// Fallible version of [`client`](Self::client).
    ///
    /// # Errors
    ///
    /// If it contradicts the key of a policy, or a policy is not valid with it. The message names the policy.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
    ///
    /// let own = key::client_ip().trusted_proxies(["192.0.2.1"]);
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("login", Quota::per_minute(5)).key(own));
    /// assert!(layer.try_client(key::client_ip().trusted_proxies(["10.0.0.0/8"])).is_err());
    /// ```
    #[cfg(feature = "axum")]
    pub fn try_client(self, client: key::ClientIp) -> Result<Self, Error> {
        self.try_change(|gate| gate.client = client)
    }

    /// Sets which headers clients receive, instead of [`RateLimitHeaders::both`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitHeaders, RateLimitLayer};
    ///
    /// let policy = Policy::new("api", Quota::per_minute(100));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).headers(RateLimitHeaders::ietf());
    /// # let _ = layer;
    /// ```
    pub fn headers(self, headers: RateLimitHeaders) -> Self {
        self.change(|gate| gate.responses.headers.set_headers(headers))
    }

    /// Inserts the [`Decision`](crate::Decision) into the extensions of responses, denials included.
    ///
    /// This is for outer layers that read it from the response, such as a tracing layer. A handler reads the decision
    /// from the [`RateLimitHandle`](crate::RateLimitHandle) of its request, and [`on_denied`](Self::on_denied) receives
    /// it: neither needs this setting. Where layers are nested, the decisions of outer layers
    /// [follow](crate::Decision::outer) it. If an inner layer without this setting denies a request, the response has
    /// only the decision of this layer, which allowed the request. So use this setting on both layers.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let policy = Policy::new("api", Quota::per_minute(100));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).expose_decisions();
    /// # let _ = layer;
    /// ```
    pub fn expose_decisions(self) -> Self {
        self.change(|gate| gate.responses.exposes_decisions = true)
    }

    /// Passes requests on without a [`RateLimitHandle`](crate::RateLimitHandle), for services that do not read it.
    ///
    /// This saves two allocations for a request of which nothing is settled later.
    ///
    /// Handlers then cannot read the decision, charge, refund, check or hold slots. If an outer layer passes a handle,
    /// they find that handle. Inner layers do not see this layer, so they may warn that nothing limits a request. An
    /// [`ActualCost`](crate::response::ActualCost) in the extensions of a response is charged as before.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let policy = Policy::new("api", Quota::per_minute(100));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).without_handle();
    /// # let _ = layer;
    /// ```
    pub fn without_handle(self) -> Self {
        self.change(|gate| gate.has_handles = gate.unit.is_some())
    }

    /// Sets how much of the body of a denied request is read and dropped over HTTP/1, instead of 16 MiB in 30 s.
    ///
    /// If either is 0, nothing is read.
    ///
    /// Many clients write all of an upload before they read, and see the response only then. If a server did not read a
    /// request to its end, it closes the connection. This resets the connection while the client still sends. The
    /// response is sent at once, and a client that reads it early need not send the rest. If the request was read to
    /// its end, the connection stays open for the next one.
    ///
    /// Reading ends early if the client sends nothing for 2 s. A process reads at most 1,024 such bodies at once.
    /// Nothing is read of further denied requests. So clients that send slowly for ever keep at most 1,024 connections,
    /// each for `time` at most. Choose lower values if connections are few or traffic is expensive. Choose 0 behind a
    /// proxy that reads whole requests before it passes them on, as nginx does by default.
    ///
    /// Nothing is read of a request with `Expect: 100-continue`, nor outside of a tokio runtime, which must have timers
    /// enabled. A graceful shutdown of the server waits for these reads, as for any request: up to `time`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("photos", Quota::per_minute(10)))
    ///     .drain_denied(2 << 20, Duration::from_secs(5));
    /// # let _ = layer;
    /// ```
    pub fn drain_denied(self, max_bytes: u64, time: Duration) -> Self {
        self.change(|gate| gate.responses.drain = Drain::new(max_bytes, time))
    }

    /// Logs requests that a policy or its deny list denies, at `info`.
    ///
    /// Each policy logs at most ten lines in 10 s, so that a flood of denials does not flood the log. The next line has
    /// the number of denials that were left out. By default only denials by policies in [shadow mode](Policy::shadow)
    /// and the beginnings of bans are logged, in the same way. [`log_keys`](Self::log_keys) adds keys.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100))).log_denials();
    /// # let _ = layer;
    /// ```
    pub fn log_denials(self) -> Self {
        self.change(|gate| gate.events.logs_denials = true)
    }

    /// Logs allowed requests that leave less than `share` of a policy's capacity, at `info`, with the bound of
    /// [`log_denials`](Self::log_denials), and counts them in the metric `tollgate_near_limit_total`.
    ///
    /// # Panics
    ///
    /// If `share` is not above 0 and at most 1.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let policy = Policy::new("api", Quota::per_minute(100));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).log_near_limit(0.1);
    /// # let _ = layer;
    /// ```
    #[track_caller]
    pub fn log_near_limit(self, share: f64) -> Self {
        let is_share = share > 0.0 && share <= 1.0;
        let error = || Error::invalid(format!("share {share} is not allowed: it must be above 0 and at most 1"));
        let share = built(is_share.then_some(share).ok_or_else(error));
        self.change(|gate| gate.events.near_limit = Some(share))
    }

    /// Sets whether log lines and spans have the keys of clients, instead of [`LogKeys::Omitted`].
    pub fn log_keys(self, keys: LogKeys) -> Self {
        self.change(|gate| gate.events.keys = keys)
    }

    /// Records each decision in the fields `ratelimit.allowed`, `.source`, `.policy`, `.limit`, `.remaining` and `.key`
    /// of the current span. The span has to declare the fields that it wants.
    ///
    /// The policy is the [most restrictive](Decision::binding) one. The key follows [`log_keys`](Self::log_keys).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// // The span of an outer layer, such as tower-http's `TraceLayer::new_for_http().make_span_with(…)`.
    /// let span = tracing::info_span!("request", ratelimit.policy = tracing::field::Empty);
    /// let policy = Policy::new("api", Quota::per_minute(100));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).record_span();
    /// # let _ = (layer, span);
    /// ```
    pub fn record_span(self) -> Self {
        self.change(|gate| gate.events.records = true)
    }

    /// Sets a closure that is called with each decision, allowed or denied, before the request goes on.
    ///
    /// It is for counts and events of your own. Decisions of [`RateLimitHandle::check`](crate::RateLimitHandle::check)
    /// are reported too. It must not block. Requests without a decision, such as those without a key, are not reported.
    /// A second closure replaces the first.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let policy = Policy::new("api", Quota::per_minute(100));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).on_decision(|decision| {
    ///     for outcome in decision.denied_by() {
    ///         println!("{} denied {}", outcome.policy(), outcome.key());
    ///     }
    /// });
    /// # let _ = layer;
    /// ```
    pub fn on_decision(self, report: impl Fn(&Decision) + Send + Sync + 'static) -> Self {
        let report: Arc<OnDecision> = Arc::new(report);
        self.change(|gate| gate.events.on_decision = Some(report))
    }

    /// Sets what happens to requests that the store could not decide, instead of [`OnFailure::Fallback`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, OnFailure, Policy, Quota, RateLimitLayer};
    ///
    /// // Too many attempts are worse than none: deny them with 503 while nothing can be counted.
    /// let policy = Policy::new("login", Quota::per_minute(5));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).on_failure(OnFailure::Deny);
    /// # let _ = layer;
    /// ```
    pub fn on_failure(self, rule: OnFailure) -> Self {
        self.change_failure(|rules| rules.on_failure = rule)
    }

    /// Sets for how long [`OnFailure::Allow`] allows every request in one outage, instead of 60 s.
    ///
    /// After that a local fallback limits, until the store decides again. Zero is the same as [`OnFailure::Fallback`].
    ///
    /// The time counts from the first failure since the store last replied. If a primary of a Redis Cluster replies,
    /// but requests for some of its keys fail (while their slot is being moved, say), it counts from the first such
    /// failure, and starts again after the same time without one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{MemoryStore, OnFailure, Policy, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100)))
    ///     .on_failure(OnFailure::Allow)
    ///     .allow_for(Duration::from_secs(10));
    /// # let _ = layer;
    /// ```
    pub fn allow_for(self, time: Duration) -> Self {
        self.change_failure(|rules| rules.allow_for = time)
    }

    /// Sets how many processes share the limits. The default is 1.
    ///
    /// While the store is unavailable, the [fallback](OnFailure::Fallback) of each process allows that share of a
    /// quota, rounded up: 100 units a minute are 34 in each of three processes.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// const REPLICAS: NonZeroU32 = NonZeroU32::new(3).expect("three is not zero");
    ///
    /// let policy = Policy::new("api", Quota::per_minute(100));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).instances(REPLICAS);
    /// # let _ = layer;
    /// ```
    pub fn instances(self, instances: NonZeroU32) -> Self {
        self.change_failure(|rules| rules.instances = instances)
    }

    /// Sets the timeout of one decision.
    ///
    /// The default is the [store's own timeout](crate::store::Capabilities::timeout), 100 ms for a
    /// [`RedisStore`](crate::RedisStore), or 100 ms for a store that has none. A longer one gives the store no more
    /// time: for slow links set the timeout of the store, for example with
    /// [`RedisStoreBuilder::timeout`](crate::store::RedisStoreBuilder::timeout). Less than 1 ms is taken as 1 ms, and
    /// timers add up to 2 ms. Outside of a tokio runtime only the timeout of the store applies. A runtime must have
    /// timers enabled.
    ///
    /// A request waits longer in the queue of a leaky bucket, and for a lookup of its key or quota that is not cached.
    /// A [`TierLookup`](crate::policy::TierLookup) and a [`key::lookup`](crate::key::lookup) have their own timeouts, 1
    /// s by default, and all lookups of a request run concurrently. Before the lookups, the layer peeks at the other
    /// policies, and this peek may take a timeout, too.
    ///
    /// If the store does not decide within the timeout, [`on_failure`](Self::on_failure) does. If the store replies
    /// later, a store with its own timeout, such as a `RedisStore`, refunds the units. With any other store the units
    /// stay taken. Slots are released in both cases.
    ///
    /// On a Redis Cluster set the timeout of the store instead of a shorter one here: a layer does not know which
    /// primary it waited for, so its own timeout counts as a failure of all of them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100)))
    ///     .timeout(Duration::from_millis(20));
    /// # let _ = layer;
    /// ```
    pub fn timeout(self, budget: Duration) -> Self {
        self.change_failure(|rules| rules.budget = Some(budget.max(Duration::from_millis(1))))
    }

    /// Finishes the layer, and returns the handle that reads and changes what its services use.
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
    ///
    /// Call setters before it, because the handle has none:
    ///
    /// ```compile_fail,E0599
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100)));
    /// let _ = layer.live().without_handle();
    /// ```
    pub fn live(self) -> LiveLayer {
        LiveLayer::new(self)
    }

    /// Makes the policies of this layer count other units than requests, named `unit`.
    ///
    /// This is for a layer around a service that counts the contents of requests or responses. The unit also applies to
    /// policies that replace the present ones.
    ///
    /// A request takes nothing by itself. The layer peeks at the units left, and writes them to its headers with the
    /// unit (`qu`). The inner service takes units of the [counters](crate::RateLimitHandle::counters) in the handle of
    /// the request, which exists also after [`without_handle`](Self::without_handle).
    ///
    /// # Errors
    ///
    /// If a policy sets the units of a request: it has a cost or a [`count`](Policy::count), is
    /// [`metered`](Policy::metered) or [refunded if dropped](Policy::refund_dropped), or has a [ban](Policy::ban). If
    /// its quota is a [concurrency](crate::Quota::concurrency) or a [leaky bucket](crate::Quota::leaky_bucket). If the
    /// store cannot refund units. If the unit has characters other than `a` to `z`, digits and `-`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let rows = || Policy::new("rows", Quota::per_minute(10_000));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), rows()).in_units("rows")?;
    /// assert!(RateLimitLayer::new(MemoryStore::new(), rows().metered()).in_units("rows").is_err());
    /// # let _ = layer;
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn in_units(self, unit: &'static str) -> Result<Self, Error> {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if unit.is_empty() || !unit.bytes().all(is_allowed) {
            return Err(Error::invalid(format!(
                "unit {unit:?} is not allowed: use letters from a to z, digits and '-'"
            )));
        }
        self.try_change(|gate| (gate.unit, gate.has_handles) = (Some(unit), true))
    }

    /// Denies requests that the store allows, by the decision that the closure returns.
    ///
    /// This is for a layer that counts [in units](Self::in_units), because a request takes no units there. A decision
    /// that allows changes nothing. A second closure replaces the first.
    ///
    /// # Errors
    ///
    /// If the layer counts requests, because they have taken their units when the closure is called.
    ///
    /// # Examples
    ///
    /// No request begins unless ten rows are left:
    ///
    /// ```
    /// use tollgate::store::StoreDecision;
    /// use tollgate::{Decision, MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// fn lacks_rows(decided: &StoreDecision) -> Option<Decision> {
    ///     let rows = decided.decision.binding().filter(|rows| rows.remaining() < 10)?;
    ///     Some(Decision::new([rows.to_denied(Some(rows.reset_after()))], decided.decision.source()))
    /// }
    ///
    /// let rows = Policy::new("rows", Quota::per_minute(10_000));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), rows).in_units("rows")?.deny_if(lacks_rows)?;
    /// # let _ = layer;
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn deny_if(
        self,
        refuses: impl Fn(&StoreDecision) -> Option<Decision> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        if self.gate.load().unit.is_none() {
            return Err(Error::invalid("deny_if is for a layer that counts in units: call in_units before it"));
        }
        Ok(self.change(|gate| gate.refuses = Some(Arc::new(refuses))))
    }

    fn change_failure(self, change: impl FnOnce(&mut FailureRules)) -> Self {
        self.change(|gate| Arc::make_mut(&mut gate.limits).change_failure(change))
    }

    fn change(self, change: impl FnOnce(&mut LayerState)) -> Self {
        let mut gate = LayerState::clone(&self.gate.load());
        change(&mut gate);
        Self::from_state(gate)
    }

    fn try_change(self, change: impl FnOnce(&mut LayerState)) -> Result<Self, Error> {
        let mut gate = LayerState::clone(&self.gate.load());
        change(&mut gate);
        let policies = gate.accepts(gate.policies.clone())?;
        gate.set_policies(policies);
        Ok(Self::from_state(gate))
    }

    fn from_state(gate: LayerState) -> Self {
        let gate = Arc::new_cyclic(|source| {
            let mut gate = gate;
            let limits = Arc::make_mut(&mut gate.limits);
            limits.renew_warnings();
            limits.renew_overrides();
            limits.set_source(Weak::<ArcSwap<LayerState>>::clone(source));
            ArcSwap::from_pointee(gate)
        });
        Self { gate, shows_all: Arc::default() }
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
