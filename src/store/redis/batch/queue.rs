//! What waits for a call.

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

/// Decisions that wait at most; a further one fails at once.
pub(super) const MOST_WAITING: usize = 65_536;

/// Those who want the connection itself at most.
const MOST_BORROWERS: usize = 4_096;

/// What waits for a call, in the order in which it came.
#[derive(Debug, Default)]
pub(super) struct Queue {
    jobs: VecDeque<Job>,
    checks: usize,
    borrowers: Vec<Borrower>,
    /// When the first of those that were added since the last sweep, or an earlier one, is late.
    first_late: Option<Instant>,
    /// As many calls are on their way as may be, or the connection is being made: the end of that is
    /// when the queue is looked at again.
    pub(super) is_busy: bool,
    /// The time at which it is looked at in any case.
    pub(super) watched_until: Option<Instant>,
    /// The number of a connection that is of no use any more.
    pub(super) discarded: Option<u64>,
}

/// Somebody who wants the connection itself.
#[derive(Debug)]
pub(super) struct Borrower {
    pub(super) answer: oneshot::Sender<Result<Shared, Error>>,
    pub(super) timeout: Timeout,
}

impl Queue {
    /// Adds a job, unless too many wait. Returns whether the lane has something to do.
    pub(super) fn add(&mut self, job: Job) -> (Result<(), Job>, bool) {
        if self.jobs.len() >= MOST_WAITING && !job.is_settlement() {
            return (Err(job), false);
        }
        // It is taken when a call is answered, and looked at before it is late.
        let is_due = !self.is_busy || self.watched_until.is_none_or(|watched| job.timeout.until < watched);
        self.note(job.timeout.until);
        self.checks += job.request.size();
        self.jobs.push_back(job);
        (Ok(()), is_due)
    }

    /// Puts jobs before all others: they were not sent after all.
    pub(super) fn put_back(&mut self, jobs: impl DoubleEndedIterator<Item = Job>) {
        for job in jobs.rev() {
            self.note(job.timeout.until);
            self.checks += job.request.size();
            self.jobs.push_front(job);
        }
    }

    pub(super) fn borrow(&mut self, borrower: Borrower) -> (Result<(), Borrower>, bool) {
        if self.borrowers.len() >= MOST_BORROWERS {
            return (Err(borrower), false);
        }
        self.note(borrower.timeout.until);
        self.borrowers.push(borrower);
        (Ok(()), true)
    }

    pub(super) fn has_no_borrowers(&self) -> bool {
        self.borrowers.is_empty()
    }

    pub(super) fn take_borrowers(&mut self) -> Vec<Borrower> {
        mem::take(&mut self.borrowers)
    }

    /// Takes all decisions that were asked for by then.
    pub(super) fn take_decisions(&mut self, by: Instant) -> Vec<Job> {
        self.is_busy = false;
        let (decisions, others) =
            self.take_all().into_iter().partition(|job| !job.is_settlement() && job.timeout.began() <= by);
        let others: Vec<Job> = others;
        self.put_back(others.into_iter());
        decisions
    }

    /// Takes those who want the connection and asked for it by then.
    pub(super) fn take_borrowers_by(&mut self, by: Instant) -> Vec<Borrower> {
        self.borrowers.extract_if(.., |borrower| borrower.timeout.began() <= by).collect()
    }

    /// Whether somebody waits for an answer.
    pub(super) fn is_awaited(&self) -> bool {
        !self.borrowers.is_empty() || self.jobs.iter().any(Job::is_awaited)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.borrowers.is_empty()
    }

    /// Checks that wait.
    pub(super) fn checks(&self) -> usize {
        self.checks
    }

    /// When to look for what is late.
    pub(super) fn first_late(&self) -> Option<Instant> {
        self.first_late
    }

    /// Takes the first jobs, up to so many checks; those whose callers went away are left out, for
    /// what was not sent need not be.
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

    /// Takes all jobs.
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

    /// Takes whatever is late by now.
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

    fn note(&mut self, until: Instant) {
        self.first_late = Some(self.first_late.map_or(until, |first| first.min(until)));
    }
}
