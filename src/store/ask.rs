//! Deadlines and sources of decisions.
//!
//! Layers give stores a deadline when their own timeout is shorter than the store's. It is an instant of tokio's clock,
//! so that wrappers can pass it on without losing time.

use std::time::Duration;

use tokio::time::Instant;

/// The deadline of a decision, and the sources it may come from.
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
    pub(crate) deadline: Deadline,
    /// The allowed source of the decision.
    pub mode: AskMode,
}

impl Ask {
    /// Sets the time within which the decision is needed, counted from now. The default is no limit.
    ///
    /// A store that waits keeps the shorter of it and its [timeout](super::Capabilities::timeout).
    pub fn within(self, time: Duration) -> Self {
        Self { deadline: Deadline::after(time), ..self }
    }

    /// Returns the remaining time, zero once it has passed, or `None` without a deadline.
    #[must_use]
    pub fn remaining(self) -> Option<Duration> {
        self.deadline.remaining()
    }

    /// Sets the allowed source of the decision. The default is [`AskMode::Normal`].
    pub fn mode(self, mode: AskMode) -> Self {
        Self { mode, ..self }
    }
}

/// The allowed source of a decision.
///
/// A store that always calls its server may ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AskMode {
    /// Any source. The default.
    #[default]
    Normal,
    /// The server only, even if this process could decide by itself.
    ///
    /// After a failure, a layer uses the decision of a single request to find out if the server is available again. A
    /// decision from memory would not prove that, and for a hot key there may be no other kind.
    Probe,
    /// Like [`Normal`](Self::Normal), but a cache may also deny peeks, by a cached denial of one unit beyond the floor.
    ///
    /// All checks are peeks (of cost 0). Layers make them before they look keys or quotas up for a request. A store
    /// that has units in addition to the inner store's passes them on as [`Normal`](Self::Normal).
    Cached,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Deadline {
    /// `None` is later than any time.
    at: Option<Instant>,
}

impl Deadline {
    #[cfg(feature = "redis")]
    pub(crate) const fn none() -> Self {
        Self { at: None }
    }

    pub(crate) fn after(time: Duration) -> Self {
        Self { at: Instant::now().checked_add(time) }
    }

    pub(crate) const fn instant(self) -> Option<Instant> {
        self.at
    }

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
