//! Who calls the store for the units of a pool.
//!
//! Whoever needs units calls the store in place. If it does not decide at once, the task of the pool waits for the
//! decision, as the caller may leave. The task comes back when units are to be refunded, or the store is to be called
//! again. It holds the pool for a call at most, and ends with it.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::thread;

use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::pool::{Call, Each, Pool};
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::{Answer, Ask, Check, Decided, Store};

/// Why no decision could be made.
const PANICKED: &str = "the store panicked";

impl Pool {
    /// Calls the store for what is needed, until it does not decide at once; what is left is for the task.
    pub(super) fn lease(self: &Arc<Self>) {
        self.call_due();
        self.woken.notify_one();
        let Ok(runtime) = Runtime::try_current() else { return };
        if !mem::replace(&mut self.state().has_task, true) {
            drop(runtime.spawn(Task(Arc::downgrade(self)).run(Arc::clone(&self.woken))));
        }
    }

    fn call_due(self: &Arc<Self>) {
        while let Some(units) = self.update(|state| state.book.call()) {
            if catch_unwind(AssertUnwindSafe(|| self.call(units))).is_err() {
                self.fail(PANICKED);
            }
        }
    }

    /// Calls the store for units. If it does not decide at once, the call is left to the task.
    fn call(self: &Arc<Self>, units: u64) {
        let checks = (self.now)(&self.checks);
        let units = self.update(|state| {
            state.book.portion.adapt(&checks);
            units.min(state.book.portion.capacity)
        });
        let checks: Each = checks.into_iter().map(|check| check.cost(units)).collect();
        let pending = match self.store.decide(&checks, Ask::default()) {
            Answer::Ready(decided) => return self.decided(&checks, units, decided),
            Answer::Pending(_) if Runtime::try_current().is_err() => {
                return self.fail("a flow needs a tokio runtime, as its store does not decide at once");
            }
            Answer::Pending(pending) => pending,
        };
        let pool = Arc::clone(self);
        let mut call: Call = Box::pin(async move { pool.decided(&checks, units, pending.await) });
        // It is sent now: a handler that blocks this thread may keep the task waiting for longer than a decision may take.
        if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.state().call = Some(call);
        }
    }

    /// Notes the result of a call.
    fn decided(&self, checks: &[Check], units: u64, decided: Result<Decided, Error>) {
        if let Ok(decided) = &decided {
            self.pools.telemetry.portion_decided(checks, decided.decision.is_allowed());
        }
        self.update(|state| state.book.decided(units, decided));
    }

    /// Notes that no decision can be made.
    fn fail(&self, why: &'static str) {
        self.decided(&[], 0, Err(Error::new(Kind::Store, why)));
    }
}

/// The task of a pool.
struct Task(Weak<Pool>);

impl Task {
    async fn run(self, woken: Arc<Notify>) {
        while let Some(pool) = self.0.upgrade() {
            pool.call_due();
            let (call, at) = pool.update(|state| (state.call.take(), state.book.next()));
            drop(pool);
            match (call, at) {
                (Some(call), _) => call.await,
                (None, Some(at)) => drop(timeout_at(at, woken.notified()).await),
                (None, None) => woken.notified().await,
            }
        }
    }
}

impl Drop for Task {
    /// If the pool is still there, the runtime has ended: those in line join it again, and have another task do it. Or the
    /// store has panicked.
    fn drop(&mut self) {
        let Some(pool) = self.0.upgrade() else { return };
        if thread::panicking() {
            pool.fail(PANICKED);
        }
        let lost = pool.update(|state| {
            state.has_task = false;
            state.book.disband();
            state.call.take()
        });
        drop(lost);
    }
}
