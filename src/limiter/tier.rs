//! Quotas that are looked up by the key.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::lookup::{Looked, Lookups};
use crate::store::Answer;
use crate::{Key, Lookup, Quota, RawValues};

/// An asynchronous look-up of a key's quota.
///
/// The function gets a [`Lookup`]: the key, and the value the client sent, which the key may only hold a
/// hash of. Without an answer in time the policy's own quota counts. The limiter shields what is queried:
///
/// - Requests that come together with one key share one look-up. It goes on when they are gone.
/// - It is made only for requests that no policy refuses whose key and quota are known at once: they
///   are looked at first, without taking anything.
/// - At most 256 are under way ([`in_flight`](Self::in_flight)). Requests that would need one more have
///   the policy's own quota, and a warning with the code `lookups_full` is logged, once a second at most.
/// - It may take 50 ms ([`timeout`](Self::timeout)); a request waits for it no longer than its
///   [budget](crate::RateLimitLayer::budget) allows.
/// - Quotas of up to 10,000 keys are remembered, for 60 s; that there is none, for 10 s; that a look-up
///   failed, took too long or panicked, for 1 s. A failure is logged with the code `lookup_failed`, once
///   a second at most.
///
/// Clones share what is remembered and under way. Outside of a tokio runtime each request makes its
/// look-ups by itself, in any time.
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
    /// Looks quotas up with a function; `None` stands for the policy's own quota.
    pub fn new<F, T, E>(look: F) -> Self
    where
        F: Fn(Lookup) -> T + Send + Sync + 'static,
        T: Future<Output = Result<Option<Quota>, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self { lookups: Lookups::new(look) }
    }

    /// Sets how many keys are remembered at most, instead of 10,000.
    pub fn capacity(self, keys: u64) -> Self {
        Self { lookups: self.lookups.capacity(keys) }
    }

    /// Sets how long a key's quota is remembered, instead of 60 s.
    pub fn lifetime(self, lifetime: Duration) -> Self {
        Self { lookups: self.lookups.lifetime(lifetime) }
    }

    /// Sets how long a look-up may take, instead of 50 ms. Requests wait no longer than their
    /// [budget](crate::RateLimitLayer::budget) allows; what comes later is remembered.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { lookups: self.lookups.timeout(timeout) }
    }

    /// Sets how many look-ups are under way at a time, at most, instead of 256; 0 is taken as 1.
    pub fn in_flight(self, lookups: usize) -> Self {
        Self { lookups: self.lookups.in_flight(lookups) }
    }

    /// The quota of a key, or `None` for the policy's own; at once if it is remembered.
    pub(crate) fn find(&self, key: &Key, offered: impl FnOnce() -> RawValues) -> Answer<Option<Quota>> {
        match self.lookups.find(key, offered) {
            Answer::Ready(found) => Answer::Ready(found.unwrap_or(None)),
            Answer::Pending(finding) => Answer::pending(async move { finding.await.unwrap_or(None) }),
        }
    }
}

impl fmt::Debug for TierLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TierLookup").finish_non_exhaustive()
    }
}
