//! Decisions of one process that share script calls.
//!
//! The first caller sends at once; those who come while calls are in flight leave together in the
//! next one. There is no timer and no task of its own: a caller leads its batch, and if it goes away
//! the batch goes on without it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::job::Job;
use super::reply::Reply;
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
    /// A call that is to be made was not yet sent: another must not overtake it.
    held: bool,
    waiting: VecDeque<Job>,
    waiting_checks: usize,
}

/// What a request is to do.
pub(super) enum Place {
    /// Send this batch, which holds it.
    Lead(Batch),
    /// Wait: somebody else sends it.
    Wait,
    /// Too many wait already.
    Full,
}

impl Combiner {
    pub(super) fn new(slot: u16, batch_size: usize, all_waiting: &Arc<AtomicUsize>) -> Self {
        Self { state: Mutex::default(), slot, batch_size, all_waiting: Arc::clone(all_waiting) }
    }

    pub(super) fn slot(&self) -> u16 {
        self.slot
    }

    /// Joins a request to those that wait, or has it sent at once.
    pub(super) fn join(self: &Arc<Self>, job: Job) -> Place {
        if self.all_waiting.load(Ordering::Relaxed) >= MOST_WAITING {
            return Place::Full;
        }
        let mut state = self.state();
        self.add(&mut state, job);
        if !state.held && (state.calls < CALLS || state.waiting_checks >= self.batch_size) {
            return Place::Lead(self.lead(&mut state));
        }
        Place::Wait
    }

    /// Joins a settlement, in the order in which settlements come: it leaves with the next call. If
    /// there is none, this one has to be made; until it is [sent](Batch::is_sent) there is no other.
    pub(super) fn join_settlement(self: &Arc<Self>, job: Job) -> Option<Batch> {
        let mut state = self.state();
        self.add(&mut state, job);
        if state.held || state.calls > 0 {
            return None;
        }
        state.held = true;
        Some(self.lead(&mut state))
    }

    fn lead(self: &Arc<Self>, state: &mut State) -> Batch {
        state.calls += 1;
        Batch { jobs: self.take(state), combiner: Some(Arc::clone(self)) }
    }

    /// Takes what waits, to be sent by the call that has ended; if nothing does, there is one call
    /// less. Both under one lock: who joins in between would wait for a call that never comes.
    fn take_or_end_call(&self) -> Vec<Job> {
        let mut state = self.state();
        let jobs = self.take(&mut state);
        if jobs.is_empty() {
            state.calls -= 1;
        }
        jobs
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
        let (mut batch, mut checks) = (Vec::new(), 0);
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
}

/// Requests that leave in one call, and the right to make it: given back when this is dropped.
pub(super) struct Batch {
    pub(super) jobs: Vec<Job>,
    /// `None` once the call was ended.
    combiner: Option<Arc<Combiner>>,
}

impl Batch {
    /// Goes on with what waits by now; `None` if nothing does.
    pub(super) fn next(&mut self) -> Option<Self> {
        let combiner = self.combiner.take()?;
        let jobs = combiner.take_or_end_call();
        (!jobs.is_empty()).then(|| Self { jobs, combiner: Some(combiner) })
    }

    /// Says that the call was sent, in the order in which calls are made.
    pub(super) fn is_sent(&self) {
        if let Some(combiner) = &self.combiner {
            combiner.state().held = false;
        }
    }

    /// The slot that the keys of its requests are in.
    pub(super) fn slot(&self) -> u16 {
        self.combiner.as_ref().map_or(0, |combiner| combiner.slot)
    }

    /// How many checks its requests have.
    pub(super) fn checks(&self) -> usize {
        self.jobs.iter().map(|job| job.request.size()).sum()
    }

    /// Answers every request with its part, or with the error.
    pub(super) fn answer(&mut self, mut reply: Result<Reply, Error>) {
        // One line a call: clients must not fill the log while Redis is away.
        let settlements = self.jobs.iter().filter(|job| job.is_settlement()).count();
        if let (Err(error), 1..) = (&reply, settlements) {
            tracing::warn!(error = format!("{error:#}"), settlements, "settlements may not have arrived");
        }
        for job in self.jobs.drain(..) {
            let answer = match &mut reply {
                Ok(reply) => reply.take(&job.request).ok_or_else(no_decision),
                Err(error) => Err(error.shared()),
            };
            job.answer(answer);
        }
    }
}

pub(super) fn no_decision() -> Error {
    Error::new(Kind::Store, "Redis answered a decision with something else")
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(combiner) = &self.combiner {
            let mut state = combiner.state();
            state.calls -= 1;
            state.held = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::{Duration, Instant};
    use std::{hint, thread};

    use tokio::sync::oneshot;

    use super::super::job::Caller;
    use super::super::reply::Answered;
    use super::super::request::Request;
    use super::*;
    use crate::store::{Check, Counter};
    use crate::{Key, Quota};

    fn job() -> (Job, oneshot::Receiver<Result<Answered, Error>>) {
        let (answer, answered) = oneshot::channel();
        let counter = Counter { policy: "p".into(), key: Key::new("k", "v"), quota: Quota::per_second(1) };
        let request = Request::new("t", &[Check::new(counter, 1)]);
        (Job { request, caller: Caller::Waits(answer) }, answered)
    }

    /// Joins a request and does what falls to it, then waits for its answer.
    fn ask(combiner: &Arc<Combiner>) -> bool {
        let (job, mut answered) = job();
        if let Place::Lead(batch) = combiner.join(job) {
            let mut next = Some(batch);
            while let Some(mut batch) = next {
                batch.answer(Err(no_decision()));
                next = batch.next();
            }
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            if answered.try_recv().is_ok() {
                return true;
            }
            thread::yield_now();
        }
        false
    }

    #[test]
    fn a_request_that_comes_as_the_last_call_ends_is_not_left_waiting() {
        let (combiner, turn) = (Arc::new(Combiner::new(0, MOST_CHECKS, &Arc::default())), Arc::new(Barrier::new(3)));
        let callers = (0..3).map(|_| {
            let (combiner, turn) = (Arc::clone(&combiner), Arc::clone(&turn));
            // Nobody joins after the third, who would take along one left behind.
            let asked = move |_: &u32| {
                turn.wait();
                for _ in 0..fastrand::u32(..200) {
                    hint::spin_loop();
                }
                ask(&combiner)
            };
            thread::spawn(move || (0..50_000).filter(asked).count())
        });
        let callers: Vec<_> = callers.collect();
        for caller in callers {
            assert_eq!(caller.join().expect("no caller panics"), 50_000, "a request was left waiting");
        }
    }
}
