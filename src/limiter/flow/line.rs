//! What the book of a pool is about: lots, those in line and what they want, grants, and what is to be done.

use smallvec::SmallVec;
use tokio::sync::oneshot::Sender;
use tokio::time::Instant;

use crate::store::Receipt;

/// A portion that the store admitted.
#[derive(Debug)]
pub(super) struct Lot {
    pub(super) receipt: Receipt,
    /// The units of the portion.
    pub(super) units: u64,
    pub(super) left: u64,
    pub(super) at: Instant,
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    /// The units without which it goes on waiting.
    pub(super) least: u64,
    /// The units that it can use.
    pub(super) most: u64,
    pub(super) waits: Waits,
}

/// What somebody who needs units that are not there waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// A call.
    ForCall,
    /// The quota.
    ForQuota,
}

/// Somebody in line.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) want: Want,
    pub(super) sender: Sender<Grant>,
}

impl Waiter {
    /// Returns the units that those behind cannot have until they are gained.
    pub(super) fn keeps(&self) -> u64 {
        if self.want.waits == Waits::ForQuota && !self.sender.is_closed() { self.want.least } else { 0 }
    }
}

/// What somebody who was in line may claim: units, since a time, or nothing, as the store refused or failed.
pub(super) type Grant = Option<(u64, Instant)>;

/// What is to be done next.
pub(super) enum Step<C> {
    /// Call the store for these units, or wait for the call.
    Call(C),
    /// Come again at this time.
    Wait(Instant),
    /// There is nothing to do until somebody takes units.
    Rest,
}

/// What is to be done without the lock.
#[derive(Debug, Default)]
#[must_use = "lots are to be closed, and grants to be sent"]
pub(super) struct Out {
    /// Lots that are over.
    pub(super) lots: SmallVec<[Lot; 1]>,
    /// Sent without the lock, as that wakes a task.
    pub(super) grants: Vec<(Sender<Grant>, Grant)>,
}

impl Out {
    /// Grants nothing to some who are not in line any more.
    pub(super) fn refuse(&mut self, waiters: impl IntoIterator<Item = Waiter>) {
        self.grants.extend(waiters.into_iter().map(|waiter| (waiter.sender, None)));
    }
}
