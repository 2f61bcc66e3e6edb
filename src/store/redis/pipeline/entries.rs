//! What was asked and is not over, each with who waits for it.

use std::task::Waker;

use slab::Slab;

use super::job::{Job, Response, Settler};
use crate::core::Error;

/// Identifies a request until it is over.
pub(super) type EntryId = usize;

#[derive(Default)]
pub(super) struct Entries(Slab<Entry>);

pub(super) struct Entry {
    pub(super) job: Box<Job>,
    pub(super) state: State,
}

pub(super) enum State {
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

impl Entries {
    pub(super) fn insert(&mut self, job: Box<Job>, state: State) -> EntryId {
        self.0.insert(Entry { job, state })
    }

    /// Returns a request that is in a command, and so has an entry until the reply.
    pub(super) fn job(&self, id: EntryId) -> &Job {
        &self.0[id].job
    }

    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.0.get_mut(id)
    }

    pub(super) fn remove(&mut self, id: EntryId) -> Option<Entry> {
        self.0.try_remove(id)
    }

    /// Returns whether nobody waits for a request any more.
    pub(super) fn is_left(&self, id: EntryId) -> bool {
        self.0.get(id).is_none_or(|entry| matches!(entry.state, State::Left))
    }
}
