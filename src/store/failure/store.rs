//! The store that decides within the timeout when the inner store cannot.
//!
//! A decision needs a permit of the breaker, calls the inner store with a deadline, and reports the outcome. The rules
//! decide after a failure, and at once without a permit.
//!
//! A store with a timeout keeps deadlines by itself, so it receives one if the layer's timeout is shorter. For any other
//! store a tokio timer wraps its future. Probes run in a separate task.
//!
//! A pending call reports its outcome even if it is dropped, in the `Drop` of `Call`. A call that takes slots runs in a
//! task, too, because they would not be released if its caller left.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};

use super::rule::{BUDGET, FailureRules};
use super::without::Without;
use crate::core::decision::{Decision, Outcome, Source};
use crate::core::error::Kind;
use crate::core::{Checks, Error, Overridden, Requirement, kept};
use crate::store::breaker::{CallPermit, FIRST_WAIT_MS, MAX_PROBE};
use crate::store::slots::{SlotHold, SlotRenewer, Unclaimed};
use crate::store::{
    Ask, AskMode, BreakerState, Capabilities, Change, ChangeResult, Check, Counter, Deadline, MaybeFuture, Receipt,
    Settlement, Settling, Store, StoreDecision,
};

pub(crate) type SharedStore = Arc<dyn Store>;

pub(crate) struct FailureStore {
    inner: SharedStore,
    budget: Duration,
    /// The inner store's own timeout. If there is one, the inner store keeps deadlines.
    own: Option<Duration>,
    without: Arc<Without>,
    slots: Arc<SlotRenewer>,
}

impl FailureStore {
    pub(crate) fn new(inner: SharedStore, rules: FailureRules) -> Self {
        let own = Capabilities::from_store(&*inner).timeout;
        let without = Arc::new(Without::new(rules));
        let slots = {
            let (inner, without) = (Arc::clone(&inner), Arc::clone(&without));
            SlotRenewer::new(move |receipt, changes| settle(&*inner, &without, receipt, changes))
        };
        Self { inner, budget: rules.budget.or(own).unwrap_or(BUDGET), own, without, slots }
    }

    /// Call it once for each receipt. Otherwise slots are not released, and expire.
    pub(crate) fn hold(&self, receipt: &Receipt) -> Option<SlotHold> {
        self.slots.hold(receipt)
    }

    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.without.breaker.inner.state()
    }

    pub(crate) fn next_probe(&self, error: &Error) -> Duration {
        self.without.next_probe(error)
    }

    pub(crate) fn decision_budget(&self) -> Duration {
        self.budget
    }

    /// Not boxed, so that the inner store's future is the only box.
    pub(crate) fn begin(&self, checks: &[Check], ask: Ask) -> Deciding {
        if checks.is_empty() {
            // No policy applies, so the store's availability does not matter.
            let receipt = Receipt::new(self.without.local.id(), []);
            return Deciding::Ready(Ok(StoreDecision { decision: Decision::new([], Source::Store), receipt }));
        }
        if let Some(decision) = denied(checks) {
            let receipt = Receipt::new(self.without.local.id(), []);
            return Deciding::Ready(Ok(StoreDecision { decision, receipt }));
        }
        let Some(permit) = self.without.breaker.acquire() else {
            let text = "the store is not called, as it failed too often a moment ago";
            let mut decided = Err(Error::new(Kind::Connection, text));
            self.without.stand_in(checks, &mut decided);
            return Deciding::Ready(decided);
        };
        // A probe takes at most `MAX_PROBE`.
        let (budget, mode) =
            if permit.is_probe() { (self.budget.min(MAX_PROBE), AskMode::Probe) } else { (self.budget, ask.mode) };
        let is_shorter = self.own.is_some_and(|own| own > budget);
        let deadline = if is_shorter { ask.deadline.earlier(Deadline::after(budget)) } else { ask.deadline };
        // A decision is large: it is changed where it is, and moved once.
        let mut decided = self.inner.decide(checks, Ask { deadline, mode });
        if let MaybeFuture::Ready(decided) = &mut decided {
            self.without.report(permit, decided);
            self.without.stand_in(checks, decided);
        }
        match decided {
            MaybeFuture::Ready(decided) => Deciding::Ready(decided),
            MaybeFuture::Pending(pending) => Deciding::Waits(self.wait(pending, permit, checks, ask.deadline, budget)),
        }
    }

    /// If there is a runtime, continues a probe or a decision that takes slots in a task.
    fn wait(
        &self,
        pending: InnerDecision,
        permit: CallPermit,
        checks: &[Check],
        deadline: Deadline,
        budget: Duration,
    ) -> Call {
        let takes_slots = |check: &&Check| check.cost > 0 && check.counter.quota().facts().held;
        let ttl = checks.iter().filter(takes_slots).map(|check| check.counter.quota().window()).max();
        let pending = match self.own {
            // Boxed, so that calls without a timer are not larger.
            None => Box::pin(within(deadline, budget, pending, ttl.map(|ttl| (ttl, Arc::clone(&self.slots))))),
            Some(_) => pending,
        };
        let call = Call { pending, without: Arc::clone(&self.without), permit: Some(permit), checks: Checks::new() };
        let goes_on = permit.is_probe() || ttl.is_some();
        match goes_on.then(Runtime::try_current) {
            Some(Ok(runtime)) => call.go_on(&runtime, Arc::clone(&self.slots)),
            _ => call,
        }
    }
}

