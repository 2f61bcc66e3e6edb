//! The time by which a decision is needed.
//!
//! Layers give stores a deadline when their own budget is shorter than the store's. It is a point
//! of tokio's clock, so that it can be handed from store to store without losing time on the way.

use std::time::Duration;

use tokio::time::Instant;

/// By when a decision is needed: for a store that waits, the end of whatever is shorter than its
/// [budget](super::Capabilities::budget).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::Deadline;
///
/// let soon = Deadline::after(Duration::from_millis(20));
/// assert!(soon.remaining().is_some_and(|left| left <= Duration::from_millis(20)));
/// assert_eq!(soon.earlier(Deadline::after(Duration::from_secs(1))), soon);
/// assert_eq!(Deadline::none().remaining(), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Deadline {
    /// The time; `None` is later than any.
    at: Option<Instant>,
}

impl Deadline {
    /// No deadline: the store has all of its own budget.
    pub const fn none() -> Self {
        Self { at: None }
    }

    /// A deadline at a time of tokio's clock, which may have passed.
    pub const fn at(time: Instant) -> Self {
        Self { at: Some(time) }
    }

    /// A deadline after `time` from now; none if that is too late to be represented.
    pub fn after(time: Duration) -> Self {
        Self { at: Instant::now().checked_add(time) }
    }

    /// Returns the time of the deadline, if there is one.
    #[must_use]
    pub const fn instant(self) -> Option<Instant> {
        self.at
    }

    /// Returns the time until the deadline, which is zero once it has passed; `None` if there is
    /// none.
    #[must_use]
    pub fn remaining(self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Returns the earlier of two deadlines; none is later than any.
    pub fn earlier(self, other: Self) -> Self {
        let at = match (self.at, other.at) {
            (Some(at), Some(other)) => Some(at.min(other)),
            (at, other) => at.or(other),
        };
        Self { at }
    }
}
