//! Decisions of one process that share script calls.
//!
//! The first caller sends at once; those who come while calls are in flight leave together in the
//! next one. There is no timer and no task of its own: a caller leads its batch, and if it goes away
//! the batch goes on without it.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::batch::Batch;
use super::job::Job;
use crate::Error;
use crate::error::Kind;

/// Calls in flight at once, as long as what waits fits in one more.
const CALLS: usize = 2;

/// The most checks of a batch; a larger one is not cheaper by the check.
pub(super) const MOST_CHECKS: usize = 128;

/// Requests that wait; more are refused with an error.
const MOST_WAITING: usize = 65_536;

/// Who waits, and how many calls are in flight.
pub(super) struct Combiner {
    state: Mutex<State>,
    /// The slot that the keys of its requests are in.
    slot: u16,
    /// Checks of a batch at most.
    batch_size: usize,
    /// How many requests wait, here and for other slots.
    all_waiting: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    calls: usize,
    /// A call with a settlement was not yet sent: no other must overtake it.
    held: bool,
    waiting: VecDeque<Job>,
    waiting_checks: usize,
}

impl Combiner {
    pub(super) fn new(slot: u16, batch_size: usize, all_waiting: &Arc<AtomicUsize>) -> Self {
        Self { state: Mutex::default(), slot, batch_size, all_waiting: Arc::clone(all_waiting) }
    }

    pub(super) fn slot(&self) -> u16 {
        self.slot
    }

    /// Joins a request to those that wait, unless too many do. If there is a batch, it is to be sent;
    /// else somebody else sends the request.
    pub(super) fn join(self: &Arc<Self>, job: Job) -> Option<Batch> {
        if self.all_waiting.load(Ordering::Relaxed) >= MOST_WAITING {
            job.answer(Err(too_many()));
            return None;
        }
        let mut state = self.state();
        if !state.held && state.calls < CALLS && state.waiting.is_empty() {
            return Some(self.call(&mut state, vec![job]));
        }
        self.add(&mut state, job);
        let is_due = state.calls < CALLS || state.waiting_checks >= self.batch_size;
        (is_due && !state.held).then(|| self.lead(&mut state))
    }

    /// Joins a settlement, in the order in which settlements come: it leaves with the next call. If
    /// there is none, this one has to be made.
    pub(super) fn join_settlement(self: &Arc<Self>, job: Job) -> Option<Batch> {
        let mut state = self.state();
        self.add(&mut state, job);
        if state.held || state.calls > 0 {
            return None;
        }
        Some(self.lead(&mut state))
    }

    /// A call with what waits.
    fn lead(self: &Arc<Self>, state: &mut State) -> Batch {
        let jobs = self.take(state);
        self.call(state, jobs)
    }

    /// A call with a settlement holds the others until it is [sent](Batch::is_sent): who asks after
    /// a refund is to find it.
    fn call(self: &Arc<Self>, state: &mut State, jobs: Vec<Job>) -> Batch {
        state.calls += 1;
        state.held = jobs.iter().any(Job::is_settlement);
        Batch::new(jobs, Arc::clone(self), state.held)
    }

    /// Ends a call, and makes another with what waits, unless that is held. Both under one lock: who
    /// joins in between would wait for a call that never comes.
    pub(super) fn next_call(self: &Arc<Self>) -> Option<Batch> {
        let mut state = self.state();
        state.calls -= 1;
        let jobs = if state.held { Vec::new() } else { self.take(&mut state) };
        (!jobs.is_empty()).then(|| self.call(&mut state, jobs))
    }

    /// Is told that the call that held the others was sent.
    pub(super) fn is_sent(&self) {
        self.state().held = false;
    }

    /// Is told that a call is not made, or has no answer.
    pub(super) fn end_call(&self, holds: bool) {
        let mut state = self.state();
        state.calls -= 1;
        state.held &= !holds;
    }

    fn add(&self, state: &mut State, job: Job) {
        self.all_waiting.fetch_add(1, Ordering::Relaxed);
        state.add(job);
    }

    fn take(&self, state: &mut State) -> Vec<Job> {
        let waiting = state.waiting.len();
        let jobs = state.take(self.batch_size);
        self.all_waiting.fetch_sub(waiting - state.waiting.len(), Ordering::Relaxed);
        jobs
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, job: Job) {
        self.waiting_checks += job.request.size();
        self.waiting.push_back(job);
    }

    /// Takes the first of those that wait, up to the size of a batch; callers who went away are left
    /// out, for what was not sent need not be.
    fn take(&mut self, most: usize) -> Vec<Job> {
        if self.waiting_checks <= most {
            return self.take_all();
        }
        let (mut batch, mut checks) = (Vec::with_capacity(most.min(self.waiting.len())), 0);
        while let Some(job) = self.waiting.front() {
            if !batch.is_empty() && checks + job.request.size() > most {
                break;
            }
            let Some(job) = self.waiting.pop_front() else { break };
            self.waiting_checks -= job.request.size();
            if !job.is_idle() {
                checks += job.request.size();
                batch.push(job);
            }
        }
        batch
    }

    fn take_all(&mut self) -> Vec<Job> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        self.waiting_checks = 0;
        // As many will wait for the next call.
        let next = VecDeque::with_capacity(self.waiting.len());
        let mut batch = Vec::from(mem::replace(&mut self.waiting, next));
        batch.retain(|job| !job.is_idle());
        batch
    }
}

#[cold]
fn too_many() -> Error {
    Error::new(Kind::Store, "too many decisions wait for Redis")
}

#[cold]
pub(super) fn no_decision() -> Error {
    Error::new(Kind::Store, "Redis answered a decision with something else")
}
