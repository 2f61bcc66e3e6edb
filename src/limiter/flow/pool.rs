//! A pool: the units that the flows of one key share in this process, and who waits for them.
//!
//! A lock is never held while the store is called, a task is spawned, or a waker is woken or dropped.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ahash::RandomState;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::sync::oneshot::Receiver;
use tokio::time::Instant;

use super::book::Book;
use super::checks::{Each, FlowChecks};
use super::error::FlowError;
use super::line::{Grant, Out, Waits, Want};
use crate::store::{Change, FailureStore, Receipt, Settlement, Store};
use crate::telemetry::Telemetry;

/// A call to the store, until its decision is in the book.
pub(super) type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The pools of a limiter or layer that have flows, by their checks.
#[derive(Default)]
pub(crate) struct Pools {
    each: Mutex<HashMap<Each, Weak<Pool>, RandomState>>,
    pub(super) telemetry: Arc<Telemetry>,
}

/// The units that flows of one key share. With its last flow it refunds what is left.
pub(super) struct Pool {
    state: Mutex<State>,
    pub(super) checks: FlowChecks,
    pub(super) store: Arc<FailureStore>,
    pub(super) pools: Arc<Pools>,
    /// Woken when its task may have to come back sooner than it thinks.
    pub(super) woken: Arc<Notify>,
}

pub(super) struct State {
    pub(super) book: Book,
    pub(super) has_task: bool,
    /// A call for the task to wait for.
    pub(super) call: Option<Call>,
}

impl Pools {
    /// Returns the pool of these checks.
    pub(super) fn pool(self: &Arc<Self>, checks: FlowChecks, store: &Arc<FailureStore>) -> Arc<Pool> {
        let mut each = self.each();
        if let Some(pool) = each.get(checks.first()).and_then(Weak::upgrade) {
            return pool;
        }
        let state = State { book: Book::new(checks.first()), has_task: false, call: None };
        let key = checks.first().into();
        let (state, store, pools) = (Mutex::new(state), Arc::clone(store), Arc::clone(self));
        let pool = Arc::new(Pool { state, checks, store, pools, woken: Arc::default() });
        each.insert(key, Arc::downgrade(&pool));
        pool
    }

    /// Locks the pools. None is dropped while they are locked.
    fn each(&self) -> MutexGuard<'_, HashMap<Each, Weak<Pool>, RandomState>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Locks the state. Nothing panics while it is locked.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the book, and does without the lock what follows.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut Book, Instant, &mut Out) -> T) -> T {
        let mut out = Out::default();
        let result = change(&mut self.state().book, Instant::now(), &mut out);
        self.finish(out);
        result
    }

    /// Does what cannot be done with the lock.
    fn finish(&self, out: Out) {
        for lot in out.lots {
            for taken in lot.receipt.taken() {
                self.pools.telemetry.portion_closed(taken.counter.policy(), lot.units - lot.left, lot.left);
            }
            refund(&self.store, lot.receipt, lot.left);
        }
        for (sender, grant) in out.grants {
            if let Err(Some(grant)) = sender.send(grant) {
                self.update(|book, now, out| book.release(grant, now, out));
            }
        }
    }

    /// Takes units that are leased, or returns why not, if that is known without waiting.
    pub(super) fn take(self: &Arc<Self>, want: Want) -> Option<Result<u64, FlowError>> {
        let mut out = Out::default();
        let mut state = self.state();
        if !state.has_task {
            state.book.left(Instant::now(), &mut out);
        }
        let (taken, is_low) = (state.book.take(want, &mut out), state.book.is_low());
        drop(state);
        self.finish(out);
        if let Some(units) = taken {
            if is_low {
                self.lease();
            }
            return Some(Ok(units));
        }
        if want.waits != Waits::ForCall {
            return None;
        }
        let checks = self.checks.now();
        let mut state = self.state();
        state.book.adapt(&checks, want.least);
        state.book.known(want.least, Instant::now()).is_refused().then(|| Err(state.book.refusal(want.least)))
    }

    /// Takes units, or waits for them in line.
    pub(super) async fn acquire(self: &Arc<Self>, want: Want) -> Result<u64, FlowError> {
        loop {
            if let Some(taken) = self.take(want) {
                return taken;
            }
            let since = Instant::now();
            let mut place = Place { pool: self, receiver: self.update(|book, _, out| book.join(want, out)) };
            // A store that decides at once does so here.
            self.lease();
            let result = match (&mut place.receiver).await {
                Ok(Some(grant)) => {
                    self.update(|book, now, out| book.claim(grant, now, out)).ok_or_else(FlowError::pending)
                }
                Ok(None) => Err(self.state().book.refusal(want.least)),
                // The task was lost.
                Err(_) => continue,
            };
            // It was polled so late that its units were refunded, or gained by now, or that the store is back.
            let is_over = |error: &FlowError| error.is_pending() || want.waits == Waits::ForQuota && error.is_refused();
            if result.as_ref().is_err_and(is_over) {
                continue;
            }
            self.pools.telemetry.flow_waited(self.checks.first(), since.elapsed());
            self.lease();
            return result;
        }
    }
}

/// Refunds units of a receipt.
pub(super) fn refund(store: &FailureStore, receipt: Receipt, units: u64) {
    let changes: SmallVec<[Settlement; 2]> = match units {
        0 => SmallVec::new(),
        _ => (0..receipt.taken().len()).map(|check| Settlement::new(check, Change::Refund(units))).collect(),
    };
    // The changes are made whether or not their result is waited for.
    drop(store.settle(receipt, &changes));
}

/// A place in the line of a pool, which is left when it is dropped.
struct Place<'a> {
    pool: &'a Pool,
    receiver: Receiver<Grant>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        self.receiver.close();
        let granted = self.receiver.try_recv().ok().flatten();
        self.pool.update(|book, now, out| match granted {
            Some(grant) => book.release(grant, now, out),
            None => book.left(now, out),
        });
        // The task waits for what this one needed.
        self.pool.woken.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut each = self.pools.each();
        // There may be a new one in its place.
        if each.get(self.checks.first()).is_some_and(|pool| pool.strong_count() == 0) {
            each.remove(self.checks.first());
        }
        drop(each);
        self.update(|book, _, out| book.close(out));
        self.woken.notify_one();
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pools").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Counter, Key, PolicyName, Quota};
    use crate::limiter::flows::flow_of;
    use crate::limiter::limits::Limits;
    use crate::store::{Check, MemoryStore};

    #[test]
    fn pools_without_flows_are_gone() {
        let limits = Limits::new(Arc::new(MemoryStore::new()));
        let policy = || PolicyName::try_from("bytes").expect("valid");
        let counter = |key| Counter::new(policy(), Key::new("user", key), Quota::per_second(10));
        let flow = |key| flow_of(&limits, [Check::new(counter(key), 0)]);
        let (ada, again, bob) = (flow("ada"), flow("ada"), flow("bob"));
        assert_eq!(limits.pools.each().len(), 2);
        drop((ada, bob));
        assert_eq!(limits.pools.each().len(), 1);
        drop(again);
        assert_eq!(limits.pools.each().len(), 0);
    }
}
