//! Decision over all policies of a request.
//!
//! A [`Decision`] has one [`Outcome`] for each policy that applies. It is plain data, cheap to clone. The units that it
//! took are in a [`Receipt`](super::Receipt), which cannot be cloned.

mod outcome;

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::outcome::Measures;
pub use self::outcome::Outcome;
use super::{Check, Error, Mode};

/// The decision about one request over all policies that apply to it.
///
/// A handler reads it from the [`RateLimitHandle`](crate::RateLimitHandle) of its request, or takes it as an argument
/// in axum. With [`expose_decisions`](crate::RateLimitLayer::expose_decisions), responses have it in their extensions,
/// for outer layers. Cloning it is cheap. Where layers are nested, it is the decision of the innermost layer, and
/// [`outer`](Self::outer) returns the others.
///
/// # Serialization
///
/// With the feature `serde` it serializes for logs. Times are in seconds, and absent values are null:
///
/// ```json
/// {
///   "allowed": false,
///   "source": "store",
///   "binding": "api",
///   "retry_after_seconds": 0.6,
///   "delay_seconds": 0.0,
///   "outcomes": [
///     {
///       "policy": "api",
///       "key": "user:ada",
///       "shadow": false,
///       "overridden": false,
///       "allowed": false,
///       "limit": 100,
///       "window_seconds": 60.0,
///       "remaining": 0,
///       "reset_after_seconds": 60.0,
///       "retry_after_seconds": 0.6,
///       "retry_is_guess": false,
///       "banned_for_seconds": null,
///       "delay_seconds": 0.0
///     }
///   ],
///   "outer": null
/// }
/// ```
///
/// Fields may be added. Do not send it to clients, because it includes policies that they may not see:
/// [`StatusService`](crate::status::StatusService) makes such a response.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule, Source};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let rules = [Rule::new("minute", Quota::per_minute(2)), Rule::new("hour", Quota::per_hour(100))];
/// let limiter = Limiter::new(MemoryStore::new(), rules);
/// let ada = Key::new("user", "ada");
///
/// let decision = limiter.check(&ada).await?;
/// assert!(decision.is_allowed());
/// assert_eq!(decision.source(), Source::Store);
/// let remaining: Vec<_> = decision.outcomes().iter().map(|outcome| outcome.remaining()).collect();
/// assert_eq!(remaining, [1, 99]);
///
/// let decision = limiter.check_n(&ada, 2).await?;
/// assert!(decision.retry_after().is_some());
/// assert_eq!(decision.denied_by().map(|outcome| outcome.policy()).collect::<Vec<_>>(), ["minute"]);
/// # Ok(())
/// # }
/// ```
///
/// In a handler of axum:
///
/// ```
/// use tollgate::Decision;
///
/// async fn handler(decision: Decision) -> String {
///     let remaining = decision.binding().map_or(u64::MAX, |outcome| outcome.remaining());
///     format!("{remaining} requests left")
/// }
/// # let _ = handler;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a decision that is not read limits nothing"]
pub struct Decision {
    outcomes: Outcomes,
    source: Source,
    allowed: bool,
    /// Index of the binding outcome, a `u32` so that a decision stays small.
    binding: Option<u32>,
    outer: Option<Arc<Decision>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcomes {
    One(Outcome),
    Many(Arc<[Outcome]>),
}

/// The source of a decision.
///
/// Headers do not include it: it is for logs, metrics and code. [`OnFailure`](crate::OnFailure) sets which source
/// follows a failed store.
///
/// # Examples
///
/// ```
/// use tollgate::{Decision, Source};
///
/// /// Whether the limit that decided is the one that all processes share.
/// fn is_shared(decision: &Decision) -> bool {
///     matches!(decision.source(), Source::Store | Source::DenyCache | Source::Lease)
/// }
///
/// assert!(is_shared(&Decision::new([], Source::Store)));
/// assert!(!is_shared(&Decision::new([], Source::Fallback)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store itself.
    Store,
    /// A cached denial: see [`DenyCache`](crate::store::DenyCache).
    DenyCache,
    /// This process, with units that it has leased or that a lease is going to pay
    /// ([`LeaseStore`](crate::store::LeaseStore)).
    Lease,
    /// This process, by the ratio that all processes drop (the `RatioStore` of `tollgate-ratio`).
    Ratio,
    /// A local store, while the shared one is unavailable.
    Fallback,
    /// No store (fail-open): the store is unavailable, and [`OnFailure::Allow`](crate::OnFailure::Allow) allows all
    /// requests.
    FailOpen,
    /// An [override](crate::overrides::Override) that denies: no store was called.
    Override,
}

