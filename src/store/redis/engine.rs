//! Asking servers: within a budget, at most once; and what their answers come to.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::sync::oneshot::Receiver;
use tokio::time::timeout_at;

use super::batch::{Caller, GRACE, Job, Late, Response, Settled, Timeout, Unanswered, stopped};
use super::servers::Servers;
use super::wire::{Answered, Request, Verdict, redis_key, step_of_one};
use crate::core::Error;
use crate::store::deny::Refusals;
use crate::store::evaluate::{told, told_of_one};
use crate::store::{Check, Deadline, Decided, DenyCacheBuilder, StoreId};

/// What all clones of a store share.
pub(super) struct Engine {
    pub(super) id: StoreId,
    pub(super) servers: Servers,
    pub(super) prefix: String,
    pub(super) budget: Duration,
    /// Refusals that are remembered.
    pub(super) refusals: Option<Arc<Refusals>>,
}

impl Engine {
    pub(super) fn new(
        servers: Servers,
        prefix: String,
        budget: Duration,
        deny_cache: Option<DenyCacheBuilder>,
    ) -> Result<Arc<Self>, Error> {
        let id = StoreId::new();
        let refusals = deny_cache.map(|cache| cache.refusals(id)).transpose()?.map(Arc::new);
        Ok(Arc::new(Self { id, servers, prefix, budget, refusals }))
    }

    /// Has a request decided together with others, within the budget and by the deadline. It joins them
    /// at once.
    pub(super) async fn ask(&self, request: Request, deadline: Deadline) -> Response {
        let (answer, answered) = oneshot::channel();
        let timeout = Timeout::by(self.budget, deadline);
        self.servers.find(timeout).await;
        let slot = self.slot_of(&request);
        match self.servers.push(Job::new(request, Caller::Waits(answer), timeout, slot))? {
            Some(here) => self.wait_here(here, slot, timeout, answered).await,
            None => self.wait(slot, timeout, answered).await,
        }
    }

    /// Waits for a lane of the runtime `here`. Polled on another one, it uses that one's timer from then on.
    async fn wait_here(&self, here: Id, slot: u16, timeout: Timeout, mut answered: Receiver<Response>) -> Response {
        let mut is_new = true;
        let answer = poll_fn(|cx| {
            if let Poll::Ready(answer) = Pin::new(&mut answered).poll(cx) {
                return Poll::Ready(Some(answer));
            }
            // The first poll is that in which the job was queued.
            let is_here = mem::take(&mut is_new) || Handle::try_current().is_ok_and(|runtime| runtime.id() == here);
            if is_here { Poll::Pending } else { Poll::Ready(None) }
        });
        match answer.await {
            Some(answer) => answer.unwrap_or_else(|_| gone()),
            None => self.wait(slot, timeout, answered).await,
        }
    }

    /// Waits for a lane of another runtime, which may not be there to look at the clock.
    async fn wait(&self, slot: u16, timeout: Timeout, mut answered: Receiver<Response>) -> Response {
        if Handle::try_current().is_err() {
            return answered.await.unwrap_or_else(|_| gone());
        }
        if let Ok(answer) = timeout_at(timeout.until + GRACE, &mut answered).await {
            return answer.unwrap_or_else(|_| gone());
        }
        let error = self.servers.late(slot, timeout);
        Err(Unanswered { error, late: Some(Late::Elsewhere(answered)) })
    }

    /// As [`ask`](Self::ask), for who has nothing to give back.
    pub(super) async fn change(&self, request: Request) -> Result<Answered, Error> {
        self.ask(request, Deadline::none()).await.map_err(|unanswered| unanswered.error)
    }

    /// Sends a settlement in the background, after those sent before: at most once, and not beyond a
    /// bounded number for each server. Its answer need not be waited for.
    pub(super) fn send(&self, request: Request) -> Receiver<Settled> {
        let (answer, answered) = oneshot::channel();
        let (timeout, slot) = (Timeout::of_settlement(self.budget), self.slot_of(&request));
        self.servers.push_settlement(Job::new(request, Caller::Settles(None, answer), timeout, slot));
        answered
    }

    /// Works out what the script found.
    pub(super) fn decided(&self, checks: &[Check], answered: Answered) -> Result<Decided, Error> {
        let call = answered.call;
        let decided = if let [check] = checks {
            told_of_one(self.id, check, &step_of_one(check, answered)?)
        } else {
            let mut verdict = Verdict::of(checks, answered)?;
            if verdict.refused {
                verdict.look_again(checks);
            }
            told(self.id, checks, &verdict.steps, verdict.refused)
        };
        let Decided { decision, receipt } = decided;
        Ok(Decided { decision, receipt: receipt.of_call(call) })
    }

    /// The runtime on which the answer to a decision over checks of one slot is received.
    pub(super) fn runtime_of(&self, checks: &[Check]) -> Option<Handle> {
        let key = redis_key(&self.prefix, &checks.first()?.counter);
        self.servers.runtime(self.servers.slot_of(&key))
    }

    fn slot_of(&self, request: &Request) -> u16 {
        request.key().map_or(0, |key| self.servers.slot_of(key))
    }
}

/// What became of a settlement, once that is known.
pub(super) async fn settled(answered: Receiver<Settled>) -> Settled {
    answered.await.unwrap_or_else(|_| Err(stopped()))
}

#[cold]
fn gone() -> Response {
    Err(Unanswered::from(stopped()))
}
