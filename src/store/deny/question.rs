//! What is noted of a request before the store decides it.
//!
//! The checks come in; a [`Question`] goes out, which comes back with the decision to
//! [`learn`](super::refusals::Refusals::learn). It exists because a counter may be changed while the store decides: the
//! generations noted before are compared with those afterwards, and a refusal that may be older than a change is not
//! cached.
//!
//! Only `refusals` reads what is in it; the stores that hold a question just hand it back.

use smallvec::SmallVec;

use crate::store::{Check, Decided, Mode, Settles};

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It is refused.
    ///
    /// The decision has an empty receipt: nothing was taken.
    Refused(Decided),
    /// The store has to say, and it is to be [learned](super::refusals::Refusals::learn) from.
    Open(Question),
}

/// What has to be known of a request to learn from its decision.
#[derive(Debug)]
pub(crate) struct Question {
    /// The time before the store was called, in microseconds of the cache's clock.
    pub(super) sent: u64,
    /// One for each check, in their order.
    pub(super) marks: Marks,
    /// Whether a refusal may be cached: no check is in shadow mode and no two are of one counter, or all are looks.
    pub(super) remembers: bool,
    /// Whether all of its checks only look (cost 0).
    pub(super) looks: bool,
}

/// The marks of one request; two of them need no allocation.
pub(super) type Marks = SmallVec<[Mark; 2]>;

/// One check of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The hash of policy and key, without the quota.
    pub(super) base: u64,
    /// How often the counters of this hash's slot had been forgotten.
    pub(super) generation: u64,
}

/// Returns whether a refusal of this check holds until its wait is over.
///
/// It does if it has a cost, is enforced, and settles as taken: units that come back by a request's outcome may be
/// there any moment.
pub(super) fn is_remembered(check: &Check) -> bool {
    check.cost > 0 && check.mode == Mode::Enforce && check.settles == Settles::AsTaken
}

/// Returns whether two checks may be of one counter: their hashes are equal.
pub(super) fn repeats(marks: &[Mark]) -> bool {
    marks.iter().enumerate().any(|(index, mark)| marks[..index].iter().any(|before| before.base == mark.base))
}
