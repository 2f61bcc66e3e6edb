//! The tasks of a pool: one that waits for a call, and the timer. Neither holds the pool.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::Pool;
use crate::core::Error;
use crate::core::error::Kind;
use crate::limiter::flow::lessor::Lessor;
use crate::limiter::flow::line::Out;
use crate::store::{Check, Decided};

/// A worker runs the task that it spawned last by itself, when the current one waits: which never happens in a handler
/// that blocks its thread. So that others can run a task of ours, another one is that last one.
pub(super) fn elsewhere(runtime: &Runtime) {
    runtime.spawn(async {});
}

/// A call in flight. If it is dropped, its runtime has ended, and others are to call again; or the store has panicked,
/// which is a failure.
pub(super) struct InFlight {
    pub(super) pool: Weak<Pool>,
    pub(super) is_done: bool,
}

impl InFlight {
    /// Passes the result on; if the pool is gone, nobody needs the units.
    pub(super) fn done(mut self, lessor: &Lessor, checks: &[Check], units: u64, decided: Result<Decided, Error>) {
        self.is_done = true;
        match (self.pool.upgrade(), decided) {
            (Some(pool), decided) => {
                pool.leased(checks, units, decided);
                pool.lease();
            }
            (None, Ok(decided)) => lessor.refund(decided.receipt, units),
            (None, Err(_)) => {}
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade().filter(|_| !self.is_done) else { return };
        if thread::panicking() {
            return pool.leased(&[], 0, Err(Error::new(Kind::Store, "the store panicked")));
        }
        let mut out = Out::default();
        pool.state().book.lost(true, &mut out);
        pool.finish(out);
    }
}

/// The timer of a pool. If it is dropped before its time, its runtime has ended: others are to start one.
pub(super) struct Timing(pub(super) Weak<Pool>);

impl Timing {
    pub(super) async fn run(mut self, sooner: Arc<Notify>) {
        while let Some(at) = self.next() {
            // Notified, it looks for the new time.
            if timeout_at(at, sooner.notified()).await.is_err() && !self.ring(at) {
                // Another timer may run by now.
                self.0 = Weak::new();
                return;
            }
        }
    }

    /// Returns when to come back.
    fn next(&self) -> Option<Instant> {
        self.0.upgrade()?.state().timer
    }

    /// Does what is due. Returns whether the timer goes on, as there is a new time.
    fn ring(&self, at: Instant) -> bool {
        let Some(pool) = self.0.upgrade() else { return false };
        // After all others, so that it is set anew and no second timer is started.
        let none = at + NEVER;
        pool.state().timer = Some(none);
        pool.lease();
        let mut state = pool.state();
        let goes_on = state.timer != Some(none);
        if !goes_on {
            state.timer = None;
        }
        goes_on
    }
}

/// Longer than any wait of a timer.
const NEVER: Duration = Duration::from_secs(86_400);

impl Drop for Timing {
    fn drop(&mut self) {
        let Some(pool) = self.0.upgrade() else { return };
        let mut out = Out::default();
        {
            let mut state = pool.state();
            if state.timer.take().is_none() {
                return;
            }
            state.book.lost(false, &mut out);
        }
        pool.finish(out);
    }
}
