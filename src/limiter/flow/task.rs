//! Who calls the store for the units of a pool.
//!
//! Whoever needs units calls the store in place. If it does not decide at once, the task of the pool waits for the
//! decision, as the caller may leave. The task comes back when units are to be refunded, or the store is to be called
//! again. It does not hold the pool, and ends with it.

use std::mem;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::thread;

use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::book::Book;
use super::checks::Each;
use super::line::Step;
use super::pool::{Call, Pool, refund};
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::{Answer, Ask, Check, Decided, Store};

/// What the task of a pool waits for.
enum Next {
    Call(Call),
    Time(Instant),
    /// Somebody who needs units.
    Woken,
}

impl Pool {
    /// Calls the store for what is needed, until it does not decide at once; what is left is for the task.
    pub(super) fn lease(self: &Arc<Self>) {
        let call = match self.advance() {
            Next::Call(call) => Some(call),
            Next::Time(_) => None,
            Next::Woken => return,
        };
        let (runtime, mut state) = (Runtime::try_current(), self.state());
        if state.has_task {
            state.call = call.or(state.call.take());
            drop(state);
            self.woken.notify_one();
        } else if let Ok(runtime) = runtime {
            (state.has_task, state.call) = (true, call);
            drop(state);
            runtime.spawn(Task(Arc::downgrade(self)).run(Arc::clone(&self.woken)));
        } else if call.is_some() {
            drop(state);
            drop(call);
            let why = "a flow needs a tokio runtime, as its store does not decide at once";
            self.decided(&[], 0, Err(Error::new(Kind::Store, why)));
        }
    }

    /// Does what is due.
    fn advance(self: &Arc<Self>) -> Next {
        loop {
            match self.update(Book::step) {
                Step::Rest => return Next::Woken,
                Step::Wait(at) => return Next::Time(at),
                Step::Call(units) => {
                    if let Some(call) = self.call(units) {
                        return Next::Call(call);
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
        let mut in_flight = InFlight(Arc::downgrade(self));
        let pending = match self.store.decide(&checks, Ask::default()) {
            Answer::Pending(pending) => pending,
            Answer::Ready(decided) => {
                in_flight.end();
                self.decided(&checks, units, decided);
                return None;
            }
        };
        let store = Arc::clone(&self.store);
        let mut call: Call = Box::pin(async move {
            let decided = pending.await;
            match (in_flight.end(), decided) {
                (Some(pool), decided) => pool.decided(&checks, units, decided),
                // Nobody needs the units.
                (None, Ok(decided)) => refund(&store, decided.receipt, units),
                (None, Err(_)) => {}
            }
        });
        // It is sent now: a handler that blocks this thread may keep the task waiting for longer than a decision may take.
        let mut cx = Context::from_waker(Waker::noop());
        let is_decided = Runtime::try_current().is_ok() && call.as_mut().poll(&mut cx).is_ready();
        (!is_decided).then_some(call)
    }

    /// Notes the result of a call.
    fn decided(&self, checks: &[Check], units: u64, decided: Result<Decided, Error>) {
        if let Ok(decided) = &decided {
            self.pools.telemetry.portion_decided(checks, decided.decision.is_allowed());
        }
        self.update(|book, now, out| book.decided(units, decided, now, out));
    }
}

/// Notes when it is dropped that a call in flight will never be decided: its runtime has ended, and others call again; or
/// the store has panicked, which is a failure.
struct InFlight(Weak<Pool>);

impl InFlight {
    /// Returns the pool, if it is still there.
    fn end(&mut self) -> Option<Arc<Pool>> {
        mem::take(&mut self.0).upgrade()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(pool) = self.end() else { return };
        if thread::panicking() {
            pool.decided(&[], 0, Err(Error::new(Kind::Store, "the store panicked")));
        } else {
            pool.state().book.lost();
        }
    }
}

/// The task of a pool.
struct Task(Weak<Pool>);

impl Task {
    async fn run(self, woken: Arc<Notify>) {
        while let Some(pool) = self.0.upgrade() {
            let call = pool.state().call.take();
            let next = call.map_or_else(|| pool.advance(), Next::Call);
            drop(pool);
            match next {
                Next::Call(call) => call.await,
                Next::Time(at) => drop(timeout_at(at, woken.notified()).await),
                Next::Woken => woken.notified().await,
            }
        }
    }
}

impl Drop for Task {
    /// If the pool is still there, the runtime has ended: those in line join it again, and have another task do it.
    fn drop(&mut self) {
        let Some(pool) = self.0.upgrade() else { return };
        let lost = {
            let mut state = pool.state();
            state.has_task = false;
            (state.call.take(), state.book.disband())
        };
        drop(lost);
    }
}
