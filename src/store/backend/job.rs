//! A decision or a change that a transaction makes, and who waits for it.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::id::StateId;
use crate::core::{Error, Quota};
use crate::store::bans::changed;
use crate::store::{Applied, Change, Check, Decided, Taken};

/// What is to be done.
pub(super) enum Work {
    /// Decide these checks as one, those of bans included.
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
    /// The states it concerns, in the order of its checks, with repeats.
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
            Self::Decide(checks) => checks.iter().map(|check| StateId::of(&check.counter)).collect(),
            Self::Adjust(change) => SmallVec::from_buf([StateId::of(&change.1.counter)]),
        }
    }

    /// Returns the quota of the state at an index of its ids.
    pub(super) fn quota(&self, index: usize) -> &Quota {
        match self {
            Self::Decide(checks) => checks[index].counter.quota(),
            Self::Adjust(change) => change.1.counter.quota(),
        }
    }

    /// Changes what was taken, by a request that took others `before`.
    pub(super) fn adjust(before: &[Taken], taken: &Taken, change: Change) -> Self {
        let (taken, change) = changed(taken, change);
        Self::Adjust(Box::new((before.to_vec(), taken.into_owned(), change)))
    }
}

impl Job {
    /// Returns whether nobody waits for the decision any more. Changes are made whoever waits.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.work, Work::Decide(_)) && self.reply.is_closed()
    }
}
