use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::core::{Error, Key, Quota};
use crate::lookup::{Looked, Lookup, Lookups, RawValues};
use crate::store::Answer;

/// A cached, asynchronous lookup of the quota of a key.
///
/// The function receives a [`Lookup`]: the key, and the value that the client sent, as the key may contain only a
/// hash of it. Without a result in time the quota of the policy or rule applies. What the function queries is shielded
/// from load:
///
/// - Concurrent requests with the same key share one lookup, which runs to its end even if they are dropped.
/// - It is made only for requests that no other policy, whose key and quota are known at once, refuses: those are
///   checked first, without taking anything.
/// - At most 256 are in flight ([`in_flight`](Self::in_flight)). A request that would need one more gets the quota of
///   the policy, and a warning with the code `lookups_full` is logged, at most once a second.
/// - It times out after 50 ms ([`timeout`](Self::timeout)); a request waits for it no longer than its
///   [budget](crate::RateLimitLayer::budget) allows.
/// - Results are cached for up to 10,000 keys: quotas for 60 s, `None` for 10 s, and failures (an error, a timeout, a
///   panic) for 1 s. A failure is logged as a warning with the code `lookup_failed`, at most once a second.
/// - A result that has expired is used for as long again where the fresh one takes longer than 10 ms, or cannot be had.
///
/// Clones share the cache and the lookups in flight. Outside of a tokio runtime each request makes its own lookup,
/// without a timeout.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use tollgate::{Lookup, Policy, Quota, TierLookup, key};
///
/// const PRO: Quota = Quota::per_minute(5_000);
///
/// async fn plan(user: Lookup) -> Result<Option<Quota>, Infallible> {
///     Ok(if user.text() == Some("sk_live_ada") { Some(PRO) } else { None })
/// }
///
/// let policy = Policy::new("user", Quota::per_minute(100))
///     .key(key::header("x-api-key"))
///     .tier_lookup(TierLookup::new(plan));
/// # let _ = policy;
/// ```
#[derive(Clone)]
#[must_use]
pub struct TierLookup {
    lookups: Lookups<Option<Quota>>,
}

impl Looked for Option<Quota> {
    fn is_nothing(&self) -> bool {
        self.is_none()
    }
}

impl TierLookup {
    /// A lookup by an async function; `None` selects the quota of the policy or rule.
    ///
    /// A change in what the function returns is seen when the cached result expires: see [`lifetime`](Self::lifetime).
    pub fn new<F, T, E>(look: F) -> Self
    where
        F: Fn(Lookup) -> T + Send + Sync + 'static,
        T: Future<Output = Result<Option<Quota>, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self { lookups: Lookups::new(look) }
    }

    /// Sets how many results are cached at most, 10,000 by default; with 0 nothing is cached.
    ///
    /// This and the other methods that set something return lookups with an empty cache of their own.
    pub fn capacity(self, keys: u64) -> Self {
        Self { lookups: self.lookups.with(|settings| settings.capacity = keys) }
    }

    /// Sets how long a quota is cached, 60 s by default, 365 days at most. `None` is cached for that time or 10 s,
    /// whichever is shorter; failures are cached for 1 s.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    /// use tollgate::{Lookup, Quota, TierLookup};
    ///
    /// async fn plan(_: Lookup) -> Result<Option<Quota>, Infallible> {
    ///     Ok(Some(Quota::per_minute(5_000)))
    /// }
    ///
    /// let tiers = TierLookup::new(plan)
    ///     .capacity(100_000)
    ///     .lifetime(Duration::from_secs(10))
    ///     .timeout(Duration::from_millis(20))
    ///     .in_flight(64);
    /// # let _ = tiers;
    /// ```
    pub fn lifetime(self, lifetime: Duration) -> Self {
        Self { lookups: self.lookups.with(|settings| settings.lifetime = lifetime) }
    }

    /// Sets the timeout of a lookup, 50 ms by default.
    ///
    /// Requests wait no longer than their [budget](crate::RateLimitLayer::budget) allows; a result that comes after
    /// that, and within the timeout, is cached for the next request.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { lookups: self.lookups.with(|settings| settings.timeout = timeout) }
    }

    /// Sets how many lookups are in flight at most, 256 by default; 0 becomes 1.
    pub fn in_flight(self, lookups: usize) -> Self {
        Self { lookups: self.lookups.with(|settings| settings.in_flight = lookups) }
    }

    /// Returns the quota of a key, ready if it is cached, or `None` for that of the rule.
    ///
    /// `raw_values` is called only for a lookup.
    pub(crate) fn find(&self, key: &Key, raw_values: impl FnOnce() -> RawValues) -> Answer<Option<Quota>> {
        self.try_find(key, raw_values).map(|tier| tier.unwrap_or(None))
    }

    /// As [`find`](Self::find), but a lookup that failed is an error.
    pub(crate) fn try_find(
        &self,
        key: &Key,
        raw_values: impl FnOnce() -> RawValues,
    ) -> Answer<Result<Option<Quota>, Error>> {
        self.lookups.find(key, raw_values)
    }
}

impl fmt::Debug for TierLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TierLookup").finish_non_exhaustive()
    }
}
