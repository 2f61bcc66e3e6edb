//! Requests that leave in one call.

use std::mem;
use std::sync::Arc;

use super::combine::{Combiner, no_decision};
use super::job::Job;
use super::reply::Reply;
use crate::Error;

/// Requests that leave in one call, and the right to make it: given back when this is dropped.
pub(super) struct Batch {
    pub(super) jobs: Vec<Job>,
    /// `None` once the call was ended.
    combiner: Option<Arc<Combiner>>,
    /// Whether other calls wait until this one is sent.
    holds: bool,
}

impl Batch {
    pub(super) fn new(jobs: Vec<Job>, combiner: Arc<Combiner>, holds: bool) -> Self {
        Self { jobs, combiner: Some(combiner), holds }
    }

    /// Goes on with what waits by now; `None` if nothing does.
    pub(super) fn next(&mut self) -> Option<Self> {
        self.is_sent();
        self.combiner.take()?.next_call()
    }

    /// Says that the call was sent, in the order in which calls are made.
    pub(super) fn is_sent(&mut self) {
        if let (true, Some(combiner)) = (mem::take(&mut self.holds), &self.combiner) {
            combiner.is_sent();
        }
    }

    /// The slot that the keys of its requests are in.
    pub(super) fn slot(&self) -> u16 {
        self.combiner.as_ref().map_or(0, |combiner| combiner.slot())
    }

    /// How many checks its requests have.
    pub(super) fn checks(&self) -> usize {
        self.jobs.iter().map(|job| job.request.size()).sum()
    }

    /// Answers every request with its part, or with the error.
    pub(super) fn answer(&mut self, reply: Result<Reply, Error>) {
        match reply {
            Ok(mut reply) => {
                for job in self.jobs.drain(..) {
                    let answer = reply.take(&job.request).ok_or_else(no_decision);
                    job.answer(answer);
                }
            }
            Err(error) => self.fail(&error),
        }
    }

    #[cold]
    fn fail(&mut self, error: &Error) {
        // One line a call: clients must not fill the log while Redis is away.
        let settlements = self.jobs.iter().filter(|job| job.is_settlement()).count();
        if settlements > 0 {
            tracing::warn!(error = format!("{error:#}"), settlements, "settlements may not have arrived");
        }
        for job in self.jobs.drain(..) {
            job.answer(Err(error.shared()));
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(combiner) = &self.combiner {
            combiner.end_call(self.holds);
        }
    }
}
