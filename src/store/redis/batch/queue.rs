//! The queue of a lane: jobs that wait for a call, and callers that want the connection itself.
//!
//! Jobs leave in the order in which they came, so that no settlement is overtaken by a later
//! decision on the same key, and as many at once as a batch has room for. The queue is limited:
//! decisions beyond the limit fail at once, whereas settlements are limited elsewhere
//! (`settling.rs`) and always find room.
//!
//! The queue also holds what a pushing thread needs to decide whether the lane has to be
//! woken: `is_busy` and `watched_until` are written by the runner at work before it rests, under
//! the same lock. A lane with two rounds in flight is not woken for each job, as the next reply
//! takes them along; that is why a push says whether it *is due*.
//!
//! Invariants, checked by a property test: `checks` is the sum over all jobs; `first_late` is not
//! later than the first timeout, and exact after `take_late`. Only `Turns` has the queue, behind
//! its mutex; no method blocks or completes a job.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::mem;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connection::Shared;
use super::job::Job;
use super::timeout::Timeout;
use crate::core::Error;

/// The limit of the queue in jobs, settlements included; a decision beyond it fails at once.
pub(super) const MOST_WAITING: usize = 65_536;

/// The limit of callers that wait for the connection itself.
const MOST_BORROWERS: usize = 4_096;

/// The jobs of a lane that wait for a call, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The jobs; the first leaves first.
    jobs: VecDeque<Job>,
    /// The checks of all jobs, idle ones included.
    checks: usize,
    /// The callers that wait for the connection itself, in the order in which they came.
    borrowers: Vec<Borrower>,
    /// A lower bound of all timeouts of jobs and borrowers; exact after `take_late`. `None` only if
    /// none was added since a sweep that left none.
    first_late: Option<Instant>,
    /// Whether the lane looks at the queue again without being woken: as many rounds are in flight
    /// as may be, or the connection is being made.
    pub(super) is_busy: bool,
    /// When the lane's timer goes off, at which it looks at the queue in any case. `None` if no
    /// timer is set.
    pub(super) watched_until: Option<Instant>,
    /// The number of a connection that a borrower found unusable. The lane retires it if it
    /// is the one in use.
    pub(super) discarded: Option<u64>,
}

/// A caller that wants the connection itself, for calls that share nothing with others.
#[derive(Debug)]
pub(super) struct Borrower {
    /// Receives the connection once there is one, or why there is none.
    pub(super) sender: oneshot::Sender<Result<Shared, Error>>,
    /// How long the caller waits for it.
    pub(super) timeout: Timeout,
}

impl Queue {
    /// Adds a job at the end. Returns the job if it is a decision and the queue is full, and
    /// whether the lane has to be woken: because it would not look at the queue otherwise, or not
    /// before the job times out.
    pub(super) fn add(&mut self, job: Job) -> (Result<(), Job>, bool) {
        if self.jobs.len() >= MOST_WAITING && !job.is_settlement() {
            return (Err(job), false);
        }
        // It is taken when a call has its reply, and looked at before it is late.
        let is_due = !self.is_busy || self.watched_until.is_none_or(|watched| job.timeout.until < watched);
        self.note(job.timeout.until);
        self.checks += job.request.size();
        self.jobs.push_back(job);
        (Ok(()), is_due)
    }

    /// Puts jobs before all others, in their order: they were taken from here and surely not sent,
    /// or are sent again. The limit does not apply.
    pub(super) fn put_back(&mut self, jobs: impl DoubleEndedIterator<Item = Job>) {
        for job in jobs.rev() {
            self.note(job.timeout.until);
            self.checks += job.request.size();
            self.jobs.push_front(job);
        }
    }

    /// Adds a caller that wants the connection. Returns it if too many wait, and whether the lane
    /// has to be woken, which it always has.
    pub(super) fn borrow(&mut self, borrower: Borrower) -> (Result<(), Borrower>, bool) {
        if self.borrowers.len() >= MOST_BORROWERS {
            return (Err(borrower), false);
        }
        self.note(borrower.timeout.until);
        self.borrowers.push(borrower);
        (Ok(()), true)
    }

    /// Returns whether no caller waits for the connection itself.
    pub(super) fn has_no_borrowers(&self) -> bool {
        self.borrowers.is_empty()
    }

