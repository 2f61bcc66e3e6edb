//! What a layer decides without its store, and after which time: the rule that users set, and its
//! settings.
//!
//! They are plain values, copied into the store that applies them. Defaults are here, and nowhere
//! else.

use std::num::NonZeroU32;
use std::time::Duration;

/// How long a layer admits all requests in one outage, unless it is set.
const ALLOW_FOR: Duration = Duration::from_secs(60);

/// How long one decision may take if neither the layer nor the store has a timeout.
pub(super) const BUDGET: Duration = Duration::from_millis(100);

/// What a layer does with a request that its store could not decide.
///
/// # What is a failure
///
/// Timeouts, lost connections and errors returned by the server are failures. One failed call or connection is one
/// failure, however many requests waited for it: a store may decide many requests in one call, and they fail or succeed
/// together. For other stores each decision counts as a call, and so does each decision that the layer ends with its
/// own timer, because the store has no [timeout](crate::store::Capabilities::timeout).
///
/// After 5 failures in a row, or after 10 within a second that are at least half of the calls since the first of them,
/// the circuit breaker opens: the store is no longer called, so that during an outage no request waits for a timeout.
///
/// # Probes
///
/// While the breaker is open, single requests probe the store: the first 50 ms later, each further one at most 500 ms
/// after the previous probe began, even if that has no result yet. The first probe that succeeds closes the breaker. A
/// probe calls the server itself, even if a store around it could decide. It continues if its client disconnects, and
/// times out after the timeout, or after 15 s if the timeout is longer. So limits are shared again within 500 ms of the
/// store's return, plus the time until the next request and the time its reply takes. If the store fails again within a
/// second of that, probes start with a longer pause than the first time, of at most 500 ms. See
/// [`breaker_state`](crate::LiveLayer::breaker_state).
///
/// On a Redis Cluster each primary has a breaker of its own: the layer does not count failures of one primary, the
/// other primaries still decide for their slots, and a replica that takes over is called at once. See
/// [`RedisStore::breakers`](crate::RedisStore::breakers). For a single server, or the primary that sentinels name, the
/// layer's breaker is the only one.
///
/// # Slots
///
/// Slots of a [concurrency](crate::Quota::concurrency) count in the store that they were taken from, until they are
/// released. So when the store fails, and when it is back, there may be as many at once as both admit, the store and the
/// fallback, for as long as those of before are held.
///
/// # Keys
///
/// The same rule applies to keys that could not be looked up, because a [lookup](crate::key::lookup) failed, timed out
/// or was not started, as too many were in flight. The store still decides the other policies.
///
/// - [`Fallback`](Self::Fallback): the policy counts all such requests together, with its own quota. If it
///   [refuses](crate::policy::MissingKey::Deny) requests without a key, or [denies](crate::Policy::deny) some values of the
///   key, it refuses them with 503 instead.
/// - [`Allow`](Self::Allow): the policy does not apply to them, its deny list included, for as long as lookups fail.
/// - [`Deny`](Self::Deny): they are refused with 503.
///
/// A warning with the code `key_unknown` is logged, at most once a second.
///
/// # Clients
///
/// Clients do not see which of these decided; your code does, by
/// [`Decision::source`](crate::Decision::source).
///
/// # Examples
///
/// ```
/// use tollgate::{MemoryStore, OnFailure, Policy, Quota, RateLimitLayer};
///
/// assert_eq!(OnFailure::default(), OnFailure::Fallback);
///
/// // Too many attempts are worse than none.
/// let policy = Policy::new("login", Quota::per_minute(5));
/// let layer = RateLimitLayer::new(MemoryStore::new(), policy).on_failure(OnFailure::Deny);
/// # let _ = layer;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnFailure {
    /// A local memory store decides, with quotas divided by the number of
    /// [instances](crate::RateLimitLayer::instances).
    ///
    /// The share is rounded up, and at least 1. The default is one instance, so unless `instances` is set every process
    /// admits the whole limit. A request that costs more than the share holds needs all of it, and the rest is a debt
    /// that is repaid before the next one is admitted. Headers show the configured quota, and what is left of the
    /// share.
    #[default]
    Fallback,
    /// The request is admitted, for as long as [`allow_for`](crate::RateLimitLayer::allow_for) says, 60 s of one outage
    /// by default. After that [`Fallback`](Self::Fallback) applies.
    Allow,
    /// The request is refused with 503. `Retry-After` is the time until the store, or the primary
    /// of a Cluster that failed, is probed again; at least 1 s.
    Deny,
}

/// The settings of a layer or limiter for failures of its store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureRules {
    /// What is decided instead.
    pub(crate) on_failure: OnFailure,
    /// How long all requests are admitted in one outage, with [`OnFailure::Allow`].
    pub(crate) allow_for: Duration,
    /// How many processes share the limits: the divisor of the fallback.
    pub(crate) instances: NonZeroU32,
    /// How long one decision may take; `None` for the store's own timeout.
    pub(crate) budget: Option<Duration>,
}

impl Default for FailureRules {
    fn default() -> Self {
        Self { on_failure: OnFailure::default(), allow_for: ALLOW_FOR, instances: NonZeroU32::MIN, budget: None }
    }
}
