//! A pool: the units that the flows of one key share in this process, and the queue for them.
//!
//! A caller that needs units calls the store itself. If the store does not decide immediately, the task of the pool
//! waits for the decision, because the caller may leave. The task wakes when units are to be refunded, or the store is
//! to be called again. It holds the pool only during a call, and ends with the pool.
//!
//! No lock is held while the store is called, a task is spawned, or a waker is woken or dropped.

use std::collections::HashMap;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};
use std::thread;

use tokio::runtime::Handle as Runtime;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};
use tollgate::{Counters, Decision, Error, Permit};

use super::book::{Book, Waits, Want};
use super::error::FlowError;
use crate::events::Metrics;

const PANICKED: &str = "the store panicked";
const NO_RUNTIME: &str = "a flow needs a tokio runtime, as its store does not decide at once";

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

static POOLS: LazyLock<Mutex<HashMap<Counters, Weak<Pool>>>> = LazyLock::new(Mutex::default);

/// Dropping it refunds the units left.
pub(super) struct Pool {
    state: Mutex<State>,
    counters: Counters,
    pub(super) metrics: Metrics,
    woken: Arc<Notify>,
}

pub(super) struct State {
    pub(super) book: Book,
    has_task: bool,
    call: Option<Call>,
}

pub(super) fn shared_pool(counters: Counters) -> Arc<Pool> {
    let mut pools = pools();
    if let Some(pool) = pools.get(&counters).and_then(Weak::upgrade) {
        return pool;
    }
    let (key, checks) = (counters.clone(), counters.checks());
    let metrics = Metrics::new(&checks);
    let state = Mutex::new(State { book: Book::new(&checks), has_task: false, call: None });
    let pool = Arc::new(Pool { state, counters, metrics, woken: Arc::default() });
    pools.insert(key, Arc::downgrade(&pool));
    pool
}

/// No pool may be dropped while the pools are locked.
fn pools() -> MutexGuard<'static, HashMap<Counters, Weak<Pool>>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Nothing panics while the state is locked.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then refunds and wakes without the lock.
    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        let (over, woken) = (mem::take(&mut state.book.over), mem::take(&mut state.book.woken));
        drop(state);
        for lot in over {
            let passed = lot.units - lot.left;
            self.metrics.portion_closed(&lot.decision, passed, lot.left);
            drop(lot.permit.spend_units(passed));
        }
        drop(woken);
        result
    }

    pub(super) fn take(self: &Arc<Self>, want: Want) -> Option<Result<u64, FlowError>> {
        if want.least == 0 {
            return Some(Ok(0));
        }
        let (taken, is_low) = self.update(|state| {
            if !state.has_task {
                state.book.expire(Instant::now());
            }
            (state.book.take(want), state.book.is_low)
        });
        if taken.is_some() && is_low {
            self.lease();
        }
        if taken.is_some() || want.waits == Waits::ForQuota {
            return taken.map(Ok);
        }
        let checks = self.counters.checks();
        let mut state = self.state();
        state.book.portion.adapt(&checks);
        Some(state.book.refusal(want.least)).filter(FlowError::is_denied).map(Err)
    }

    pub(super) async fn acquire(self: &Arc<Self>, want: Want) -> Result<u64, FlowError> {
        loop {
            if let Some(taken) = self.take(want) {
                return taken;
            }
            let (since, (sender, woken)) = (Instant::now(), oneshot::channel());
            let place = Place { pool: self, ticket: self.update(|state| state.book.join(want, sender)) };
            // A store that decides without waiting does so here.
            self.lease();
            // Its sender is dropped to wake it.
            let _ = woken.await;
            let claimed = self.update(|state| state.book.claim(place.ticket, want.least));
            // The future may have been polled so late that its units were refunded, or replenished by now, or that the
            // store has recovered; or the task was lost.
            let is_over = |error: &FlowError| error.is_pending() || want.waits == Waits::ForQuota && error.is_denied();
            if claimed.as_ref().is_err_and(is_over) {
                continue;
            }
            self.metrics.waited(since.elapsed());
            self.lease();
            return claimed;
        }
    }
}

impl Pool {
    fn lease(self: &Arc<Self>) {
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
                // Some stores need the timers of a runtime.
                self.fail(if Runtime::try_current().is_ok() { PANICKED } else { NO_RUNTIME });
            }
        }
    }

    fn call(self: &Arc<Self>, units: u64) {
        let checks = self.counters.checks();
        let units = self.update(|state| {
            state.book.portion.adapt(&checks);
            units.min(state.book.portion.capacity)
        });
        let pool = Arc::clone(self);
        let mut call: Call = Box::pin(async move {
            let decided = pool.counters.permit(units).await;
            pool.decided(units, decided);
        });
        // It is sent now: a handler that blocks this thread may keep the task waiting for longer than a decision may take.
        if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        if Runtime::try_current().is_err() {
            return self.fail(NO_RUNTIME);
        }
        self.state().call = Some(call);
    }

    fn decided(&self, units: u64, decided: Result<(Decision, Permit), Error>) {
        if let Ok((decision, _)) = &decided {
            self.metrics.portion_decided(decision);
        }
        self.update(|state| state.book.decided(units, decided));
    }

    fn fail(&self, why: &'static str) {
        self.decided(0, Err(Error::store("no units can be leased", why)));
    }
}

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
    /// If the pool is still there, the runtime has ended or the store has panicked: the waiters queue again, and start
    /// another task.
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

struct Place<'a> {
    pool: &'a Pool,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.pool.update(|state| state.book.leave(self.ticket));
        // The task waits for the units of this waiter.
        self.pool.woken.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut pools = pools();
        // There may be a new one in its place.
        if pools.get(&self.counters).is_some_and(|pool| pool.strong_count() == 0) {
            pools.remove(&self.counters);
        }
        drop(pools);
        self.update(|state| state.book.close());
        self.woken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};

    use super::*;

    #[test]
    fn pools_without_flows_are_gone() {
        let limiter = || Limiter::new(MemoryStore::new(), [Rule::new("bytes", Quota::per_second(10))]);
        let counters = |limiter: &Limiter, user| {
            let counters = limiter.counters(&Key::new("user", user)).now_or_never();
            counters.expect("at once").expect("memory never fails")
        };
        let (one, other) = (limiter(), limiter());
        let each = [counters(&one, "ada"), counters(&one, "bob"), counters(&other, "ada")];
        let count = || each.iter().filter(|counters| pools().contains_key(counters)).count();
        let (ada, again, bob, others) = (
            shared_pool(each[0].clone()),
            shared_pool(each[0].clone()),
            shared_pool(each[1].clone()),
            shared_pool(each[2].clone()),
        );
        assert!(Arc::ptr_eq(&ada, &again) && !Arc::ptr_eq(&ada, &others), "a limiter has pools of its own");
        assert_eq!(count(), 3);
        drop((ada, bob, others));
        assert_eq!(count(), 1);
        drop(again);
        assert_eq!(count(), 0);
    }
}
