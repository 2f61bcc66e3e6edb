use std::num::NonZeroU32;
use std::time::Duration;

const ALLOW_FOR: Duration = Duration::from_secs(60);

/// Timeout of a decision if neither the layer nor the store has one.
pub(super) const BUDGET: Duration = Duration::from_millis(100);

/// Decides requests that the store could not decide.
///
/// # Failures
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
/// While the breaker is open, single requests probe the store. The first probe begins 50 ms later. Each further probe
/// begins at most 500 ms after the previous one began, even if that has no result yet. The first probe that succeeds
/// closes the breaker. A probe calls the server itself, even if a wrapper could decide. The probe continues if its
/// client disconnects. It times out after the timeout, or after 15 s if the timeout is longer. So limits are shared
/// again within 500 ms of the store's return, plus the time until the next request and the time its reply takes. If the
/// store fails again within a second of its return, probes start with a longer pause than the first time, of at most
/// 500 ms. See [`breaker_state`](crate::LiveLayer::breaker_state).
///
/// On a Redis Cluster each primary has its own breaker: the layer does not count failures of one primary, the other
/// primaries still decide for their slots, and a replica that takes over is called at once. See
/// [`RedisStore::breakers`](crate::RedisStore::breakers). For a single server, or the primary that sentinels name, the
/// layer's breaker is the only one.
///
/// # Slots
///
/// Slots of a [concurrency](crate::Quota::concurrency) count in the store that they were taken from, until they are
/// released. So when the store fails, and again when it is back, earlier slots may still be held. Until they are
/// released, there may be as many slots at once as the store and the fallback together allow.
///
/// # Keys
///
/// This rule also applies to keys that could not be looked up because a [lookup](crate::key::lookup) failed, timed out
/// or was not started because too many were in flight. The store still decides the other policies.
///
/// - [`Fallback`](Self::Fallback): the policy counts all such requests together, with its own quota. If it
///   [denies](crate::policy::MissingKey::Deny) requests without a key, or [denies](crate::Policy::deny) some values of
///   the key, it denies them with 503 instead.
/// - [`Allow`](Self::Allow): neither the policy nor its deny list applies to such requests for as long as lookups fail.
/// - [`Deny`](Self::Deny): such requests are denied with 503.
///
/// A warning with the code `key_unknown` is logged, at most once a second.
///
/// # Clients
///
/// Clients cannot see which of these decided. Your code can, by [`Decision::source`](crate::Decision::source).
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
    /// allows the whole limit. A request that costs more than the share holds needs the whole share. The rest of the
    /// cost is a debt, which is repaid before the next request is allowed. Headers show the configured quota and the
    /// remaining units of the share.
    #[default]
    Fallback,
    /// The request is allowed.
    ///
    /// This lasts for [`allow_for`](crate::RateLimitLayer::allow_for) in one outage, by default 60 s. After that
    /// [`Fallback`](Self::Fallback) applies.
    Allow,
    /// The request is denied with 503.
    ///
    /// `Retry-After` is the time until the next probe of the store, or of the primary of a Cluster that failed, and at
    /// least 1 s.
    Deny,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureRules {
    pub(crate) on_failure: OnFailure,
    pub(crate) allow_for: Duration,
    pub(crate) instances: NonZeroU32,
    /// `None` for the store's own timeout.
    pub(crate) budget: Option<Duration>,
}

impl Default for FailureRules {
    fn default() -> Self {
        Self { on_failure: OnFailure::default(), allow_for: ALLOW_FOR, instances: NonZeroU32::MIN, budget: None }
    }
}
