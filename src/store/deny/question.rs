//! What is noted of a request before the store is asked.

use smallvec::SmallVec;

use crate::store::{Check, Decided, Mode, Settles};

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It is refused.
    Refused(Decided),
    /// The store has to say, and it is to be [learned](super::refusals::Refusals::learn) from.
    Open(Question),
}

/// What has to be known of a request to learn from its decision.
#[derive(Debug)]
pub(crate) struct Question {
    pub(super) sent: u64,
    pub(super) marks: Marks,
    /// Whether a refusal is remembered.
    pub(super) remembers: bool,
    /// Whether its checks only look.
    pub(super) looks: bool,
}

pub(super) type Marks = SmallVec<[Mark; 2]>;

/// One check of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Of policy and key.
    pub(super) base: u64,
    pub(super) generation: u64,
}

/// Whether a refusal of this check holds until its wait is over.
pub(super) fn is_remembered(check: &Check) -> bool {
    check.cost > 0 && check.mode == Mode::Enforce && check.settles == Settles::AsTaken
}

/// Whether two checks may be of one counter.
pub(super) fn repeats(marks: &[Mark]) -> bool {
    marks.iter().enumerate().any(|(index, mark)| marks[..index].iter().any(|before| before.base == mark.base))
}
