//! Which headers are sent.

use std::time::Duration;

use super::numbers::LARGEST;

/// Which draft of the IETF's fields is written.
///
/// The draft is not a standard, and no compliance is claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// draft-ietf-httpapi-ratelimit-headers-11.
    #[default]
    Draft11,
}

/// Which headers tell clients about their limits.
///
/// `Retry-After` is always sent with a refusal, if a wait can help.
///
/// Fields that the inner service or an upstream has set are merged, and never loosened: its `RateLimit` and
/// `RateLimit-Policy` get more members, and of its `X-RateLimit-*` and ours those stay, as a whole, that leave
/// less. Members that are not of this draft, such as those of an older one, are dropped where ours are
/// written: a line in two syntaxes is valid in neither, and clients would ignore all of it.
///
/// # Examples
///
/// ```
/// use tollgate::Headers;
///
/// let headers = Headers::legacy().reset_in_seconds().with_used();
/// # let _ = headers;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Headers {
    pub(super) dialect: Option<Dialect>,
    pub(super) legacy: bool,
    pub(super) reset: ResetFormat,
    pub(super) used: bool,
    pub(super) resource: bool,
    /// In seconds.
    jitter: u64,
}

/// What `X-RateLimit-Reset` counts from.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResetFormat {
    UnixTime,
    Seconds,
}

impl Headers {
    /// `RateLimit` and `RateLimit-Policy`, and the `X-RateLimit-*` set.
    pub fn both() -> Self {
        Self { legacy: true, ..Self::ietf() }
    }

    /// `RateLimit` and `RateLimit-Policy` only.
    pub fn ietf() -> Self {
        Self { dialect: Some(Dialect::default()), ..Self::none() }
    }

    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` only.
    pub fn legacy() -> Self {
        Self { legacy: true, ..Self::none() }
    }

    /// None but `Retry-After`.
    pub fn none() -> Self {
        Self { dialect: None, legacy: false, reset: ResetFormat::UnixTime, used: false, resource: false, jitter: 0 }
    }

    /// Sets the draft that `RateLimit` and `RateLimit-Policy` follow, and sends them.
    pub fn dialect(self, dialect: Dialect) -> Self {
        Self { dialect: Some(dialect), ..self }
    }

    /// Makes `X-RateLimit-Reset` seconds from now instead of Unix time.
    pub fn reset_in_seconds(self) -> Self {
        Self { reset: ResetFormat::Seconds, ..self }
    }

    /// Adds `X-RateLimit-Used` to the legacy set.
    pub fn with_used(self) -> Self {
        Self { used: true, ..self }
    }

    /// Adds `X-RateLimit-Resource`, the binding policy's name, to the legacy set.
    pub fn with_resource(self) -> Self {
        Self { resource: true, ..self }
    }

    /// Adds up to `most` to each refusal's waits, so that clients do not come back all at once;
    /// rounded down to whole seconds.
    pub fn jitter(self, most: Duration) -> Self {
        Self { jitter: most.as_secs().min(LARGEST), ..self }
    }

    /// Whether nothing but `Retry-After` is sent.
    pub(super) fn are_none(&self) -> bool {
        self.dialect.is_none() && !self.legacy
    }

    /// How many are sent, `Retry-After` aside.
    pub(super) fn count(&self) -> usize {
        let legacy = if self.legacy { 3 + usize::from(self.used) + usize::from(self.resource) } else { 0 };
        if self.dialect.is_some() { 2 + legacy } else { legacy }
    }

    /// Seconds to add to the waits of one refusal, the same to all of them.
    pub(crate) fn later(&self) -> u64 {
        if self.jitter > 0 { fastrand::u64(0..=self.jitter) } else { 0 }
    }

    /// As [`later`](Self::later), in milliseconds.
    pub(crate) fn later_millis(&self) -> u64 {
        if self.jitter > 0 { fastrand::u64(0..=self.jitter.saturating_mul(1_000)) } else { 0 }
    }
}
