//! What a layer does without its store, and after which time.

use std::time::Duration;

/// How long a layer admits all without its store, unless it is told otherwise.
const ALLOW_FOR: Duration = Duration::from_secs(60);

/// How long a decision of a store may take that sets no bound itself, unless the layer does.
const BUDGET: Duration = Duration::from_millis(100);

/// What a layer does with a request its store could not decide.
///
/// After 5 failures in a row (lost connections, timeouts, refusals of the server), or after 10 within
/// a second that are at least half of the calls since the first of them, the store is not asked any
/// more, so that an outage costs no request the wait for it. Where more than 250 calls are answered in
/// such a second, the latest of them count. A failure is a call or a connection, not each of those who
/// waited for it: a store may decide many requests in one call, and they fail and are answered
/// together. Of any other store each decision is a call, and so is each that the layer ends by a timer of
/// its own, as the store has no [budget](crate::Store::budget).
///
/// Single requests then probe the store, the first 50 ms later, the following ones at most 500 ms
/// after the last began, whether or not that one has an answer yet, until one is answered. A probe asks
/// the server itself, whatever the stores around it could answer; it goes on if its client goes away,
/// and fails after 15 s, however long the budget is. So limits are shared again within 500 ms of the
/// store's return, the time to the next request, and what its answer takes. A store that fails again
/// within a second of that is left alone for longer than at first, but not for more than 500 ms. See
/// [`breaker_state`](crate::RateLimitLayer::breaker_state).
///
/// On a Redis Cluster that holds for each primary by itself: what one of them fails, the layer does
/// not count, the slots of the others are limited by them, and a replica that takes over is asked at
/// once. See [`RedisStore::breakers`](crate::RedisStore::breakers). One server, or the primary that
/// sentinels name, is all of the store, so the layer's breaker is enough.
///
/// # Keys
///
/// The same rule is for keys that could not be found out, as a [look-up](crate::key::lookup) failed, was
/// late, or was one too many. The store decides the other policies as ever. With
/// [`Fallback`](Self::Fallback) the policy counts all such requests together, with its own quota, or, where
/// it [refuses](crate::MissingKey::Deny) those without a key or [denies](crate::Policy::deny) keys of some
/// values, refuses them with 503; with [`Allow`](Self::Allow), however long it lasts, it does not apply to
/// them, not even what it denies; with [`Deny`](Self::Deny) they are refused with 503. A warning with the
/// code `key_unknown` is logged, once a second at most.
///
/// # Clients
///
/// Clients are not told which of these decided; [`Decision::source`](crate::Decision::source) tells
/// it to your code.
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
    /// The request is refused with 503. `Retry-After` is the time until the store, or the primary of a
    /// Cluster that failed, is asked again; at least 1 s.
    Deny,
}

/// What a layer has to say of failures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureRules {
    pub(crate) on_failure: OnFailure,
    pub(crate) allow_for: Duration,
    pub(crate) instances: u32,
    pub(crate) budget: Option<Duration>,
}

impl Default for FailureRules {
    fn default() -> Self {
        Self { on_failure: OnFailure::default(), allow_for: ALLOW_FOR, instances: 1, budget: None }
    }
}

impl FailureRules {
    /// How long a decision may take by a store that answers within its `own` budget.
    pub(super) fn budget(&self, own: Option<Duration>) -> Duration {
        self.budget.or(own).unwrap_or(BUDGET)
    }
}
