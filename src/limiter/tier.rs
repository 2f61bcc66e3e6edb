use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::core::error::chain;
use crate::core::{Error, Key, Lines, Quota};
use crate::limiter::lookup::{Looked, Lookup, Lookups, RawValues};
use crate::store::MaybeFuture;

/// Cached, asynchronous lookup of the quota of a key.
///
/// The function receives a [`Lookup`]: the key, and the value that the client sent, because the key may contain only a
/// hash of it. If there is no result in time, the quota of the policy or rule applies, or the rule that
/// [`on_unknown`](Self::on_unknown) sets. The lookup protects the data source of the function from load:
///
/// - Concurrent requests with the same key share one lookup, which runs to its end even if they are dropped.
/// - Policies whose key and quota are known at once are peeked at first, which takes nothing. If one of them denies the
///   request, no lookup is made.
/// - At most 256 are in flight ([`in_flight`](Self::in_flight)). A request that would need one more gets no result, and
///   a warning with the code `lookups_full` is logged, at most once a second.
/// - It times out after 1 s ([`timeout`](Self::timeout)). A request may wait for the lookup and then for the decision,
///   which has its own [timeout](crate::RateLimitLayer::timeout).
/// - Results are cached for up to 10,000 keys: quotas for 60 s, `None` for 10 s, and failures (an error, a timeout, a
///   panic) for 1 s. A failure is logged as a warning with the code `lookup_failed`, at most once a second. Each
///   request without a result counts in `tollgate_unknown_tiers_total` and is logged as `tier_unknown` with its policy,
///   at most once a second.
/// - An expired result is used for another TTL if the fresh result takes longer than 10 ms, or is not available.
///
/// Clones share the cache and the lookups in flight. Outside of a tokio runtime each request makes its own lookup,
/// without a timeout.
///
/// # Examples
///
/// ```
/// use std::io;
/// use tollgate::key::Lookup;
/// use tollgate::policy::TierLookup;
/// use tollgate::{Policy, Quota, key};
///
/// # #[derive(Clone)] struct Pool;
/// # impl Pool { async fn plan_of(&self, _: &str) -> io::Result<Option<u64>> { Ok(None) } }
/// async fn plan(pool: Pool, user: Lookup) -> Result<Option<Quota>, io::Error> {
///     let Some(api_key) = user.text() else { return Ok(None) };
///     Ok(pool.plan_of(api_key).await?.map(Quota::per_minute))
/// }
///
/// # let pool = Pool;
/// let policy = Policy::new("user", Quota::per_minute(100))
///     .key(key::header("x-api-key"))
///     .tier_lookup(TierLookup::new(move |user| plan(pool.clone(), user)));
/// # let _ = policy;
/// ```
#[derive(Clone)]
#[must_use]
pub struct TierLookup {
    lookups: Lookups<Option<Quota>>,
    unknown: UnknownTier,
    lines: Arc<Lines>,
}

impl Looked for Option<Quota> {
    fn is_nothing(&self) -> bool {
        self.is_none()
    }
}

impl TierLookup {
    /// Creates a lookup by an async function. `None` selects the quota of the policy or rule.
    ///
    /// A change in what the function returns is seen when the cached result expires: see [`ttl`](Self::ttl).
    pub fn new<F, T, E>(look: F) -> Self
    where
        F: Fn(Lookup) -> T + Send + Sync + 'static,
        T: Future<Output = Result<Option<Quota>, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self { lookups: Lookups::new(look), unknown: UnknownTier::default(), lines: Arc::default() }
    }

    /// Sets how many results are cached at most, 10,000 by default. With 0 nothing is cached.
    ///
    /// This setter, like all others, returns a lookup with its own, empty cache.
    pub fn capacity(self, keys: usize) -> Self {
        Self { lookups: self.lookups.with(|settings| settings.capacity = keys as u64), ..self }
    }

    /// Sets the TTL of a quota, 60 s by default, 365 days at most.
    ///
    /// `None` is cached for that time or 10 s, whichever is shorter. Failures are cached for 1 s.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    /// use tollgate::key::Lookup;
    /// use tollgate::policy::TierLookup;
    /// use tollgate::Quota;
    ///
    /// async fn plan(_: Lookup) -> Result<Option<Quota>, Infallible> {
    ///     Ok(Some(Quota::per_minute(5_000)))
    /// }
    ///
    /// let tiers = TierLookup::new(plan)
    ///     .capacity(100_000)
    ///     .ttl(Duration::from_secs(10))
    ///     .timeout(Duration::from_millis(20))
    ///     .in_flight(64);
    /// # let _ = tiers;
    /// ```
    pub fn ttl(self, lifetime: Duration) -> Self {
        Self { lookups: self.lookups.with(|settings| settings.lifetime = lifetime), ..self }
    }

    /// Sets the timeout of a lookup, 1 s by default. A request without a cached result waits for it no longer.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { lookups: self.lookups.with(|settings| settings.timeout = timeout), ..self }
    }

    /// Sets how many lookups are in flight at most, 256 by default. 0 becomes 1.
    pub fn in_flight(self, lookups: usize) -> Self {
        Self { lookups: self.lookups.with(|settings| settings.in_flight = lookups), ..self }
    }

    /// Sets the rule for a request whose tier is not known in time, because its lookup is late or fails.
    ///
    /// The default is [`UnknownTier::Own`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use tollgate::key::Lookup;
    /// use tollgate::policy::{TierLookup, UnknownTier};
    /// use tollgate::Quota;
    ///
    /// async fn plan(_: Lookup) -> Result<Option<Quota>, Infallible> {
    ///     Ok(Some(Quota::per_minute(5_000)))
    /// }
    ///
    /// // While the database is unavailable, no client has less than the smallest paid plan.
    /// let tiers = TierLookup::new(plan).on_unknown(UnknownTier::Quota(Quota::per_minute(1_000)));
    /// # let _ = tiers;
    /// ```
    pub fn on_unknown(self, unknown: UnknownTier) -> Self {
        Self { unknown, ..self }
    }

    /// Also logs. `None` if the policy does not apply, and the error if the request is denied.
    pub(super) fn without_result(&self, policy: &str, own: Quota, error: Error) -> Result<Option<Quota>, Error> {
        let applies = self.unknown;
        self.lines.log(policy, |more| {
            let error = chain(&error);
            tracing::warn!(code = "tier_unknown", policy, error, ?applies, more, "tier lookup failed");
        });
        match applies {
            UnknownTier::Own => Ok(Some(own)),
            UnknownTier::Quota(quota) => Ok(Some(quota)),
            UnknownTier::Skip => Ok(None),
            UnknownTier::Deny => Err(error),
        }
    }

    /// Ready if cached. `None` is the rule's own quota. `raw_values` is called only for a lookup.
    pub(crate) fn find(
        &self,
        key: &Key,
        raw_values: impl FnOnce() -> RawValues,
    ) -> MaybeFuture<Result<Option<Quota>, Error>> {
        self.lookups.find(key, raw_values)
    }
}

impl fmt::Debug for TierLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TierLookup").finish_non_exhaustive()
    }
}

/// Rule for a request whose tier is not known in time.
///
/// The lookup is late or fails, and no earlier result may be used. Set it with
/// [`TierLookup::on_unknown`](crate::policy::TierLookup::on_unknown).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownTier {
    /// The policy's or rule's own quota. The default.
    #[default]
    Own,
    /// This quota, such as the quota of the smallest paid plan.
    Quota(Quota),
    /// The policy or rule does not apply.
    Skip,
    /// The request is denied with 503. A check of a [`Limiter`](crate::Limiter) is an error.
    Deny,
}
