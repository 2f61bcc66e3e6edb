//! A pool: the units that the flows of one key share in this process, and who calls the store for more.
//!
//! Whoever needs units calls the store in place; if it does not decide at once, a task waits for the decision, as the
//! caller may leave. Another task comes back when units are to be refunded, or the store is to be called again. Neither
//! holds the pool: with its last flow it refunds what is left, and the tasks end.
//!
//! A lock is never held while the store is called, a task is spawned, or a waker is woken or dropped.

mod tasks;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::runtime::{Handle as Runtime, Id};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::tasks::{InFlight, Timing, elsewhere};
use super::book::Book;
use super::checks::{Each, FlowChecks};
use super::error::FlowError;
use super::lessor::{Lessor, PoolStore};
use super::line::{Known, Out, Refused, Step, Waits, Want};
use super::registry::Registration;
use crate::core::error::Kind;
use crate::core::{Decision, Error, PolicyName};
use crate::store::{Answer, Ask, Check, Decided, Store};
use crate::telemetry::Telemetry;

/// What a pool is for. Flows of one runtime share it if they take from the same counters: a runtime that stands still
/// must not keep those of others waiting.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) runtime: Option<Id>,
    pub(super) checks: Each,
}

/// The units that flows of one key share.
pub(super) struct Pool {
    state: Mutex<State>,
    checks: Arc<FlowChecks>,
    place: Registration<Place, Self>,
    lessor: Lessor,
    /// Woken when the timer has to come back sooner than it thinks.
    sooner: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    book: Book,
    /// When the timer comes back; `None` if there is none.
    timer: Option<Instant>,
    /// Why no decision could be made the last time.
    failure: Option<Arc<Error>>,
}

impl Pool {
    pub(super) fn new(
        checks: Arc<FlowChecks>,
        store: PoolStore,
        telemetry: Arc<Telemetry>,
        place: Registration<Place, Self>,
    ) -> Self {
        let book = Book::new(checks.first());
        let state = State { book, timer: None, failure: None };
        let lessor = Lessor { store, telemetry };
        Self { state: Mutex::new(state), checks, place, lessor, sooner: Arc::default() }
    }

    /// Returns the runtime whose flows it is for.
    pub(super) fn runtime(&self) -> Option<Id> {
        self.place.key.runtime
    }

    pub(super) fn checks(&self) -> &Arc<FlowChecks> {
        &self.checks
    }

    pub(super) fn store(&self) -> &PoolStore {
        &self.lessor.store
    }

