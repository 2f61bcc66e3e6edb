use std::task::Waker;

use deadpool_redis::redis::RedisError;
use slab::Slab;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::job::{Job, Response, Settler};
use super::resp::Reply;
use crate::core::Error;
use crate::store::breaker::CallPermit;

pub(super) type EntryId = usize;

/// Each request of a command has an entry until the reply.
pub(super) type Entries = Slab<Entry>;

pub(super) struct Entry {
    pub(super) job: Job,
    pub(super) state: Progress,
}

pub(super) enum Progress {
    /// Waits for a reply. After its timeout, it waits only to refund what was taken.
    Waits {
        waker: Option<Waker>,
        is_late: bool,
    },
    /// Timed out in flight. The caller was woken but has not polled yet.
    Late(Error),
    Done(Response),
    Left,
    Settles(Settler),
}

impl Entry {
    pub(super) fn is_needed(&self) -> bool {
        matches!(self.state, Progress::Waits { is_late: false, .. } | Progress::Settles(_))
    }

    pub(super) fn is_left(&self) -> bool {
        matches!(self.state, Progress::Left)
    }

    pub(super) fn settles(&self) -> bool {
        matches!(self.state, Progress::Settles(_))
    }
}

pub(super) type Ids = SmallVec<[EntryId; 2]>;

#[derive(Debug)]
pub(super) struct Command {
    /// In the order of the reply. Not empty.
    pub(super) ids: Ids,
    pub(super) size: usize,
    /// The permit to report the outcome by. A probe's permit has precedence.
    pub(super) permit: Option<CallPermit>,
    /// Number of times the script or library was sent with it.
    pub(super) loads: u8,
    /// Replies that precede its own, such as the reply to `ASKING`.
    pub(super) before: usize,
    /// First error among those replies.
    pub(super) failure: Option<RedisError>,
    /// `Queue::heard` when it was sent, or at the last check for silence.
    pub(super) heard: u64,
    /// When the server counts as silent if no reply arrives until then.
    pub(super) silent: Instant,
    pub(super) ends_round: bool,
    /// Whether its timeout was reported.
    pub(super) is_late: bool,
}

impl Command {
    pub(super) fn new(ids: Ids, entries: &Entries) -> Self {
        let first = &entries[ids[0]].job;
        let (mut size, mut permit, silent) = (first.size(), first.permit, first.timeout.until);
        for job in ids[1..].iter().map(|id| &entries[*id].job) {
            size += job.size();
            if !permit.is_some_and(CallPermit::is_probe) {
                permit = job.permit.filter(|permit| permit.is_probe()).or(permit).or(job.permit);
            }
        }
        let (loads, before, failure, heard, ends_round, is_late) = (0, 0, None, 0, false, false);
        Self { ids, size, permit, loads, before, failure, heard, silent, ends_round, is_late }
    }

    /// Counts a reply that precedes the command's own.
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
