//! What a layer decides without its store, and after which time: the rule that users set, and its
//! settings.
//!
//! They are plain values, copied into the store that applies them. Defaults are here, and nowhere
//! else.

use std::time::Duration;

/// How long a layer admits all requests in one outage, unless it is set.
const ALLOW_FOR: Duration = Duration::from_secs(60);

/// How long one decision may take if neither the layer nor the store has a budget.
const BUDGET: Duration = Duration::from_millis(100);

/// What a layer does with a request that its store could not decide.
///
/// # What is a failure
///
/// Lost connections, timeouts and refusals of the server are failures. A failure is a call or a
/// connection, not each of those who waited for it: a store may decide many requests in one call,
/// and they fail and succeed together. Of any other store each decision is a call, and so is each
/// that the layer ends by a timer of its own, as the store has no [budget](crate::Store::budget).
///
/// After 5 failures in a row, or after 10 within a second that are at least half of the calls since
/// the first of them, the store is not called any more, so that no request has to wait for its
/// timeout during an outage. Where more than 250 calls are answered in such a second, the latest of
/// them count.
///
/// # Probes
///
/// Single requests then probe the store, the first 50 ms later, the following ones at most 500 ms
/// after the last began, whether or not that one has an outcome yet, until one is answered. A probe
/// calls the server itself, even if a store around it could decide; it goes on if its client
/// disconnects, and fails after 15 s, however long the budget is. So limits are shared again within
/// 500 ms of the store's return, plus the time to the next request, and what its reply takes. A
/// store that fails again within a second of that is left alone for longer than at first, but not
/// for more than 500 ms. See [`breaker_state`](crate::RateLimitLayer::breaker_state).
///
/// On a Redis Cluster that holds for each primary by itself: failures of one of them are not
/// counted by the layer, the slots of the others are limited by them, and a replica that takes over
/// is called at once. See [`RedisStore::breakers`](crate::RedisStore::breakers). One server, or the
/// primary that sentinels name, is all of the store, so the layer's breaker is enough.
///
/// # Keys
///
/// The same rule is for keys that could not be looked up, as a [lookup](crate::key::lookup)
/// failed, timed out, or was one too many. The store decides the other policies as ever. With
/// [`Fallback`](Self::Fallback) the policy counts all such requests together, with its own quota,
/// or, where it [refuses](crate::MissingKey::Deny) those without a key or
/// [denies](crate::Policy::deny) keys of some values, refuses them with 503; with
/// [`Allow`](Self::Allow), however long it lasts, it does not apply to them, not even what it
/// denies; with [`Deny`](Self::Deny) they are refused with 503. A warning with the code
/// `key_unknown` is logged, once a second at most.
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
    /// The share is rounded up, and at least 1. A request that costs more than the share holds needs
    /// all of it, and the rest is a debt that is paid before the next one is admitted. Headers show
    /// the quota as it was configured, and what is left of the share.
    #[default]
    Fallback,
    /// The request is admitted, but not for longer than the layer is set to
    /// [allow](crate::RateLimitLayer::allow_for): then it is as [`Fallback`](Self::Fallback).
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
    /// How many processes share the limits, at least 1: the divisor of the fallback.
    pub(crate) instances: u32,
    /// How long one decision may take; `None` for the store's own budget.
    pub(crate) budget: Option<Duration>,
}

impl Default for FailureRules {
    fn default() -> Self {
        Self { on_failure: OnFailure::default(), allow_for: ALLOW_FOR, instances: 1, budget: None }
    }
}

impl FailureRules {
    /// Returns how long one decision may take: as set, else the store's `own` budget, else 100 ms.
    pub(super) fn budget(&self, own: Option<Duration>) -> Duration {
        self.budget.or(own).unwrap_or(BUDGET)
    }
}
