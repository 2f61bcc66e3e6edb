//! How a decision is wanted: by when, and from where.
//!
//! Layers give stores a deadline when their own timeout is shorter than the store's. It is a point of tokio's clock, so
//! that it is handed from store to store without losing time on the way.

use std::time::Duration;

use tokio::time::Instant;

/// By when a decision is wanted, and where it may come from.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::{Ask, AskMode};
///
/// let soon = Ask::default().within(Duration::from_millis(20));
/// assert!(soon.remaining().is_some_and(|left| left <= Duration::from_millis(20)));
/// assert_eq!((soon.mode, Ask::default().remaining()), (AskMode::Normal, None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Ask {
    /// By when the decision is needed.
    pub(crate) deadline: Deadline,
    /// Where it may come from.
    pub mode: AskMode,
}

impl Ask {
    /// Sets the time within which the decision is needed, counted from now, by default without end: for a store that
    /// waits, whatever is shorter than its [timeout](super::Capabilities::timeout).
    pub fn within(self, time: Duration) -> Self {
        Self { deadline: Deadline::after(time), ..self }
    }

    /// Returns the time that is left, zero once it has passed; `None` if there is no deadline.
    #[must_use]
    pub fn remaining(self) -> Option<Duration> {
        self.deadline.remaining()
    }

    /// Sets where the decision may come from, by default [`AskMode::Normal`].
    pub fn mode(self, mode: AskMode) -> Self {
        Self { mode, ..self }
    }
}

/// Where a decision may come from.
///
/// A store that always calls its server may ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AskMode {
    /// From wherever the store decides. The default.
    #[default]
    Normal,
    /// From the server only, even if this process could decide by itself.
    ///
    /// After a failure, a layer uses the decision of a single request to find out whether the server is available
    /// again. A decision from memory would not show that, and for a hot key there may be no other kind.
    Probe,
    /// As [`Normal`](Self::Normal), but a cache may also refuse looks: by a cached refusal of one unit beyond the floor.
    ///
    /// All checks are looks (of cost 0). Layers make them before they look keys or quotas up for a request. A store that
    /// has units of its own besides those of the inner store passes them on as [`Normal`](Self::Normal).
    Cached,
}

/// By when a decision is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Deadline {
    /// The time; `None` is later than any.
    at: Option<Instant>,
}

impl Deadline {
    pub(crate) const fn none() -> Self {
        Self { at: None }
    }

    /// A deadline after `time` from now; none if that is too late to be represented.
    pub(crate) fn after(time: Duration) -> Self {
        Self { at: Instant::now().checked_add(time) }
    }

    pub(crate) const fn instant(self) -> Option<Instant> {
        self.at
    }

    /// Returns the time until the deadline, which is zero once it has passed; `None` if there is
    /// none.
    pub(crate) fn remaining(self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn earlier(self, other: Self) -> Self {
        let at = match (self.at, other.at) {
            (Some(at), Some(other)) => Some(at.min(other)),
            (at, other) => at.or(other),
        };
        Self { at }
    }
}