impl Source {
    /// Returns the name in metrics, such as `"deny_cache"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenyCache => "deny_cache",
            Self::Lease => "lease",
            Self::Ratio => "ratio",
            Self::Fallback => "fallback",
            Self::FailOpen => "fail_open",
            Self::Override => "override",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Decision {
    /// Combines the outcomes of all policies: the request is allowed if every enforced policy allows it.
    ///
    /// Stores return outcomes in the order of their checks. Without outcomes, the request is allowed.
    pub fn new(outcomes: impl IntoIterator<Item = Outcome>, source: Source) -> Self {
        let kept: Outcomes = outcomes.into_iter().collect();
        let outcomes = kept.as_slice();
        let allowed = outcomes.iter().all(|outcome| outcome.allowed || outcome.mode == Mode::Shadow);
        let binds = |outcome: &Outcome| outcome.mode == Mode::Enforce && !outcome.hidden;
        let enforced = outcomes.iter().enumerate().filter(|(_, outcome)| binds(outcome));
        let binding = if let [only] = outcomes {
            binds(only).then_some(0)
        } else if allowed {
            enforced.min_by_key(|(_, outcome)| (outcome.is_held(), outcome.remaining)).map(|(index, _)| index)
        } else {
            let violated = enforced.filter(|(_, outcome)| !outcome.allowed);
            violated.max_by_key(|(_, outcome)| outcome.wait_us).map(|(index, _)| index)
        };
        let binding = binding.and_then(|index| u32::try_from(index).ok());
        Self { outcomes: kept, source, allowed, binding, outer: None }
    }

    /// Returns `true` if the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Returns the source of the decision.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns the outcome of each policy that applies to the request, in the order of the policies.
    pub fn outcomes(&self) -> &[Outcome] {
        self.outcomes.as_slice()
    }

    /// Returns the outcomes of the policies that deny the request: none if it is allowed.
    pub fn denied_by(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes().iter().filter(|outcome| !outcome.allowed && outcome.mode == Mode::Enforce)
    }

    /// Returns the most restrictive outcome: the fewest units left, or the longest wait if the request is denied.
    ///
    /// In an allowed request, slots are left out if there are other units. `None` if no enforced policy applies to the
    /// request.
    pub fn binding(&self) -> Option<&Outcome> {
        self.binding.map(|index| &self.outcomes()[index as usize])
    }

    /// Returns the time until the same request is allowed, unless other requests take units before.
    ///
    /// `None` if the request is allowed, or if no wait can help because it costs more than the quota can ever have
    /// left.
    pub fn retry_after(&self) -> Option<Duration> {
        self.binding().and_then(Outcome::retry_after)
    }

    /// Returns `true` if [`retry_after`](Self::retry_after) is a guess because a concurrency binds.
    pub fn retry_is_guess(&self) -> bool {
        self.binding().is_some_and(Outcome::retry_is_guess)
    }

    /// Returns `true` if the request is denied because one of its keys is [banned](crate::Ban).
    pub fn is_banned(&self) -> bool {
        self.denied_by().any(Outcome::is_banned)
    }

    /// Returns the time that an allowed request has to wait for its turn.
    ///
    /// Zero for denied requests, and unless a queueing leaky bucket applies.
    pub fn delay(&self) -> Duration {
        if !self.allowed {
            return Duration::ZERO;
        }
        let enforced = self.outcomes().iter().filter(|outcome| outcome.mode == Mode::Enforce);
        enforced.map(Outcome::delay).max().unwrap_or_default()
    }

    /// Returns the decision of the next outer layer, if layers are nested.
    ///
    /// A denied request may have one, too: the outer layer allowed the request that the inner layer denied.
    #[must_use]
    pub fn outer(&self) -> Option<&Decision> {
        self.outer.as_deref()
    }

    pub(crate) fn inside(mut self, outer: Decision) -> Self {
        let behind = match self.outer.take() {
            Some(between) => Arc::unwrap_or_clone(between).inside(outer),
            None => outer,
        };
        self.outer = Some(Arc::new(behind));
        self
    }

    pub(crate) fn hidden(&self) -> Self {
        let outcomes = self.outcomes().iter().map(Outcome::to_hidden);
        Self { outcomes: outcomes.collect(), outer: None, ..*self }
    }

    pub(crate) fn with_quotas_of(&self, checks: &[Check], source: Source) -> Self {
        let both = self.outcomes().iter().zip(checks);
        let outcomes = both.map(|(outcome, check)| outcome.with_limit(check.counter.limit().clone()));
        Self { outcomes: outcomes.collect(), source, outer: None, ..*self }
    }
}

impl Outcomes {
    fn as_slice(&self) -> &[Outcome] {
        match self {
            Outcomes::One(outcome) => slice::from_ref(outcome),
            Outcomes::Many(outcomes) => outcomes,
        }
    }
}

impl FromIterator<Outcome> for Outcomes {
    fn from_iter<I: IntoIterator<Item = Outcome>>(outcomes: I) -> Self {
        let mut outcomes = outcomes.into_iter();
        if outcomes.size_hint() == (1, Some(1))
            && let Some(only) = outcomes.next()
        {
            return Outcomes::One(only);
        }
        Outcomes::Many(outcomes.collect())
    }
}

impl Error {
    /// Returns the last decision of a wait that [ended in a denial](Self::is_denied), and `None` for all other errors.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.detail()
    }
}
