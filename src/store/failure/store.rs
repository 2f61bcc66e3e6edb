//! A store around a store that answers in time when the inner one cannot.

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
use crate::store::{
    Answer, Applied, BreakerState, Change, Check, Counter, Deadline, Decided, Receipt, Settlement, Settling, Store,
};

/// A store as the layer keeps it.
pub(crate) type SharedStore = Arc<dyn Store>;

/// Asks a store, unless it failed a moment ago; what it does not decide in time is decided as the
/// rules say.
#[derive(Debug)]
pub(crate) struct FailureStore<S> {
    inner: S,
    budget: Duration,
    /// The inner store's own, which keeps deadlines then.
    own: Option<Duration>,
    without: Arc<Without>,
}

impl<S: Store> FailureStore<S> {
    pub(crate) fn new(inner: S, rules: FailureRules) -> Self {
        let own = inner.budget();
        Self { inner, budget: rules.budget(own), own, without: Arc::new(Without::new(rules)) }
    }

    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.without.breaker_state()
    }

    /// How long until what failed is asked again: the inner store, or one of its servers.
    pub(crate) fn next_probe(&self, error: &Error) -> Duration {
        self.without.next_probe(error)
    }

    /// How long one decision may take, with all that is looked up for it.
    pub(crate) fn time_for_all(&self) -> Duration {
        self.budget
    }

    /// By when the inner store has to answer, unless its own budget is over earlier. For one that does not
    /// keep deadlines, see [`wait`](Self::wait).
    fn deadline(&self, permit: Permit, deadline: Deadline) -> Deadline {
        let budget = self.budget_of(permit);
        match self.own {
            Some(own) if own > budget => deadline.earlier(Deadline::after(budget)),
            _ => deadline,
        }
    }

    fn budget_of(&self, permit: Permit) -> Duration {
        if permit.is_probe() { self.budget.min(LONGEST_PROBE) } else { self.budget }
    }

    /// Waits for the inner store, which it has been given leave to ask.
    fn wait(
        &self,
        pending: Pending,
        permit: Permit,
        checks: &[Check],
        deadline: Deadline,
    ) -> Answer<Result<Decided, Error>> {
        let budget = self.budget_of(permit);
        let timer = if self.own.is_none() { deadline.earlier(Deadline::after(budget)) } else { Deadline::none() };
        let pending = match timer.instant() {
            // Boxed, so that those who need no timer carry none.
            Some(at) => Box::pin(within(at, budget, pending)),
            None => pending,
        };
        let (without, checks) = (Arc::clone(&self.without), kept(checks));
        let call = StoreCall { pending, without: Arc::clone(&without), permit: Some(permit) };
        match permit.is_probe().then(Runtime::try_current) {
            Some(Ok(runtime)) => Answer::pending(probe(&runtime, call, without, checks)),
            _ => Answer::pending(Waiting { call, checks }),
        }
    }
}

impl<S: Store> Store for FailureStore<S> {
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        if checks.is_empty() {
            // No policy applies, so a store that is away has nothing to withhold.
            let receipt = Receipt::new(self.without.local.id(), []);
            return Answer::Ready(Ok(Decided { decision: Decision::new([], Source::Store), receipt }));
        }
        let Some(permit) = self.without.ask() else {
            return Answer::Ready(self.without.decide(checks, not_asked()));
        };
        let ask = if permit.is_probe() { S::probe } else { S::decide };
        let mut answer = ask(&self.inner, checks, self.deadline(permit, deadline));
        if let Answer::Ready(decided) = &mut answer {
            self.without.learn(permit, decided);
            self.without.stand_in(checks, decided);
        }
        match answer {
            Answer::Pending(pending) => self.wait(pending, permit, checks, deadline),
            ready @ Answer::Ready(_) => ready,
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() == self.without.local.id() {
            self.without.local.settle(receipt, changes)
        } else {
            self.inner.settle(receipt, changes)
        }
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        self.inner.adjust(counter, change)
    }

    fn reset(&self, counter: &Counter) -> Answer<Result<(), Error>> {
        self.inner.reset(counter)
    }

    fn recall(&self, checks: &[Check]) -> Option<Decided> {
        self.inner.recall(checks)
    }

    fn supports(&self, requirements: &[Requirement<'_>]) -> Result<(), Error> {
        self.inner.supports(requirements)
    }
}

type Pending = Pin<Box<dyn Future<Output = Result<Decided, Error>> + Send>>;

/// A question on its way. Dropped, it lets another request probe.
struct StoreCall {
    pending: Pending,
    without: Arc<Without>,
    /// `None` once it was answered.
    permit: Option<Permit>,
}

impl Future for StoreCall {
    type Output = Result<Decided, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let decided = ready!(self.pending.as_mut().poll(cx));
        let permit = self.permit.take().expect("a question is answered once");
        self.without.learn(permit, &decided);
        Poll::Ready(decided)
    }
}

impl Drop for StoreCall {
    fn drop(&mut self) {
        if let Some(permit) = self.permit {
            self.without.left(permit);
        }
    }
}

/// A caller that waits for its own question.
struct Waiting {
    call: StoreCall,
    checks: Checks,
}

impl Future for Waiting {
    type Output = Result<Decided, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut decided = ready!(Pin::new(&mut self.call).poll(cx));
        self.call.without.stand_in(&self.checks, &mut decided);
        Poll::Ready(decided)
    }
}

/// Asks in a task, as all requests depend on the answer and only one waits for it: its caller may go
/// away, or never be polled again. Then what was taken stays taken.
fn probe(
    runtime: &Runtime,
    call: StoreCall,
    without: Arc<Without>,
    checks: Checks,
) -> impl Future<Output = Result<Decided, Error>> + Send + use<> {
    let (answer, answered) = oneshot::channel();
    runtime.spawn(async move {
        // A caller that went away needs no answer.
        let _ = answer.send(call.await);
    });
    async move {
        let mut decided = answered.await.unwrap_or_else(|_| Err(stopped()));
        without.stand_in(&checks, &mut decided);
        decided
    }
}

/// Waits until then; an answer that comes later goes nowhere, as its store knows of no deadline. There are no timers outside of
/// a runtime.
async fn within(deadline: Instant, budget: Duration, pending: Pending) -> Result<Decided, Error> {
    if Runtime::try_current().is_err() {
        return pending.await;
    }
    let late = |late| Error::new(Kind::Timeout, format!("the store did not answer in {budget:?}")).with_source(late);
    timeout_at(deadline, pending).await.map_err(late)?
}

fn stopped() -> Error {
    Error::new(Kind::Store, "the runtime that asked the store was shut down")
}

fn not_asked() -> Error {
    Error::new(Kind::Connection, "the store is not asked, as it failed too often a moment ago")
}
