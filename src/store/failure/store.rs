//! The store around a store that decides within the timeout when the inner one cannot.
//!
//! For each decision: a permit of the breaker, the call of the inner store with a deadline, and the
//! report of its outcome; what fails is decided as the rules say. Without a permit the rules decide
//! at once.
//!
//! The time is limited in one of two ways. A store with a timeout keeps deadlines by itself, so it
//! gets one if the layer's timeout is shorter; for any other store a timer of tokio is put around
//! its future. Probes run in a task of their own.
//!
//! A pending call reports its outcome even if it is dropped: `Call` returns the permit in its
//! `Drop`. One that takes slots runs in a task, too: nobody else would release them if its caller left.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::rule::{BUDGET, FailureRules};
use super::without::Without;
use crate::core::decision::{Decision, Source};
use crate::core::error::Kind;
use crate::core::{Checks, Error, Requirement, kept};
use crate::store::breaker::{FIRST_WAIT_MS, LONGEST_PROBE, Permit};
use crate::store::slots::{SlotHold, SlotRenewer, Unclaimed};
use crate::store::{
    Ask, AskMode, BreakerState, Capabilities, Change, ChangeResult, Check, Counter, Deadline, MaybeFuture, Receipt,
    Settlement, Settling, Store, StoreDecision,
};

/// A store as layers and limiters keep it.
pub(crate) type SharedStore = Arc<dyn Store>;

/// A store that calls an inner one, unless that failed too often a moment ago, and applies the
/// rules to what the inner one does not decide within the timeout.
pub(crate) struct FailureStore {
    /// The store that is called.
    inner: SharedStore,
    /// How long one decision may take.
    budget: Duration,
    /// The inner store's own timeout. If there is one, it keeps deadlines.
    own: Option<Duration>,
    /// The rules, the breaker and the local store, shared with calls in flight.
    without: Arc<Without>,
    /// Renews and releases the slots that both stores have taken.
    slots: Arc<SlotRenewer>,
}

impl FailureStore {
    /// A store around `inner`, with a breaker that is closed. The inner store's timeout is read
    /// once, here.
    pub(crate) fn new(inner: SharedStore, rules: FailureRules) -> Self {
        let own = Capabilities::of(&*inner).timeout;
        let without = Arc::new(Without::new(rules));
        let slots = {
            let (inner, without) = (Arc::clone(&inner), Arc::clone(&without));
            SlotRenewer::new(move |receipt, changes| settle(&*inner, &without, receipt, changes))
        };
        Self { inner, budget: rules.budget.or(own).unwrap_or(BUDGET), own, without, slots }
    }

    /// Holds the slots that a decision took until the returned value is dropped; `None` if it took none.
    ///
    /// Called once for each receipt, by whoever receives the decision: otherwise its slots are not released, and expire.
    pub(crate) fn hold(&self, receipt: &Receipt) -> Option<SlotHold> {
        self.slots.hold(receipt)
    }

    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.without.breaker.inner.state()
    }

    /// Returns how long until what failed is called again: the inner store, or the server of it
    /// that returned the error.
    pub(crate) fn next_probe(&self, error: &Error) -> Duration {
        self.without.next_probe(error)
    }

    pub(crate) fn decision_budget(&self) -> Duration {
        self.budget
    }

    /// Decides. A call that waits is no boxed future, so that the inner store's is the only one.
    pub(crate) fn begin(&self, checks: &[Check], ask: Ask) -> Deciding {
        if checks.is_empty() {
            // No policy applies, so it does not matter whether the store is available.
            let receipt = Receipt::new(self.without.local.id(), []);
            return Deciding::Ready(Ok(StoreDecision { decision: Decision::new([], Source::Store), receipt }));
        }
        let Some(permit) = self.without.breaker.acquire() else {
            let text = "the store is not called, as it failed too often a moment ago";
            let mut decided = Err(Error::new(Kind::Connection, text));
            self.without.stand_in(checks, &mut decided);
            return Deciding::Ready(decided);
        };
        // A probe has a limit, whatever is set.
        let (budget, mode) =
            if permit.is_probe() { (self.budget.min(LONGEST_PROBE), AskMode::Probe) } else { (self.budget, ask.mode) };
        let is_shorter = self.own.is_some_and(|own| own > budget);
        let deadline = if is_shorter { ask.deadline.earlier(Deadline::after(budget)) } else { ask.deadline };
        match self.inner.decide(checks, Ask { deadline, mode }) {
            MaybeFuture::Ready(mut decided) => {
                self.without.report(permit, &decided);
                self.without.stand_in(checks, &mut decided);
                Deciding::Ready(decided)
            }
            MaybeFuture::Pending(pending) => Deciding::Waits(self.wait(pending, permit, checks, ask.deadline, budget)),
        }
    }

    /// Waits for the inner store, with the permit it was called by. A timer is added if it keeps no
    /// deadlines; a probe, and a decision that takes slots, continues in a task if there is a runtime.
    fn wait(&self, pending: Pending, permit: Permit, checks: &[Check], deadline: Deadline, budget: Duration) -> Call {
        let timer = if self.own.is_none() { deadline.earlier(Deadline::after(budget)) } else { Deadline::none() };
        let takes_slots = |check: &&Check| check.cost > 0 && check.counter.quota().facts().held;
        let ttl = checks.iter().filter(takes_slots).map(|check| check.counter.quota().window()).max();
        let pending = match timer.instant() {
            // Boxed, so that calls without a timer need no room for one.
            Some(at) => Box::pin(within(at, budget, pending, ttl.map(|ttl| (ttl, Arc::clone(&self.slots))))),
            None => pending,
        };
        let call = Call { pending, without: Arc::clone(&self.without), permit: Some(permit), checks: Checks::new() };
        let goes_on = permit.is_probe() || ttl.is_some();
        match goes_on.then(Runtime::try_current) {
            Some(Ok(runtime)) => call.go_on(&runtime, Arc::clone(&self.slots)),
            _ => call,
        }
    }
}

