use std::time::Duration;

use super::fields::MAX_INTEGER;
use crate::core::random;

/// IETF draft that `RateLimit` and `RateLimit-Policy` follow.
///
/// A draft is not a standard, and no compliance is claimed.
///
/// # Examples
///
/// ```
/// use tollgate::response::Draft;
/// use tollgate::RateLimitHeaders;
///
/// let headers = RateLimitHeaders::legacy().draft(Draft::Draft11);
/// # let _ = headers;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Draft {
    /// draft-ietf-httpapi-ratelimit-headers-11: `RateLimit-Policy: "api";q=100;w=60` and `RateLimit: "api";r=50;t=30`.
    #[default]
    Draft11,
}

/// Headers in which clients receive their limits, for [`RateLimitLayer::headers`](crate::RateLimitLayer::headers).
///
/// The default of a layer is [`both`](Self::both). `Retry-After` is always sent with a denial, if a wait can help.
///
/// | header | value |
/// | --- | --- |
/// | `RateLimit-Policy` | for each policy that applies: its name, `q` (units) and `w` (seconds in which they are refilled). A concurrency has `q` and `qu="concurrent-requests"`. Bytes also have `qu="content-bytes"` |
/// | `RateLimit` | for each policy that applies, or in a denial each that denies: its name, `r` (units left) and `t` (seconds: how long these have to last, or if none are left, the wait for more; absent for a concurrency) |
/// | `X-RateLimit-Limit` | the limit of the binding policy, in units |
/// | `X-RateLimit-Remaining` | its units left |
/// | `X-RateLimit-Reset` | when all its units are available again: Unix time, or [seconds from now](Self::reset_in_seconds); absent for a concurrency |
/// | `X-RateLimit-Used` | its units that are not left, with [`used`](Self::used) |
/// | `X-RateLimit-Resource` | its name, with [`resource`](Self::resource) |
///
/// The binding policy is the policy with the fewest units left. A concurrency does not bind if there are other
/// policies. In a denial, the policy with the longest wait binds. Nothing tells when a request that holds a slot ends,
/// so `Retry-After` of a concurrency is a guess of 1 s.
///
/// Policies that are [unadvertised](crate::Policy::unadvertised) or in [shadow mode](crate::Policy::shadow) are in no
/// header.
///
/// # Headers of inner services
///
/// If the inner service or an upstream has set headers of a limit, no header promises more than the stricter limit. The
/// stricter limit leaves fewer units. If both leave as many units, the stricter limit has the later reset:
///
/// - `RateLimit` and `RateLimit-Policy` of this draft get the members of both, except in a denial from inside, which
///   does not change.
/// - Headers of all other forms are compared: older drafts (`RateLimit: limit=10, remaining=4, reset=7`,
///   `RateLimit-Remaining`), and `X-RateLimit-*`, also by the minute or hour. If the limit of this layer is stricter,
///   these headers are removed. Otherwise they do not change, and the layer does not write its own units left. The same
///   holds if the headers cannot be read.
/// - If two services have a policy of the same name, clients take both for one policy. So only the stricter one is
///   listed, without other policies of its service. Rename one of the two.
///
/// Without the feature `merge-headers` a line of `RateLimit` or `RateLimit-Policy` is taken for one of this draft if it
/// begins with a quoted name. With it, each member is checked.
///
/// # Examples
///
/// ```
/// use tollgate::RateLimitHeaders;
///
/// let headers = RateLimitHeaders::legacy().reset_in_seconds().used();
/// # let _ = headers;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[allow(clippy::struct_excessive_bools, reason = "each is a setting by itself")]
pub struct RateLimitHeaders {
    pub(super) dialect: Option<Draft>,
    pub(super) legacy: bool,
    pub(super) reset_in_seconds: bool,
    pub(super) used: bool,
    pub(super) resource: bool,
    /// Bound of the random addition to waits, in seconds.
    jitter: u64,
}

impl Default for RateLimitHeaders {
    fn default() -> Self {
        Self::both()
    }
}

impl RateLimitHeaders {
    /// Sends `RateLimit` and `RateLimit-Policy`, and `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub fn both() -> Self {
        Self { legacy: true, ..Self::ietf() }
    }

    /// Sends `RateLimit` and `RateLimit-Policy` only.
    pub fn ietf() -> Self {
        Self { dialect: Some(Draft::default()), ..Self::none() }
    }

    /// Sends `X-RateLimit-Limit`, `-Remaining` and `-Reset` only, like many APIs.
    pub fn legacy() -> Self {
        Self { legacy: true, ..Self::none() }
    }

    /// Sends `Retry-After` with denials, and nothing else.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitHeaders, RateLimitLayer};
    ///
    /// // For an API that does not publish its limits.
    /// let policy = Policy::new("api", Quota::per_minute(100));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).headers(RateLimitHeaders::none());
    /// # let _ = layer;
    /// ```
    pub fn none() -> Self {
        Self { dialect: None, legacy: false, reset_in_seconds: false, used: false, resource: false, jitter: 0 }
    }

    /// Sets the draft that `RateLimit` and `RateLimit-Policy` follow, and sends them.
    pub fn draft(self, dialect: Draft) -> Self {
        Self { dialect: Some(dialect), ..self }
    }

    /// Sets `X-RateLimit-Reset` to the number of seconds from the response, instead of a Unix time.
    ///
    /// Clients whose clocks are wrong then wait correctly.
    pub fn reset_in_seconds(self) -> Self {
        Self { reset_in_seconds: true, ..self }
    }

    /// Adds `X-RateLimit-Used` to the legacy headers, if these are sent.
    pub fn used(self) -> Self {
        Self { used: true, ..self }
    }

    /// Adds `X-RateLimit-Resource`, the name of the binding policy, to the legacy headers, if these are sent.
    pub fn resource(self) -> Self {
        Self { resource: true, ..self }
    }

    /// Adds up to `most` of random jitter to the waits of a denial, instead of none.
    ///
    /// So clients that were denied together do not retry together. The jitter is rounded down to whole seconds, and is
    /// the same in all waits of one response. `X-RateLimit-Reset` has no jitter, because it is not a wait. A client
    /// that waits for less than the header says may still be served, because the limits themselves do not change.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RateLimitHeaders;
    ///
    /// let headers = RateLimitHeaders::both().jitter(Duration::from_secs(5));
    /// # let _ = headers;
    /// ```
    pub fn jitter(self, most: Duration) -> Self {
        Self { jitter: most.as_secs().min(MAX_INTEGER), ..self }
    }

    /// In seconds, the same for all waits of one denial.
    pub(crate) fn later(&self) -> u64 {
        if self.jitter > 0 { random::up_to(self.jitter) } else { 0 }
    }

    pub(crate) fn later_millis(&self) -> u64 {
        if self.jitter > 0 { random::up_to(self.jitter.saturating_mul(1_000)) } else { 0 }
    }
}
