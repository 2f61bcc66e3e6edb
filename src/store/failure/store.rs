//! The store around a store that decides within the budget when the inner one cannot.
//!
//! For each decision: a permit of the breaker, the call of the inner store with a deadline, and the
//! report of its outcome; what fails is decided as the rules say. Without a permit the rules decide
//! at once.
//!
//! The time is limited in one of two ways. A store with a budget keeps deadlines by itself, so it
//! gets one if the layer's budget is shorter; for any other store a timer of tokio is put around
//! its future. Probes run in a task of their own.
//!
//! A pending call reports its outcome even if it is dropped: `InFlight` returns the permit in its
//! `Drop`. One that takes slots runs in a task, too: nobody else would release them if its caller left.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::rule::FailureRules;
use super::without::Without;
use crate::core::decision::{Decision, Source};
use crate::core::error::Kind;
use crate::core::{Checks, Error, Requirement, kept};
use crate::store::breaker::{LONGEST_PROBE, Permit};
use crate::store::slots::{SlotHold, SlotRenewer, Unclaimed};
use crate::store::{
    Answer, Applied, Ask, AskMode, BreakerState, Capabilities, Change, Check, Counter, Deadline, Decided, Receipt,
    Settlement, Settling, Store,
};

/// A store as layers and limiters keep it.
pub(crate) type SharedStore = Arc<dyn Store>;

/// A store that calls an inner one, unless that failed too often a moment ago, and applies the
/// rules to what the inner one does not decide within the budget.
pub(crate) struct FailureStore {
    /// The store that is called.
    inner: SharedStore,
    /// How long one decision may take.
    budget: Duration,
    /// The inner store's own budget. If there is one, it keeps deadlines.
    own: Option<Duration>,
    /// The rules, the breaker and the local store, shared with calls in flight.
    without: Arc<Without>,
    /// Renews and releases the slots that both stores have taken.
    slots: Arc<SlotRenewer>,
}

impl FailureStore {
    /// A store around `inner`, with a breaker that is closed. The inner store's budget is read
    /// once, here.
    pub(crate) fn new(inner: SharedStore, rules: FailureRules) -> Self {
        let own = Capabilities::of(&*inner).budget;
        let without = Arc::new(Without::new(rules));
        let slots = {
            let (inner, without) = (Arc::clone(&inner), Arc::clone(&without));
            SlotRenewer::new(move |receipt, changes| settle(&*inner, &without, receipt, changes))
        };
        Self { inner, budget: rules.budget(own), own, without, slots }
    }

    /// Holds the slots that a decision took until the returned value is dropped; `None` if it took none.
    ///
    /// Called once for each receipt, by whoever receives the decision: otherwise its slots are not released, and expire.
    pub(crate) fn hold(&self, receipt: &Receipt) -> Option<SlotHold> {
        self.slots.hold(receipt)
    }

    /// Returns the state of the breaker.
    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.without.breaker_state()
    }

    /// Returns how long until what failed is called again: the inner store, or the server of it
    /// that returned the error.
    pub(crate) fn next_probe(&self, error: &Error) -> Duration {
        self.without.next_probe(error)
    }

    /// Returns how long one decision may take, lookups included.
    pub(crate) fn decision_budget(&self) -> Duration {
        self.budget
    }

    /// Returns the deadline for the inner store, unless its own budget ends earlier. For one that
    /// does not keep deadlines, see [`wait`](Self::wait).
    fn deadline(&self, permit: Permit, deadline: Deadline) -> Deadline {
        let budget = self.budget_of(permit);
        match self.own {
            Some(own) if own > budget => deadline.earlier(Deadline::after(budget)),
            _ => deadline,
        }
    }

    /// Returns the budget of a call: that of a probe has a limit, whatever is set.
    fn budget_of(&self, permit: Permit) -> Duration {
        if permit.is_probe() { self.budget.min(LONGEST_PROBE) } else { self.budget }
    }

    /// Decides. A call that waits is no boxed future, so that the inner store's is the only one.
    pub(crate) fn begin(&self, checks: &[Check], ask: Ask) -> Deciding {
        if checks.is_empty() {
            // No policy applies, so it does not matter whether the store is available.
            let receipt = Receipt::new(self.without.local.id(), []);
            return Deciding::Ready(Ok(Decided { decision: Decision::new([], Source::Store), receipt }));
        }
        let Some(permit) = self.without.acquire() else {
            return Deciding::Ready(self.without.decide(checks, breaker_is_open()));
        };
        let mode = if permit.is_probe() { AskMode::Probe } else { ask.mode };
        match self.inner.decide(checks, Ask { deadline: self.deadline(permit, ask.deadline), mode }) {
            Answer::Ready(mut decided) => {
                self.without.report(permit, &decided);
                self.without.stand_in(checks, &mut decided);
                Deciding::Ready(decided)
            }
            Answer::Pending(pending) => Deciding::Waits(self.wait(pending, permit, checks, ask.deadline)),
        }
    }

    /// Waits for the inner store, with the permit it was called by. A timer is added if it keeps no
    /// deadlines; a probe, and a decision that takes slots, continues in a task if there is a runtime.
    fn wait(&self, pending: Pending, permit: Permit, checks: &[Check], deadline: Deadline) -> InFlight {
        let budget = self.budget_of(permit);
        let timer = if self.own.is_none() { deadline.earlier(Deadline::after(budget)) } else { Deadline::none() };
        let pending = match timer.instant() {
            // Boxed, so that calls without a timer need no room for one.
            Some(at) => Box::pin(within(at, budget, pending)),
            None => pending,
        };
        let mut call = InFlight { pending, without: Arc::clone(&self.without), permit: Some(permit) };
        let takes_slots = |check: &Check| check.cost > 0 && check.counter.quota().facts().held;
        let goes_on = permit.is_probe() || checks.iter().any(takes_slots);
        if let Some(Ok(runtime)) = goes_on.then(Runtime::try_current) {
            let (without, pending) = (Arc::clone(&self.without), go_on(&runtime, call, Arc::clone(&self.slots)));
            call = InFlight { pending, without, permit: None };
        }
        call
    }
}

