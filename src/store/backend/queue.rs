//! Which jobs share the next transaction.
//!
//! No state is in two transactions of one process at once: the database would make one of them wait, or conflict. A job
//! whose states are free, and that nobody waits for, has a transaction of its own. The others wait, and when a
//! transaction ends, the next one takes all that may go by then, in the order in which they came. So a hot key has one
//! transaction after another, each with all of its requests. One transaction a request would be simpler, but then a key
//! has no more decisions than the database makes commits one after the other.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::mem;

use super::id::StateId;
use super::job::Job;

/// The most states in a transaction, and so of a job.
pub(super) const MOST_STATES: usize = 128;

/// The most jobs in a transaction, so that none of them waits for many others.
const MOST_JOBS: usize = 1_024;

/// The most jobs that wait; beyond it they fail at once.
pub(super) const MOST_WAITING: usize = 16_384;

/// Jobs that wait, and the states of those that do not.
pub(super) struct Queue {
    waiting: VecDeque<Job>,
    /// The states of all transactions.
    busy: HashSet<StateId>,
    /// How many transactions may still begin.
    pub(super) free: usize,
    /// Whether somebody begins what may begin when a transaction ends.
    pub(super) begins: bool,
}

/// The jobs of a transaction, in the order in which they came, and their states: distinct, in ascending order.
pub(super) type Batch = (Vec<Job>, Vec<StateId>);

impl Queue {
    /// An empty queue, for so many transactions at once.
    pub(super) fn new(rounds: usize) -> Self {
        Self { waiting: VecDeque::new(), busy: HashSet::new(), free: rounds, begins: false }
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MOST_WAITING
    }

    /// Adds a job, and returns what may begin with it.
    pub(super) fn push(&mut self, job: Job) -> Option<Batch> {
        let is_busy = job.ids.iter().any(|id| self.busy.contains(id));
        self.waiting.push_back(job);
        if is_busy { None } else { self.next() }
    }

    /// Takes all jobs that may begin and fit into one transaction. None overtakes another with which it shares a state.
    pub(super) fn next(&mut self) -> Option<Batch> {
        if self.free == 0 {
            return None;
        }
        let (mut jobs, mut ids, mut held) = (Vec::new(), BTreeSet::new(), HashSet::new());
        for job in mem::take(&mut self.waiting).into_iter().filter(|job| !job.is_idle()) {
            let fits = jobs.len() < MOST_JOBS && ids.len() + job.ids.len() <= MOST_STATES;
            if fits && !job.ids.iter().any(|id| self.busy.contains(id) || held.contains(id)) {
                ids.extend(job.ids.iter().cloned());
                jobs.push(job);
            } else {
                held.extend(job.ids.iter().cloned());
                self.waiting.push_back(job);
            }
        }
        if jobs.is_empty() {
            return None;
        }
        self.busy.extend(ids.iter().cloned());
        self.free -= 1;
        Some((jobs, ids.into_iter().collect()))
    }

    /// Lets other transactions have the states of one.
    pub(super) fn release(&mut self, ids: &[StateId]) {
        for id in ids {
            self.busy.remove(id);
        }
    }
}

#[cfg(test)]
mod tests;
