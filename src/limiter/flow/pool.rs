//! A pool: the units that the flows of one key share in this process, and who calls the store for more.
//!
//! Whoever needs units calls the store in place. If it does not decide at once, the task of the pool waits for the
//! decision, as the caller may leave. The task comes back when units are to be refunded, or the store is to be called
//! again. It does not hold the pool, which refunds what is left with its last flow; then the task ends.
//!
//! A lock is never held while the store is called, a task is spawned, or a waker is woken or dropped.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use ahash::RandomState;
use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;
use tokio::sync::oneshot::Receiver;
use tokio::time::{Instant, timeout_at};

use super::book::Book;
use super::checks::{Each, FlowChecks};
use super::error::FlowError;
use super::line::{Grant, Known, Out, Step, Waits, Want};
use crate::core::error::Kind;
use crate::core::{Decision, Error, PolicyName};
use crate::store::{Answer, Ask, Change, Check, Decided, FailureStore, Receipt, Settlement, Store};
use crate::telemetry::Telemetry;

/// Longer than any wait of a task.
const NEVER: Duration = Duration::from_secs(86_400);

/// The pools of a limiter or layer that have flows, by their checks.
#[derive(Default)]
pub(crate) struct Pools {
    each: Mutex<HashMap<Each, Weak<Pool>, RandomState>>,
    telemetry: Arc<Telemetry>,
}

/// The units that flows of one key share.
pub(super) struct Pool {
    state: Mutex<State>,
    checks: FlowChecks,
    store: Arc<FailureStore>,
    pools: Arc<Pools>,
    /// Woken when the task has to come back sooner than it thinks.
    sooner: Arc<Notify>,
}

struct State {
    book: Book,
    /// When the task comes back; `None` if there is none.
    comes: Option<Instant>,
    /// A call for the task to wait for.
    call: Option<Call>,
    /// Why no decision could be made the last time.
    failure: Option<Arc<Error>>,
}

