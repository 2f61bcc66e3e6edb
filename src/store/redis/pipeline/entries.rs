//! Requests that are not over, each with who waits for it, and the commands in which they leave together.

use std::task::Waker;

use deadpool_redis::redis::RedisError;
use slab::Slab;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::job::{Job, Response, Settler};
use super::resp::Reply;
use crate::core::Error;
use crate::store::breaker::Permit;

/// Identifies a request until it is over.
pub(super) type EntryId = usize;

/// What is in a command has an entry until its reply.
pub(super) type Entries = Slab<Entry>;

pub(super) struct Entry {
    pub(super) job: Box<Job>,
    pub(super) state: Progress,
}

pub(super) enum Progress {
    /// Waits for a reply. Once its time is over, it waits only to refund what is taken.
    Waits {
        waker: Option<Waker>,
        is_late: bool,
    },
    /// Its time was over while it was in flight; its caller was woken, and does not know yet.
    Late(Error),
    Done(Response),
    /// Nobody waits any more.
    Left,
    /// A settlement, which waits for no call of [`Queue::poll`](super::queue::Queue::poll).
    Settles(Settler),
}

impl Entry {
    /// Returns whether somebody waits in time, or it is a settlement.
    pub(super) fn is_needed(&self) -> bool {
        matches!(self.state, Progress::Waits { is_late: false, .. } | Progress::Settles(_))
    }

    /// Returns whether nobody waits any more.
    pub(super) fn is_left(&self) -> bool {
        matches!(self.state, Progress::Left)
    }

    pub(super) fn settles(&self) -> bool {
        matches!(self.state, Progress::Settles(_))
    }
}

/// Requests of a round.
pub(super) type Ids = SmallVec<[EntryId; 2]>;

/// One command: requests that leave together, all of one slot of a Cluster.
#[derive(Debug)]
pub(super) struct Command {
    /// In the order of the reply. Not empty.
    pub(super) ids: Ids,
    /// The checks of all.
    pub(super) size: usize,
    /// The permit by which its outcome is reported: that of a probe, if it has one.
    pub(super) permit: Option<Permit>,
    /// How often the server was sent the script or the library with it.
    pub(super) loads: u8,
    /// How many replies come before its own.
    pub(super) before: usize,
    /// Whether what was to be done before failed.
    pub(super) failure: Option<RedisError>,
    /// How many replies had come when it was sent, or when silence was last looked for.
    pub(super) heard: u64,
    /// When the server is silent if no other has come. Set when it is sent.
    pub(super) silent: Instant,
    /// Whether it is the last of its round.
    pub(super) ends_round: bool,
    /// Whether it was reported to be late.
    pub(super) is_late: bool,
}

impl Command {
    pub(super) fn new(ids: Ids, entries: &Entries) -> Self {
        let first = &entries[ids[0]].job;
        let (mut size, mut permit, silent) = (first.size(), first.permit, first.timeout.until);
        for job in ids[1..].iter().map(|id| &entries[*id].job) {
            size += job.size();
            if !permit.is_some_and(Permit::is_probe) {
                permit = job.permit.filter(|permit| permit.is_probe()).or(permit).or(job.permit);
            }
        }
        let (loads, before, failure, heard, ends_round, is_late) = (0, 0, None, 0, false, false);
        Self { ids, size, permit, loads, before, failure, heard, silent, ends_round, is_late }
    }

    /// Returns whether a reply is to what stands before it.
    pub(super) fn is_before(&mut self, reply: &Reply<'_>) -> bool {
        if self.before == 0 {
            return false;
        }
        self.before -= 1;
        if let (None, Reply::Error(error)) = (&self.failure, reply) {
            self.failure = Some(error.clone());
        }
        true
    }
}