    /// Takes all borrowers of the connection.
    pub(super) fn take_borrowers(&mut self) -> Vec<Borrower> {
        mem::take(&mut self.borrowers)
    }

    /// Takes all decisions whose timeout began at `by` or before; settlements and later decisions
    /// stay, in their order. Idle jobs are dropped on the way.
    ///
    /// For failures that concern those who waited for them. The queue is not busy after it, as the
    /// connection it waited for is not there.
    pub(super) fn take_decisions(&mut self, by: Instant) -> Vec<Job> {
        self.is_busy = false;
        let (decisions, others) =
            self.take_all().into_iter().partition(|job| !job.is_settlement() && job.timeout.began() <= by);
        let others: Vec<Job> = others;
        self.put_back(others.into_iter());
        decisions
    }

    /// Takes those whose wait for the connection began at `by` or before.
    pub(super) fn take_borrowers_by(&mut self, by: Instant) -> Vec<Borrower> {
        self.borrowers.extract_if(.., |borrower| borrower.timeout.began() <= by).collect()
    }

    /// Returns whether a caller waits for a decision, a change or the connection. Settlements do
    /// not count.
    pub(super) fn is_awaited(&self) -> bool {
        !self.borrowers.is_empty() || self.jobs.iter().any(Job::is_awaited)
    }

    /// Returns whether there is neither a job nor a borrower.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.borrowers.is_empty()
    }

    /// Returns the number of checks that wait.
    pub(super) fn checks(&self) -> usize {
        self.checks
    }

    /// Returns when `take_late` may find something: at the first timeout, or earlier.
    pub(super) fn first_late(&self) -> Option<Instant> {
        self.first_late
    }

    /// Takes jobs from the front, of at most `most` checks together, but at least one. Idle jobs
    /// are dropped, as what was not sent need not be.
    ///
    /// A job of more checks than `most` leaves alone. The result may be empty although jobs were
    /// there, if all were idle.
    pub(super) fn take(&mut self, most: usize) -> Vec<Job> {
        if self.checks <= most {
            return self.take_all();
        }
        let (mut batch, mut checks) = (Vec::with_capacity(most.min(self.jobs.len())), 0);
        while let Some(job) = self.jobs.front() {
            if !batch.is_empty() && checks + job.request.size() > most {
                break;
            }
            let Some(job) = self.jobs.pop_front() else { break };
            self.checks -= job.request.size();
            if !job.is_idle() {
                checks += job.request.size();
                batch.push(job);
            }
        }
        batch
    }

    /// Takes all jobs in their order, without the idle ones.
    pub(super) fn take_all(&mut self) -> Vec<Job> {
        if self.jobs.is_empty() {
            return Vec::new();
        }
        self.checks = 0;
        // As many will wait for the next call.
        let next = VecDeque::with_capacity(self.jobs.len());
        let mut batch = Vec::from(mem::replace(&mut self.jobs, next));
        batch.retain(|job| !job.is_idle());
        batch
    }

    /// Takes every job and borrower whose timeout is at `now` or before, and computes `first_late`
    /// anew. Takes time in proportion to the length of the queue, so callers first compare with
    /// `first_late`.
    pub(super) fn take_late(&mut self, now: Instant) -> (Vec<Job>, Vec<Borrower>) {
        let (late, jobs): (Vec<Job>, VecDeque<Job>) = {
            let mut late = Vec::new();
            let mut jobs = VecDeque::with_capacity(self.jobs.len());
            for job in self.jobs.drain(..) {
                if job.timeout.until <= now { late.push(job) } else { jobs.push_back(job) }
            }
            (late, jobs)
        };
        let (late_borrowers, borrowers) =
            mem::take(&mut self.borrowers).into_iter().partition(|borrower| borrower.timeout.until <= now);
        (self.jobs, self.borrowers) = (jobs, borrowers);
        self.checks = self.jobs.iter().map(|job| job.request.size()).sum();
        let ends = self.jobs.iter().map(|job| job.timeout.until);
        self.first_late = ends.chain(self.borrowers.iter().map(|borrower| borrower.timeout.until)).min();
        (late, late_borrowers)
    }

    /// Lowers `first_late` to the timeout of something that is added.
    fn note(&mut self, until: Instant) {
        self.first_late = Some(self.first_late.map_or(until, |first| first.min(until)));
    }
}
