//! Who calls the store for the units of a pool.
//!
//! Whoever needs units calls the store in place. If it does not decide at once, the task of the pool waits for the
//! decision, as the caller may leave. The task comes back when units are to be refunded, or the store is to be called
//! again. It does not hold the pool, and ends with it.

use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::thread;

use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::book::Book;
use super::checks::Each;
use super::line::Step;
use super::pool::{Call, Pool, refund};
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::{Answer, Ask, Check, Decided, Store};

impl Pool {
    /// Calls the store for what is needed, until it does not decide at once; what is left is for the task.
    pub(super) fn lease(self: &Arc<Self>) {
        let call = match self.advance() {
            Step::Call(call) => Some(call),
            Step::Wait(_) => None,
            Step::Rest => return,
        };
        let (runtime, mut state) = (Runtime::try_current(), self.state());
        state.call = call.or(state.call.take());
        let starts = runtime.ok().filter(|_| !state.has_task);
        state.has_task |= starts.is_some();
        drop(state);
        match starts {
            Some(runtime) => drop(runtime.spawn(Task(Arc::downgrade(self)).run(Arc::clone(&self.woken)))),
            None => self.woken.notify_one(),
        }
    }

    /// Does what is due.
    fn advance(self: &Arc<Self>) -> Step<Call> {
        loop {
            match self.update(Book::step) {
                Step::Rest => return Step::Rest,
                Step::Wait(at) => return Step::Wait(at),
                Step::Call(units) => {
                    if let Some(call) = self.call(units) {
                        return Step::Call(call);
                    }
                }
            }
        }
    }

    /// Calls the store for units; returns the call if it is not decided at once.
    fn call(self: &Arc<Self>, units: u64) -> Option<Call> {
        let checks = self.checks.now();
        let units = self.state().book.adapt(&checks, units);
        let checks: Each = checks.into_iter().map(|check| check.cost(units)).collect();
        let _failure = IfPanics(self);
        let pending = match self.store.decide(&checks, Ask::default()) {
            Answer::Ready(decided) => {
                self.decided(&checks, units, decided);
                return None;
            }
            Answer::Pending(_) if Runtime::try_current().is_err() => {
                self.fail("a flow needs a tokio runtime, as its store does not decide at once");
                return None;
            }
            Answer::Pending(pending) => pending,
        };
        let (pool, store) = (Arc::downgrade(self), Arc::clone(&self.store));
        let mut call: Call = Box::pin(async move {
            let decided = pending.await;
            match (pool.upgrade(), decided) {
                (Some(pool), decided) => pool.decided(&checks, units, decided),
                // Nobody needs the units.
                (None, Ok(decided)) => refund(&store, decided.receipt, units),
                (None, Err(_)) => {}
            }
        });
        // It is sent now: a handler that blocks this thread may keep the task waiting for longer than a decision may take.
        let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        polled.is_pending().then_some(call)
    }

    /// Notes the result of a call.
    fn decided(&self, checks: &[Check], units: u64, decided: Result<Decided, Error>) {
        if let Ok(decided) = &decided {
            self.pools.telemetry.portion_decided(checks, decided.decision.is_allowed());
        }
        self.update(|book, now, out| book.decided(units, decided, now, out));
    }

    /// Notes that no decision can be made.
    fn fail(&self, why: &'static str) {
        self.decided(&[], 0, Err(Error::new(Kind::Store, why)));
    }
}

/// Notes a failure when it is dropped, if the store has panicked.
struct IfPanics<'a>(&'a Pool);

impl Drop for IfPanics<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail("the store panicked");
        }
    }
}

/// The task of a pool.
struct Task(Weak<Pool>);

impl Task {
    async fn run(self, woken: Arc<Notify>) {
        while let Some(pool) = self.0.upgrade() {
            let call = pool.state().call.take();
            let step = call.map_or_else(|| pool.advance(), Step::Call);
            drop(pool);
            match step {
                Step::Call(call) => call.await,
                Step::Wait(at) => drop(timeout_at(at, woken.notified()).await),
                Step::Rest => woken.notified().await,
            }
        }
    }
}

impl Drop for Task {
    /// If the pool is still there, the runtime has ended: those in line join it again, and have another task do it. Or the
    /// store has panicked.
    fn drop(&mut self) {
        let Some(pool) = self.0.upgrade() else { return };
        drop(IfPanics(&pool));
        let mut state = pool.state();
        state.has_task = false;
        let lost = (state.call.take(), state.book.disband());
        drop(state);
        drop(lost);
    }
}
