//! What is wanted of a round: a decision or a change, and who waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::id::StateId;
use crate::core::error;
use crate::core::{Error, Quota, kept};
use crate::store::{Applied, Change, Check, Decided, Taken};

/// What a state is of.
#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    Quota(&'a Quota),
    Ban,
}

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

/// Work, and who waits for it.
pub(super) struct Job {
    pub(super) work: Work,
    /// The states it concerns, in the order of its checks, and behind them those of their bans, with repeats.
    pub(super) ids: SmallVec<[StateId; 1]>,
    /// The runtime that it came from.
    pub(super) runtime: Option<Runtime>,
    /// Set when its caller has given up: what it took comes too late, and is refunded.
    is_late: Arc<AtomicBool>,
    reply: oneshot::Sender<Result<Done, Error>>,
}

/// The caller's side of a job.
pub(super) struct Waiter {
    is_late: Arc<AtomicBool>,
    reply: oneshot::Receiver<Result<Done, Error>>,
}

impl Work {
    /// A decision over these checks.
    pub(super) fn decide(checks: &[Check]) -> Self {
        Self::Decide(kept(checks))
    }

    /// Returns whether it needs no state, as it forgets it.
    pub(super) fn forgets(&self) -> bool {
        match self {
            Self::Decide(_) => false,
            Self::Adjust(change) => matches!(change.2, Change::Lift | Change::Reset),
        }
    }

    /// Returns what its states are of, in the order of its ids.
    pub(super) fn kinds(&self) -> SmallVec<[Kind<'_>; 4]> {
        match self {
            Self::Decide(checks) => {
                let quotas = checks.iter().map(|check| Kind::Quota(check.counter.quota()));
                quotas.chain(banning(checks).map(|_| Kind::Ban)).collect()
            }
            Self::Adjust(change) if is_of_ban(change.2) => SmallVec::from_iter([Kind::Ban]),
            Self::Adjust(change) => SmallVec::from_iter([Kind::Quota(change.1.counter.quota())]),
        }
    }

    fn ids(&self) -> SmallVec<[StateId; 1]> {
        match self {
            Self::Decide(checks) => {
                let counters = checks.iter().map(|check| StateId::of(&check.counter));
                counters.chain(banning(checks).map(|check| StateId::of_ban(&check.counter))).collect()
            }
            Self::Adjust(change) if is_of_ban(change.2) => SmallVec::from_buf([StateId::of_ban(&change.1.counter)]),
            Self::Adjust(change) => SmallVec::from_buf([StateId::of(&change.1.counter)]),
        }
    }
}

/// Returns the checks that have a ban, whose states stand behind those of all checks.
fn banning(checks: &[Check]) -> impl Iterator<Item = &Check> {
    checks.iter().filter(|check| check.ban.is_some())
}

/// Returns whether a change is one to the ban of a key.
fn is_of_ban(change: Change) -> bool {
    matches!(change, Change::Strike(_) | Change::Lift)
}

impl Job {
    /// Work to be done, and the side of who waits for it.
    pub(super) fn new(work: Work) -> (Self, Waiter) {
        let (ids, is_late, (sender, reply)) = (work.ids(), Arc::<AtomicBool>::default(), oneshot::channel());
        let waiter = Waiter { is_late: Arc::clone(&is_late), reply };
        (Self { work, ids, runtime: Runtime::try_current().ok(), is_late, reply: sender }, waiter)
    }

    /// Returns whether there is nothing to do any more: nobody waits for the decision. Changes are made whoever waits.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.work, Work::Decide(_)) && self.reply.is_closed()
    }

    /// Returns the result to the caller. If it came too late for that, returns what was decided, to be refunded; a caller
    /// that just left keeps what it took, as work may have been done.
    pub(super) fn complete(self, result: Result<Done, Error>) -> Option<Decided> {
        match self.reply.send(result) {
            Err(Ok(Done::Decided(decided))) if self.is_late.load(Ordering::Acquire) => Some(decided),
            _ => None,
        }
    }
}

impl Waiter {
    /// Returns the result if it is there.
    pub(super) fn ready(&mut self) -> Option<Result<Done, Error>> {
        match self.reply.try_recv() {
            Ok(result) => Some(result),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(Err(lost())),
        }
    }

    /// Waits for the result, until a time where there are timers.
    ///
    /// # Errors
    ///
    /// That of the job, or `late` if there is no result in time.
    pub(super) async fn wait(mut self, until: Instant, late: impl FnOnce() -> Error) -> Result<Done, Error> {
        if Runtime::try_current().is_err() {
            return self.reply.await.unwrap_or_else(|_| Err(lost()));
        }
        if let Ok(result) = tokio::time::timeout_at(until, &mut self.reply).await {
            return result.unwrap_or_else(|_| Err(lost()));
        }
        // What comes from now on is late; what came before it was is not.
        self.is_late.store(true, Ordering::Release);
        self.reply.close();
        self.reply.try_recv().unwrap_or_else(|_| Err(late()))
    }
}

/// The error of a job that was dropped: its runtime stopped, or the database panicked.
fn lost() -> Error {
    Error::new(error::Kind::Store, "the round was dropped: its runtime stopped, or the database panicked")
}