/// Returns the denial if an override denies one of the checks. The others are hidden, because nothing is known of them.
#[inline]
fn denied(checks: &[Check]) -> Option<Decision> {
    let is_denied = |check: &Check| matches!(check.overridden, Overridden::Denied(_));
    checks.iter().any(is_denied).then(|| {
        let outcomes = checks.iter().map(|check| match check.overridden {
            Overridden::Denied(left) => Outcome::denied(check, 0, left).with_reset_after(left.unwrap_or_default()),
            _ => Outcome::allowed(check, 0).to_hidden(),
        });
        Decision::new(outcomes, Source::Override)
    })
}

impl Store for FailureStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        match self.begin(checks, ask) {
            Deciding::Ready(decided) => MaybeFuture::Ready(decided),
            Deciding::Waits(call) => MaybeFuture::pending(call.with_checks(kept(checks))),
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

type InnerDecision = Pin<Box<dyn Future<Output = Result<StoreDecision, Error>> + Send>>;

pub(crate) enum Deciding {
    Ready(Result<StoreDecision, Error>),
    Waits(Call),
}

/// A call of the inner store in flight. If dropped before the report, it lets another request probe.
pub(crate) struct Call {
    pending: InnerDecision,
    without: Arc<Without>,
    /// `None` if the outcome was reported, or a task reports it.
    permit: Option<CallPermit>,
    checks: Checks,
}

impl Call {
    pub(crate) fn with_checks(mut self, checks: Checks) -> Self {
        self.checks = checks;
        self
    }

    /// All requests depend on the outcome of a probe, and slots must be released, even if the caller never polls again.
    fn go_on(mut self, runtime: &Runtime, slots: Arc<SlotRenewer>) -> Self {
        let (sender, receiver) = oneshot::channel();
        let stopped = |_| Err(Error::new(Kind::Store, "the runtime of the call to the store was shut down"));
        let claim = async move { receiver.await.map_or_else(stopped, Unclaimed::claim) };
        let waits =
            Self { pending: Box::pin(claim), without: Arc::clone(&self.without), permit: None, checks: Checks::new() };
        runtime.spawn(async move {
            let decided = poll_fn(|cx| self.reported(cx)).await;
            // If the caller has disconnected, this releases the slots.
            let _ = sender.send(Unclaimed::new(slots, decided));
        });
        waits
    }

    fn reported(&mut self, cx: &mut Context<'_>) -> Poll<Result<StoreDecision, Error>> {
        // A decision is large, so it is not moved.
        let polled = self.pending.as_mut().poll(cx);
        if let Poll::Ready(decided) = &polled
            && let Some(permit) = self.permit.take()
        {
            self.without.report(permit, decided);
        }
        polled
    }
}

impl Future for Call {
    type Output = Result<StoreDecision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut polled = self.reported(cx);
        if let Poll::Ready(decided) = &mut polled {
            self.without.stand_in(&self.checks, decided);
        }
        polled
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(permit) = self.permit {
            // Pause before the next probe, because each dropped probe was still waiting for the store.
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

/// Drops a late decision. If the decision may take slots, a task waits for it and releases the slots. Without a
/// runtime, there is no timer. The budget begins with the first poll, because a caller may wait for something else
/// before.
async fn within(
    deadline: Deadline,
    budget: Duration,
    mut pending: InnerDecision,
    slots: Option<(Duration, Arc<SlotRenewer>)>,
) -> Result<StoreDecision, Error> {
    let at = deadline.earlier(Deadline::after(budget)).instant();
    let (Some(at), Ok(runtime)) = (at, Runtime::try_current()) else { return pending.await };
    match timeout_at(at, &mut pending).await {
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
