//! The settings of headers: which are sent, in which syntax.

use std::time::Duration;

use super::fields::LARGEST;
use crate::core::random;

/// The draft of the IETF that `RateLimit` and `RateLimit-Policy` follow.
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

/// The headers in which clients receive their limits, for [`RateLimitLayer::headers`](crate::RateLimitLayer::headers).
///
/// The default of a layer is [`both`](Self::both). `Retry-After` is always sent with a refusal, if a wait can help.
///
/// | header | value |
/// | --- | --- |
/// | `RateLimit-Policy` | for each policy that applies: its name, `q` (units) and `w` (seconds in which they are refilled); of a concurrency `q` and `qu="concurrent-requests"`; of bytes also `qu="content-bytes"` |
/// | `RateLimit` | for each policy that applies, or of a refusal each that refuses: its name, `r` (units left) and `t` (seconds: how long these have to last, or if none are left, the wait for more; absent of a concurrency) |
/// | `X-RateLimit-Limit` | the limit of the binding policy, in units |
/// | `X-RateLimit-Remaining` | its units left |
/// | `X-RateLimit-Reset` | when all its units are available again: Unix time, or [seconds from now](Self::reset_in_seconds); absent of a concurrency |
/// | `X-RateLimit-Used` | its units that are not left, with [`used`](Self::used) |
/// | `X-RateLimit-Resource` | its name, with [`resource`](Self::resource) |
///
/// The binding policy is the one with the fewest units left, where a concurrency is left out if there are others, or of a
/// refusal the one with the longest wait. When a request ends that holds a slot is not known: so `Retry-After` of a
/// concurrency is a guess, 1 s.
///
/// Policies that are [unadvertised](crate::Policy::unadvertised) or in [shadow mode](crate::Policy::shadow) are in none
/// of them.
///
/// # Headers of inner services
///
/// Where the inner service or an upstream has set headers of a limit, no header promises more than the stricter limit,
/// which is the one that leaves less, or of as many units the one with the later reset:
///
/// - `RateLimit` and `RateLimit-Policy` of this draft get the members of both, except in a refusal from inside, which
///   stays as it is.
/// - Headers of all other forms are compared: older drafts (`RateLimit: limit=10, remaining=4, reset=7`,
///   `RateLimit-Remaining`), and `X-RateLimit-*`, also by the minute or hour. Where ours is the stricter limit, they are
///   removed. Else they stay as they are, and what is left of ours is not written; nor is it if theirs cannot be read.
/// - Two services with a policy of one name look like one policy to clients, so only the stricter is listed, without
///   other policies of that service: rename one of them.
///
/// Without the feature `merge-headers` a line of `RateLimit` or `RateLimit-Policy` is taken for one of this draft if it
/// begins with a quoted name; with it, each member is checked.
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
    /// Whether `X-RateLimit-Reset` counts from the response, and not in Unix time.
    pub(super) reset_in_seconds: bool,
    pub(super) used: bool,
    pub(super) resource: bool,
    /// The most that is added to the waits of a refusal, in seconds.
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

    /// Sends `X-RateLimit-Limit`, `-Remaining` and `-Reset` only, as many APIs do.
    pub fn legacy() -> Self {
        Self { legacy: true, ..Self::none() }
    }

    /// Sends `Retry-After` with refusals, and nothing else.
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

    /// Sets `X-RateLimit-Reset` to count in seconds from the response, instead of in Unix time.
    ///
    /// Clients whose clocks are wrong then wait correctly.
    pub fn reset_in_seconds(self) -> Self {
        Self { reset_in_seconds: true, ..self }
    }

    /// Adds `X-RateLimit-Used` to the legacy headers, if those are sent.
    pub fn used(self) -> Self {
        Self { used: true, ..self }
    }

    /// Adds `X-RateLimit-Resource`, the name of the policy that binds, to the legacy headers, if those are sent.
    pub fn resource(self) -> Self {
        Self { resource: true, ..self }
    }

    /// Sets how much time is added to the waits of a refusal, instead of none: at random, up to `most`.
    ///
    /// So clients that were refused together do not retry together. It is rounded down to whole seconds, and is the
    /// same in all waits of one response, of which the time in `X-RateLimit-Reset` is none. A shorter wait than the
    /// header's may still be served: the limits themselves do not change.
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
        Self { jitter: most.as_secs().min(LARGEST), ..self }
    }

    /// Returns the jitter of one refusal in seconds, which is added to all of its waits.
    pub(crate) fn later(&self) -> u64 {
        if self.jitter > 0 { random::up_to(self.jitter) } else { 0 }
    }

    /// Returns the same in milliseconds, for gRPC.
    pub(crate) fn later_millis(&self) -> u64 {
        if self.jitter > 0 { random::up_to(self.jitter.saturating_mul(1_000)) } else { 0 }
    }
}
