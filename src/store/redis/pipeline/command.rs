//! A command on its way: requests that leave together, and what of them is needed until the reply.

use std::time::Duration;

use deadpool_redis::redis::RedisError;
use smallvec::SmallVec;

use super::entries::{Entries, EntryId};
use crate::store::breaker::Permit;

/// Requests of a round.
pub(super) type Ids = SmallVec<[EntryId; 2]>;

/// One command: requests that leave together, all of one slot of a Cluster.
#[derive(Debug)]
pub(super) struct Command {
    /// In the order of the reply. Not empty.
    pub(super) ids: Ids,
    /// The checks of all.
    pub(super) size: usize,
    /// The budget of the first.
    pub(super) budget: Duration,
    /// The permit by which its outcome is reported: that of a probe, if it has one.
    pub(super) permit: Option<Permit>,
    /// Whether a settlement is in it.
    pub(super) settles: bool,
    /// How often the server was sent the script or the library with it.
    pub(super) loads: u8,
    /// How many replies come before its own.
    pub(super) before: usize,
    /// Whether what was to be done before failed.
    pub(super) failure: Option<RedisError>,
}

impl Command {
    pub(super) fn new(ids: Ids, entries: &Entries) -> Self {
        let first = entries.job(ids[0]);
        let (mut size, mut permit, mut settles) = (first.size(), first.permit, first.settles);
        for job in ids[1..].iter().map(|id| entries.job(*id)) {
            size += job.size();
            if !permit.is_some_and(Permit::is_probe) {
                permit = job.permit.filter(|permit| permit.is_probe()).or(permit).or(job.permit);
            }
            settles |= job.settles;
        }
        Self { budget: first.timeout.budget, ids, size, permit, settles, loads: 0, before: 0, failure: None }
    }

    /// Returns whether a reply with this failure is to what stands before it.
    pub(super) fn is_before(&mut self, failure: Option<&RedisError>) -> bool {
        if self.before == 0 {
            return false;
        }
        self.before -= 1;
        self.failure = self.failure.take().or_else(|| failure.cloned());
        true
    }
}