impl Store for FailureStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        match self.begin(checks, ask) {
            Deciding::Ready(decided) => MaybeFuture::Ready(decided),
            Deciding::Waits(call) => MaybeFuture::pending(call.of(kept(checks))),
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        settle(&*self.inner, &self.without, receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        self.inner.adjust(counter, change)
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        self.inner.capabilities(requirements)
    }
}

/// A decision of the inner store that is waited for.
type Pending = Pin<Box<dyn Future<Output = Result<StoreDecision, Error>> + Send>>;

/// A decision, or the wait for it, which is to be given the [checks](Call::of).
pub(crate) enum Deciding {
    Ready(Result<StoreDecision, Error>),
    Waits(Call),
}

/// A call of the inner store in flight. Dropped before it has reported its outcome, it lets another request probe.
pub(crate) struct Call {
    pending: Pending,
    /// Where the outcome is reported.
    without: Arc<Without>,
    /// The permit; `None` if the outcome was reported, or is by a task.
    permit: Option<Permit>,
    /// What the rules decide if it fails.
    checks: Checks,
}

impl Call {
    /// Returns the wait for the decision of these checks.
    pub(crate) fn of(mut self, checks: Checks) -> Self {
        self.checks = checks;
        self
    }

    /// Continues in a task, as its caller may disconnect, or never be polled again: all requests depend on the outcome of
    /// a probe, and somebody has to release slots. Other units that were taken stay taken then.
    fn go_on(mut self, runtime: &Runtime, slots: Arc<SlotRenewer>) -> Self {
        let (sender, receiver) = oneshot::channel();
        let stopped = |_| Err(Error::new(Kind::Store, "the runtime of the call to the store was shut down"));
        let claim = async move { receiver.await.map_or_else(stopped, Unclaimed::claim) };
        let waits =
            Self { pending: Box::pin(claim), without: Arc::clone(&self.without), permit: None, checks: Checks::new() };
        runtime.spawn(async move {
            let decided = poll_fn(|cx| self.reported(cx)).await;
            // A caller that disconnected needs no result: its slots are released.
            let _ = sender.send(Unclaimed::new(slots, decided));
        });
        waits
    }

    fn reported(&mut self, cx: &mut Context<'_>) -> Poll<Result<StoreDecision, Error>> {
        let decided = ready!(self.pending.as_mut().poll(cx));
        if let Some(permit) = self.permit.take() {
            self.without.report(permit, &decided);
        }
        Poll::Ready(decided)
    }
}

impl Future for Call {
    type Output = Result<StoreDecision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut decided = ready!(self.reported(cx));
        self.without.stand_in(&self.checks, &mut decided);
        Poll::Ready(decided)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(permit) = self.permit {
            // The next probe does not begin at once, as each one waits for the store.
            self.without.gave_up(permit, FIRST_WAIT_MS);
        }
    }
}

fn settle(inner: &dyn Store, without: &Without, receipt: Receipt, changes: &[Settlement]) -> Settling {
    if changes.is_empty() {
        return MaybeFuture::Ready(Ok(Vec::new()));
    }
    if receipt.store() == without.local.id() {
        without.local.settle(receipt, changes)
    } else {
        inner.settle(receipt, changes)
    }
}

/// Waits until a time. A decision that comes later is dropped, as its store keeps no deadline; if it may take slots, which
/// expire after the TTL, it is waited for in a task, which releases them.
/// There are no timers outside of a runtime, where it waits for as long as the store does.
async fn within(
    deadline: Instant,
    budget: Duration,
    mut pending: Pending,
    slots: Option<(Duration, Arc<SlotRenewer>)>,
) -> Result<StoreDecision, Error> {
    let Ok(runtime) = Runtime::try_current() else { return pending.await };
    match timeout_at(deadline, &mut pending).await {
        Ok(decided) => decided,
        Err(late) => {
            if let Some((ttl, slots)) = slots {
                runtime.spawn(async move {
                    if let Ok(decided) = timeout(ttl, pending).await {
                        drop(Unclaimed::new(slots, decided));
                    }
                });
            }
            let text = format!("the store did not decide within {budget:?}");
            Err(Error::new(Kind::Timeout, text).with_source(late))
        }
    }
}
