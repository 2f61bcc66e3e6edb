//! Decisions of one process that share script calls.
//!
//! The first caller sends at once; those who come while calls are in flight leave together in the
//! next one. There is no timer and no task of its own: a caller leads its batch, and if it goes away
//! the batch goes on without it.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;

use super::wire::Packed;
use crate::Error;

/// Calls in flight at once, as long as what waits fits in one more.
const CALLS: usize = 2;

/// The most keys of a batch; a larger one is not cheaper by the key.
pub(super) const MOST_KEYS: usize = 128;

/// Requests that wait; more are refused with an error.
const MOST_WAITING: usize = 65_536;

/// One request on its way.
pub(super) struct Job {
    pub(super) request: Packed,
    pub(super) answer: oneshot::Sender<Result<Bytes, Error>>,
}

/// Who waits, and how many calls are in flight.
pub(super) struct Combiner {
    state: Mutex<State>,
    /// Keys of a batch at most.
    batch_size: usize,
}

#[derive(Default)]
struct State {
    calls: usize,
    waiting: VecDeque<Job>,
    waiting_keys: usize,
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
    pub(super) fn new(batch_size: usize) -> Self {
        Self { state: Mutex::default(), batch_size }
    }

    /// Joins a request to those that wait, or has it sent at once.
    pub(super) fn join(self: &Arc<Self>, job: Job) -> Place {
        let mut state = self.state();
        if state.waiting.len() >= MOST_WAITING {
            return Place::Full;
        }
        state.waiting_keys += job.request.keys.len();
        state.waiting.push_back(job);
        if state.calls < CALLS || state.waiting_keys >= self.batch_size {
            state.calls += 1;
            let jobs = state.take(self.batch_size);
            return Place::Lead(Batch { jobs, combiner: Some(Arc::clone(self)) });
        }
        Place::Wait
    }

    /// Takes what waits, to be sent by the call that has ended; if nothing does, there is one call
    /// less. Both under one lock: who joins in between would wait for a call that never comes.
    fn take_or_end_call(&self) -> Vec<Job> {
        let mut state = self.state();
        let jobs = state.take(self.batch_size);
        if jobs.is_empty() {
            state.calls -= 1;
        }
        jobs
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the first of those that wait, up to the size of a batch; callers who went away are left
    /// out, for what was not sent need not be.
    fn take(&mut self, most_keys: usize) -> Vec<Job> {
        let (mut batch, mut keys) = (Vec::new(), 0);
        while let Some(job) = self.waiting.front() {
            if !batch.is_empty() && keys + job.request.keys.len() > most_keys {
                break;
            }
            let Some(job) = self.waiting.pop_front() else { break };
            self.waiting_keys -= job.request.keys.len();
            if !job.answer.is_closed() {
                keys += job.request.keys.len();
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
    pub(super) fn next(mut self) -> Option<Self> {
        let combiner = self.combiner.take()?;
        let jobs = combiner.take_or_end_call();
        (!jobs.is_empty()).then(|| Self { jobs, combiner: Some(combiner) })
    }

    /// Answers every request with its part, or with the error.
    pub(super) fn answer(&mut self, answer: Result<Bytes, Error>) {
        match answer {
            Ok(mut answers) => {
                for job in self.jobs.drain(..) {
                    let size = job.request.answer_size().min(answers.len());
                    // A caller who went away needs no answer.
                    let _ = job.answer.send(Ok(answers.split_to(size)));
                }
            }
            Err(error) => {
                for job in self.jobs.drain(..) {
                    let _ = job.answer.send(Err(error.shared()));
                }
            }
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(combiner) = &self.combiner {
            combiner.state().calls -= 1;
        }
    }
}

/// A call that its caller waits for, and that goes on in the background if the caller goes away.
pub(super) struct Lead {
    call: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    runtime: Runtime,
}

impl Lead {
    pub(super) fn new(call: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { call: Some(Box::pin(call)), runtime: Runtime::current() }
    }
}

impl Future for Lead {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let done = self.call.as_mut().is_none_or(|call| call.as_mut().poll(cx).is_ready());
        if !done {
            return Poll::Pending;
        }
        self.call = None;
        Poll::Ready(())
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.runtime.spawn(call);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::{Duration, Instant};
    use std::{hint, thread};

    use super::*;

    fn job() -> (Job, oneshot::Receiver<Result<Bytes, Error>>) {
        let (answer, answered) = oneshot::channel();
        let request = Packed { keys: vec!["key".to_owned()], bytes: vec![0], ..Packed::default() };
        (Job { request, answer }, answered)
    }

    /// Joins a request and does what falls to it, then waits for its answer.
    fn ask(combiner: &Arc<Combiner>) -> bool {
        let (job, mut answered) = job();
        if let Place::Lead(batch) = combiner.join(job) {
            let mut next = Some(batch);
            while let Some(mut batch) = next {
                batch.answer(Ok(Bytes::new()));
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
        let (combiner, turn) = (Arc::new(Combiner::new(MOST_KEYS)), Arc::new(Barrier::new(3)));
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