impl Store for FailureStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> Answer<Result<Decided, Error>> {
        match self.begin(checks, ask) {
            Deciding::Ready(decided) => Answer::Ready(decided),
            Deciding::Waits(call) => Answer::pending(call.of(kept(checks))),
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        settle(&*self.inner, &self.without, receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        self.inner.adjust(counter, change)
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        self.inner.capabilities(requirements)
    }
}

/// A decision of the inner store that is waited for.
type Pending = Pin<Box<dyn Future<Output = Result<Decided, Error>> + Send>>;

/// A decision, or what waits for it once it [has](InFlight::of) its checks.
pub(crate) enum Deciding {
    Ready(Result<Decided, Error>),
    Waits(InFlight),
}

/// A call that is waited for, and the checks, for the rules if it fails.
pub(crate) struct Call {
    call: InFlight,
    checks: Checks,
}

impl Future for Call {
    type Output = Result<Decided, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut decided = ready!(Pin::new(&mut self.call).poll(cx));
        self.call.without.stand_in(&self.checks, &mut decided);
        Poll::Ready(decided)
    }
}

/// A call of the inner store in flight. Dropped before it has reported its outcome, it lets another request probe.
pub(crate) struct InFlight {
    pending: Pending,
    /// Where the outcome is reported.
    without: Arc<Without>,
    /// The permit; `None` if the outcome was reported, or is by a task.
    permit: Option<Permit>,
}

impl InFlight {
    /// Returns what waits for it; the rules decide the checks if it fails.
    pub(crate) fn of(self, checks: Checks) -> Call {
        Call { call: self, checks }
    }
}

impl Future for InFlight {
    type Output = Result<Decided, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let decided = ready!(self.pending.as_mut().poll(cx));
        if let Some(permit) = self.permit.take() {
            self.without.report(permit, &decided);
        }
        Poll::Ready(decided)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(permit) = self.permit {
            self.without.left(permit);
        }
    }
}

/// Settles a receipt by the store that made it.
fn settle(inner: &dyn Store, without: &Without, receipt: Receipt, changes: &[Settlement]) -> Settling {
    if changes.is_empty() {
        return Answer::Ready(Ok(Vec::new()));
    }
    if receipt.store() == without.local.id() {
        without.local.settle(receipt, changes)
    } else {
        inner.settle(receipt, changes)
    }
}

/// Makes a call in a task, as its caller may disconnect, or never be polled again: all requests depend on the outcome of
/// a probe, and somebody has to release slots. Other units that were taken stay taken then.
fn go_on(runtime: &Runtime, call: InFlight, slots: Arc<SlotRenewer>) -> Pending {
    let (sender, receiver) = oneshot::channel();
    runtime.spawn(async move {
        let decided = call.await;
        // A caller that disconnected needs no result: its slots are released.
        let _ = sender.send(Unclaimed::new(slots, decided));
    });
    Box::pin(async move { receiver.await.map_or_else(|_| Err(stopped()), Unclaimed::claim) })
}

/// Waits until a time; a decision that comes later is dropped, as its store keeps no deadline.
/// There are no timers outside of a runtime, where it waits for as long as the store does.
async fn within(deadline: Instant, budget: Duration, pending: Pending) -> Result<Decided, Error> {
    if Runtime::try_current().is_err() {
        return pending.await;
    }
    let late =
        |late| Error::new(Kind::Timeout, format!("the store did not decide within {budget:?}")).with_source(late);
    timeout_at(deadline, pending).await.map_err(late)?
}

/// The error of a call whose runtime was shut down.
fn stopped() -> Error {
    Error::new(Kind::Store, "the runtime of the call to the store was shut down")
}

/// The error of a request while the breaker is open.
fn breaker_is_open() -> Error {
    Error::new(Kind::Connection, "the store is not called, as it failed too often a moment ago")
}
