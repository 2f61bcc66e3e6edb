//! How a decision is wanted: by when, and from where.

use super::Deadline;

/// By when a decision is wanted, and where it may come from.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::{Ask, AskMode, Deadline};
///
/// let soon = Ask::default().deadline(Deadline::after(Duration::from_millis(20)));
/// assert_eq!(soon.mode, AskMode::Normal);
/// assert_eq!(soon.mode(AskMode::Probe).deadline, soon.deadline);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Ask {
    /// By when the decision is needed.
    pub deadline: Deadline,
    /// Where it may come from.
    pub mode: AskMode,
}

impl Ask {
    /// Sets the deadline, by default none.
    pub fn deadline(self, deadline: Deadline) -> Self {
        Self { deadline, ..self }
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