impl Pools {
    /// Returns the pool of these checks.
    pub(super) fn pool(self: &Arc<Self>, checks: FlowChecks, store: &Arc<FailureStore>) -> Arc<Pool> {
        let mut each = self.each();
        if let Some(pool) = each.get(checks.first()).and_then(Weak::upgrade) {
            return pool;
        }
        let state = State { book: Book::new(checks.first()), comes: None, call: None, failure: None };
        let key = checks.first().into();
        let (state, store, pools) = (Mutex::new(state), Arc::clone(store), Arc::clone(self));
        let pool = Arc::new(Pool { state, checks, store, pools, sooner: Arc::default() });
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
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the book, and does without the lock what follows.
    fn update<T>(&self, change: impl FnOnce(&mut Book, Instant, &mut Out) -> T) -> T {
        let (mut out, now) = (Out::default(), Instant::now());
        let result = change(&mut self.state().book, now, &mut out);
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

    /// Returns the units that are worth a frame.
    pub(super) fn chunk(&self) -> u64 {
        self.state().book.chunk()
    }

    /// Returns the last decision about a portion.
    pub(super) fn decision(&self) -> Option<Decision> {
        self.state().book.decision.clone()
    }

    /// Counts a body that a policy has cut.
    pub(super) fn count_cut(&self, policy: &PolicyName) {
        self.pools.telemetry.body_cut(policy);
    }

    /// Returns whether so many units can never be taken at once, by the rules in force.
    fn is_too_much(&self, units: u64) -> bool {
        let is_never = || self.state().book.known(units, Instant::now()) == Known::Never;
        if !is_never() {
            return false;
        }
        let checks = self.checks.now();
        self.state().book.adapt(&checks, units);
        is_never()
    }

    /// Takes units that are leased, if nobody waits before.
    fn take(self: &Arc<Self>, want: Want) -> Option<u64> {
        if self.is_stale() {
            self.lease();
        }
        let (taken, is_low) = self.update(|book, _, out| (book.take(want, out), book.is_low()));
        if is_low && taken.is_some() {
            self.lease();
        }
        taken
    }

    /// Returns whether units are held for longer than they should, as no task runs.
    fn is_stale(&self) -> bool {
        let state = self.state();
        state.comes.is_none() && state.book.is_stale(Instant::now())
    }

    /// Polls for units; `ticket` is the caller's place in the line, and `None` at first.
    pub(super) fn poll_take(
        self: &Arc<Self>,
        want: Want,
        ticket: &mut Option<Ticket>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, FlowError>> {
        if let Some(Poll::Ready(result)) = self.poll_line(want, ticket, cx) {
            return Poll::Ready(result);
        }
        if ticket.is_none() {
            if let Some(units) = self.take(want) {
                return Poll::Ready(Ok(units));
            }
            let is_known = || self.state().book.known(want.least, Instant::now()) != Known::MayFit;
            if want.waits == Waits::ForCall && (self.is_too_much(want.least) || is_known()) {
                return Poll::Ready(Err(self.refusal(want.least)));
            }
            let receiver = self.state().book.join(want);
            *ticket = Some(Ticket { pool: Arc::clone(self), receiver, since: Instant::now() });
        }
        self.lease();
        // The store may have decided at once.
        self.poll_line(want, ticket, cx).unwrap_or_else(|| {
            cx.waker().wake_by_ref();
            Poll::Pending
        })
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
            None => Err(self.refusal(want.least)),
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

    /// Returns why these units are not there.
    pub(super) fn refusal(&self, units: u64) -> FlowError {
        let (now, state) = (Instant::now(), self.state());
        if let Some(error) = &state.failure {
            return FlowError::failed(Arc::clone(error));
        }
        let decision = state.book.decision.as_ref();
        match state.book.known(units, now) {
            Known::MayFit => FlowError::pending(),
            Known::Until(at) => FlowError::refused(decision, at.map(|at| at - now)),
            Known::Never => FlowError::refused(decision, None),
        }
    }

    /// Calls the store for what is needed, until it does not decide at once; what is left is for the task.
    fn lease(self: &Arc<Self>) {
        let Some((at, call)) = self.advance(false) else { return };
        let mut state = self.state();
        if call.is_none() && state.comes.is_some_and(|comes| comes <= at) {
            return;
        }
        let runtime = if state.comes.is_none() { Runtime::try_current().map(Some) } else { Ok(None) };
        let Ok(runtime) = runtime else {
            drop(state);
            let why = "a flow needs a tokio runtime, as its store does not decide at once";
            return call.into_iter().for_each(|call| call.end(Err(Error::new(Kind::Store, why))));
        };
        state.comes = Some(at);
        if call.is_some() {
            state.call = call;
        }
        drop(state);
        match runtime {
            Some(runtime) => drop(runtime.spawn(Task(Arc::downgrade(self)).run(Arc::clone(&self.sooner)))),
            None => self.sooner.notify_one(),
        }
    }

    /// Does what is due; returns when to come back, and the call to wait for before.
    fn advance(self: &Arc<Self>, is_task: bool) -> Option<(Instant, Option<Call>)> {
        loop {
            let (mut out, now) = (Out::default(), Instant::now());
            let mut state = self.state();
            let step = state.book.step(now, &mut out);
            if is_task {
                state.comes = Some(match step {
                    Step::Call(_) => now,
                    Step::Wait(at) => at,
                    Step::Rest => now + NEVER,
                });
            }
            drop(state);
            self.finish(out);
            match step {
                Step::Rest => return None,
                Step::Wait(at) => return Some((at, None)),
                Step::Call(units) => {
                    if let Some(call) = self.call(units) {
                        return Some((now, Some(call)));
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
        let (pool, store) = (Arc::downgrade(self), Arc::clone(&self.store));
        let mut call = Call { pool, store, checks, units, decided: None, is_over: false };
        match self.store.decide(&call.checks, Ask::default()) {
            Answer::Ready(decided) => call.end(decided),
            pending @ Answer::Pending(_) => {
                call.decided = Some(pending);
                return Some(call);
            }
        }
        None
    }

    /// Applies the result of a call.
    fn leased(&self, checks: &[Check], units: u64, decided: Result<Decided, Error>) {
        if let Ok(decided) = &decided {
            self.pools.telemetry.portion_decided(checks, decided.decision.is_allowed());
        }
        let (mut out, now) = (Out::default(), Instant::now());
        let mut state = self.state();
        match decided {
            Ok(decided) => {
                state.failure = None;
                state.book.leased(units, decided, now, &mut out);
            }
            Err(error) => {
                state.failure = Some(Arc::new(error));
                state.book.failed(&mut out);
            }
        }
        drop(state);
        self.finish(out);
    }
}

/// Refunds units of a receipt.
fn refund(store: &FailureStore, receipt: Receipt, units: u64) {
    let changes: SmallVec<[Settlement; 2]> = match units {
        0 => SmallVec::new(),
        _ => (0..receipt.taken().len()).map(|check| Settlement::new(check, Change::Refund(units))).collect(),
    };
    // The changes are made whether or not their result is waited for.
    drop(store.settle(receipt, &changes));
}

/// A call in flight.
struct Call {
    pool: Weak<Pool>,
    store: Arc<FailureStore>,
    checks: Each,
    units: u64,
    decided: Option<Answer<Result<Decided, Error>>>,
    is_over: bool,
}

impl Call {
    async fn wait(mut self) {
        if let Some(decided) = self.decided.take() {
            let decided = decided.wait().await;
            self.end(decided);
        }
    }

    /// Passes the result on; if the pool is gone, nobody needs the units.
    fn end(mut self, decided: Result<Decided, Error>) {
        self.is_over = true;
        match (self.pool.upgrade(), decided) {
            (Some(pool), decided) => pool.leased(&self.checks, self.units, decided),
            (None, Ok(decided)) => refund(&self.store, decided.receipt, self.units),
            (None, Err(_)) => {}
        }
    }
}

impl Drop for Call {
    /// If it is not over, its runtime has ended, and others call again; or the store has panicked, which is a failure.
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade().filter(|_| !self.is_over) else { return };
        if thread::panicking() {
            pool.leased(&[], 0, Err(Error::new(Kind::Store, "the store panicked")));
        } else {
            pool.state().book.lost();
        }
    }
}

/// The task of a pool.
struct Task(Weak<Pool>);

impl Task {
    async fn run(self, sooner: Arc<Notify>) {
        loop {
            let next = {
                let Some(pool) = self.0.upgrade() else { return };
                let call = pool.state().call.take();
                if call.is_some() { Some((Instant::now(), call)) } else { pool.advance(true) }
            };
            match next {
                Some((_, Some(call))) => call.wait().await,
                Some((at, None)) => drop(timeout_at(at, sooner.notified()).await),
                None => sooner.notified().await,
            }
        }
    }
}

impl Drop for Task {
    /// If the pool is still there, the runtime has ended: those in line have another task do it.
    fn drop(&mut self) {
        let Some(pool) = self.0.upgrade() else { return };
        let lost = {
            let mut state = pool.state();
            state.comes = None;
            (state.call.take(), state.book.disband())
        };
        drop(lost);
    }
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
        self.pool.sooner.notify_one();
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
        let out = self.state().book.close();
        self.finish(out);
        self.sooner.notify_one();
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
