//! A decision or a change that a transaction makes, and who waits for it.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::id::StateId;
use crate::core::{Error, Quota};
use crate::store::{Applied, Change, Check, Decided, Taken};

/// What is to be done.
pub(super) enum Work {
    /// Decide these checks as one.
    Decide(SmallVec<[Check; 1]>),
    /// Change what was taken; the list is what the same request took before.
    Adjust(Box<(Vec<Taken>, Taken, Change)>),
}

/// What was done.
#[derive(Debug)]
pub(super) enum Done {
    Decided(Decided),
    Applied(Applied),
}

impl Done {
    pub(super) fn decided(self) -> Decided {
        match self {
            Self::Decided(decided) => decided,
            Self::Applied(_) => unreachable!("a decision was wanted"),
        }
    }

    pub(super) fn applied(self) -> Applied {
        match self {
            Self::Applied(applied) => applied,
            Self::Decided(_) => unreachable!("a change was wanted"),
        }
    }
}

/// Work, and who waits for it.
pub(super) struct Job {
    pub(super) work: Work,
    /// The states it concerns, in the order of its checks, and behind them those of their bans, with repeats.
    pub(super) ids: SmallVec<[StateId; 1]>,
    /// Until when its caller waits.
    pub(super) until: Instant,
    /// The pause before it is tried again if it surely was not done; only settlements are.
    pub(super) pause: Option<Duration>,
    pub(super) reply: oneshot::Sender<Result<Done, Error>>,
}

impl Work {
    /// Returns the states that it concerns.
    pub(super) fn ids(&self) -> SmallVec<[StateId; 1]> {
        match self {
            Self::Decide(checks) => {
                let banning = checks.iter().filter(|check| check.ban.is_some());
                let counters = checks.iter().map(|check| StateId::of(&check.counter));
                counters.chain(banning.map(|check| StateId::of_ban(&check.counter))).collect()
            }
            Self::Adjust(change) if is_of_ban(change.2) => SmallVec::from_buf([StateId::of_ban(&change.1.counter)]),
            Self::Adjust(change) => SmallVec::from_buf([StateId::of(&change.1.counter)]),
        }
    }

    /// Returns the quota of the state at an index of its ids; `None` if that is the state of a ban.
    pub(super) fn quota(&self, index: usize) -> Option<&Quota> {
        match self {
            Self::Decide(checks) => checks.get(index).map(|check| check.counter.quota()),
            Self::Adjust(change) => (!is_of_ban(change.2)).then(|| change.1.counter.quota()),
        }
    }
}

/// Returns whether a change is one to the ban of a key.
fn is_of_ban(change: Change) -> bool {
    matches!(change, Change::Strike(_) | Change::Lift)
}

impl Job {
    /// Returns whether nobody waits for the decision any more. Changes are made whoever waits.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.work, Work::Decide(_)) && self.reply.is_closed()
    }
}