    /// Locks the state. Nothing panics while it is locked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what cannot be done with the lock.
    fn finish(&self, out: Out) {
        out.lots.into_iter().for_each(|lot| self.lessor.close(lot));
        for waker in out.wakers {
            waker.wake();
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
        self.lessor.telemetry.body_cut(policy);
    }

    /// Takes units that are leased; otherwise calls the store for a portion.
    pub(super) fn try_take(self: &Arc<Self>, units: u64) -> Result<(), FlowError> {
        let want = Want { least: units, most: units, waits: Waits::ForCall };
        if self.take(want, true).is_some() {
            return Ok(());
        }
        if self.is_too_much(units) {
            return Err(self.refusal(units));
        }
        self.state().book.miss(units);
        self.lease();
        // A store that decides at once has done so.
        if self.take(want, false).is_some() {
            return Ok(());
        }
        Err(self.refusal(units))
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

    /// Takes units that are leased, if nobody waits before; `may_call` unless that was just done.
    pub(super) fn take(self: &Arc<Self>, want: Want, may_call: bool) -> Option<u64> {
        let mut out = Out::default();
        let mut state = self.state();
        if state.timer.is_none() && state.book.is_stale(Instant::now()) {
            drop(state);
            self.lease();
            state = self.state();
        }
        let taken = state.book.take(want, &mut out);
        let is_low = state.book.is_low();
        drop(state);
        self.finish(out);
        if is_low && may_call && taken.is_some() {
            self.lease();
        }
        taken
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
            if let Some(taken) = self.take_at_once(want) {
                return Poll::Ready(taken);
            }
            self.join(want, ticket, cx);
        }
        self.lease();
        // The store may have decided at once.
        self.poll_line(want, ticket, cx).unwrap_or_else(|| {
            cx.waker().wake_by_ref();
            Poll::Pending
        })
    }

    /// Takes units, or returns why not, if that is known without waiting.
    fn take_at_once(self: &Arc<Self>, want: Want) -> Option<Result<u64, FlowError>> {
        if let Some(units) = self.take(want, true) {
            return Some(Ok(units));
        }
        if want.waits != Waits::ForCall {
            return None;
        }
        if self.is_too_much(want.least) || self.state().book.known(want.least, Instant::now()) != Known::MayFit {
            return Some(Err(self.refusal(want.least)));
        }
        Runtime::try_current().is_err().then(|| {
            self.state().book.miss(want.least);
            self.lease();
            self.take(want, false).ok_or_else(|| self.refusal(want.least))
        })
    }

    /// Polls for the grant of the caller's place. `None` if it has none any more, and is to join the line again: it did
    /// not claim its grant in time, or what refused it is over.
    fn poll_line(
        self: &Arc<Self>,
        want: Want,
        ticket: &mut Option<Ticket>,
        cx: &Context<'_>,
    ) -> Option<Poll<Result<u64, FlowError>>> {
        let own = ticket.as_mut()?;
        let mut out = Out::default();
        let polled = self.state().book.poll(own.id, cx.waker(), &mut out);
        self.finish(out);
        if let Some(Poll::Pending) = polled {
            return Some(Poll::Pending);
        }
        let since = own.since;
        own.is_done = true;
        *ticket = None;
        let Some(Poll::Ready(granted)) = polled else { return None };
        let result = granted.map_err(|Refused| self.refusal(want.least));
        // It was polled so late that the units were gained, or the store is back.
        let waits = want.waits == Waits::ForQuota;
        if result.as_ref().is_err_and(|error| error.is_pending() || waits && !error.is_unavailable()) {
            return None;
        }
        self.lessor.telemetry.flow_waited(self.checks.first(), since.elapsed());
        self.lease();
        Some(Poll::Ready(result))
    }

    /// Joins the line.
    fn join(self: &Arc<Self>, want: Want, ticket: &mut Option<Ticket>, cx: &Context<'_>) {
        let since = Instant::now();
        let id = self.state().book.join(want, cx.waker());
        *ticket = Some(Ticket { pool: Arc::clone(self), id, since, is_done: false });
    }

    /// Returns why these units are not there.
    fn refusal(&self, units: u64) -> FlowError {
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

    /// Asks the store for what is needed, until it does not decide at once, and has the timer come back.
    fn lease(self: &Arc<Self>) {
        loop {
            let (mut out, now) = (Out::default(), Instant::now());
            let (step, comes) = {
                let mut state = self.state();
                let step = state.book.step(now, &mut out);
                let comes = match step {
                    Step::Wait(at) => self.set_timer(&mut state, at),
                    _ => Timer::Stays,
                };
                (step, comes)
            };
            self.finish(out);
            self.start(comes);
            let Step::Call(units) = step else { return };
            let checks = self.checks.now();
            let units = self.state().book.adapt(&checks, units);
            let checks: Each = checks.into_iter().map(|check| check.cost(units)).collect();
            let mut in_flight = InFlight { pool: Arc::downgrade(self), is_done: false };
            match self.lessor.store.decide(&checks, Ask::default()) {
                Answer::Ready(decided) => {
                    in_flight.is_done = true;
                    self.leased(&checks, units, decided);
                }
                pending @ Answer::Pending(_) => return self.wait(in_flight, checks, units, pending),
            }
        }
    }

    /// Applies the result of a call.
    fn leased(&self, checks: &[Check], units: u64, decided: Result<Decided, Error>) {
        if let Ok(decided) = &decided {
            self.lessor.telemetry.portion_decided(checks, decided.decision.is_allowed());
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

    /// Has a task wait for the result of a call.
    fn wait(self: &Arc<Self>, in_flight: InFlight, checks: Each, units: u64, pending: Answer<Result<Decided, Error>>) {
        let lessor = self.lessor.clone();
        let Ok(runtime) = Runtime::try_current() else {
            drop(in_flight);
            let error = Error::new(Kind::Store, "a flow needs a tokio runtime, as its store does not decide at once");
            return self.leased(&checks, units, Err(error));
        };
        runtime.spawn(async move {
            let decided = pending.wait().await;
            in_flight.done(&lessor, &checks, units, decided);
        });
        elsewhere(&runtime);
    }

    /// Sets the time at which the timer has to come back.
    fn set_timer(&self, state: &mut State, at: Instant) -> Timer {
        match state.timer {
            Some(set) if set <= at => Timer::Stays,
            Some(_) => {
                state.timer = Some(at);
                self.sooner.notify_one();
                Timer::Stays
            }
            None if Runtime::try_current().is_ok() => {
                state.timer = Some(at);
                Timer::Starts
            }
            None => Timer::Stays,
        }
    }

    fn start(self: &Arc<Self>, timer: Timer) {
        if let (Timer::Starts, Ok(runtime)) = (timer, Runtime::try_current()) {
            let (guard, sooner) = (Timing(Arc::downgrade(self)), Arc::clone(&self.sooner));
            runtime.spawn(guard.run(sooner));
            elsewhere(&runtime);
        }
    }
}

/// Whether a timer has to be started.
#[derive(Clone, Copy)]
enum Timer {
    Stays,
    Starts,
}

/// A place in the line of a pool, which is left when it is dropped.
pub(super) struct Ticket {
    pool: Arc<Pool>,
    id: u64,
    since: Instant,
    is_done: bool,
}

impl Ticket {
    /// Returns whether it is a place in the line of this pool.
    pub(super) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_done {
            let (mut out, now) = (Out::default(), Instant::now());
            let mut state = self.pool.state();
            state.book.leave(self.id, now, &mut out);
            // The timer waits for what this one needed.
            if state.timer.is_some() {
                state.timer = Some(now);
                self.pool.sooner.notify_one();
            }
            drop(state);
            self.pool.finish(out);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let out = self.state().book.close();
        self.finish(out);
        self.sooner.notify_one();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}
