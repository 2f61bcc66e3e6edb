//! A pool: the units that the flows of one key share in this process, and who waits for them.
//!
//! A lock is never held while the store is called, a task is spawned, or a waker is woken or dropped.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

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
            if let Err(Some((units, _))) = sender.send(grant) {
                self.update(|book, now, out| book.release(units, now, out));
            }
        }
    }

    /// Polls for units; `ticket` is the caller's place in the line, and `None` at first.
    pub(super) fn poll_take(
        self: &Arc<Self>,
        want: Want,
        ticket: &mut Option<Ticket>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, FlowError>> {
        for _ in 0..2 {
            if ticket.is_none() {
                if let Some(taken) = self.take(want) {
                    return Poll::Ready(taken);
                }
                let receiver = self.state().book.join(want);
                *ticket = Some(Ticket { pool: Arc::clone(self), receiver, since: Instant::now() });
                // A store that decides at once does so here.
                self.lease();
            }
            if let Some(polled) = self.poll_line(want, ticket, cx) {
                return polled;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes units that are leased, or returns why not, if that is known without waiting.
    fn take(self: &Arc<Self>, want: Want) -> Option<Result<u64, FlowError>> {
        let (taken, is_low) = self.update(|book, now, out| (book.take(want, now, out), book.is_low()));
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

    /// Polls for the grant of the caller's place. `None` if it has none any more, and is to join the line again: it did
    /// not claim its grant in time, what refused it is over, or the task was lost.
    fn poll_line(
        self: &Arc<Self>,
        want: Want,
        ticket: &mut Option<Ticket>,
        cx: &mut Context<'_>,
    ) -> Option<Poll<Result<u64, FlowError>>> {
        let Poll::Ready(granted) = Pin::new(&mut ticket.as_mut()?.receiver).poll(cx) else {
            return Some(Poll::Pending);
        };
        let since = ticket.take()?.since;
        let result = match granted.ok()? {
            Some(grant) => Ok(self.update(|book, now, out| book.claim(grant, now, out))?),
            None => Err(self.state().book.refusal(want.least)),
        };
        // It was polled so late that the units were gained, or the store is back.
        let waits = want.waits == Waits::ForQuota;
        if result.as_ref().is_err_and(|error| error.is_pending() || waits && !error.is_unavailable()) {
            return None;
        }
        self.pools.telemetry.flow_waited(self.checks.first(), since.elapsed());
        self.lease();
        Some(Poll::Ready(result))
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
pub(super) struct Ticket {
    pool: Arc<Pool>,
    receiver: Receiver<Grant>,
    since: Instant,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        self.receiver.close();
        let granted = self.receiver.try_recv().ok().flatten();
        self.pool.update(|book, now, out| match granted {
            Some((units, _)) => book.release(units, now, out),
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
