//! Asking servers: within a budget, at most once.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::sync::oneshot::Receiver;
use tokio::time::timeout_at;

use super::batch::{Caller, GRACE, Job, Late, Settled, Told, Unanswered, stopped};
use super::connections::Patience;
use super::servers::Servers;
use super::wire::{Answered, Request, redis_key};
use crate::Error;
use crate::store::{Check, Deadline, StoreId};

/// What all clones of a store share.
pub(super) struct Inner {
    pub(super) id: StoreId,
    pub(super) servers: Servers,
    pub(super) prefix: String,
    pub(super) budget: Duration,
}

impl Inner {
    pub(super) fn new(servers: Servers, prefix: String, budget: Duration) -> Self {
        Self { id: StoreId::new(), servers, prefix, budget }
    }

    /// Has a request decided together with others, within the budget and by the deadline. It joins them
    /// at once.
    pub(super) async fn ask(&self, request: Request, deadline: Deadline) -> Told {
        let (answer, answered) = oneshot::channel();
        let patience = Patience::by(self.budget, deadline);
        self.servers.find(patience).await;
        let slot = self.slot_of(&request);
        match self.servers.push(Job::new(request, Caller::Waits(answer), patience, slot))? {
            Some(here) => self.wait_here(here, slot, patience, answered).await,
            None => self.wait(slot, patience, answered).await,
        }
    }

    /// Waits for a lane of the runtime `here`. Polled on another one, it uses that one's timer from then on.
    async fn wait_here(&self, here: Id, slot: u16, patience: Patience, mut answered: Receiver<Told>) -> Told {
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
            None => self.wait(slot, patience, answered).await,
        }
    }

    /// Waits for a lane of another runtime, which may not be there to look at the clock.
    async fn wait(&self, slot: u16, patience: Patience, mut answered: Receiver<Told>) -> Told {
        if Handle::try_current().is_err() {
            return answered.await.unwrap_or_else(|_| gone());
        }
        if let Ok(answer) = timeout_at(patience.until + GRACE, &mut answered).await {
            return answer.unwrap_or_else(|_| gone());
        }
        let error = self.servers.late(slot, patience);
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
        let (patience, slot) = (Patience::of_settlement(self.budget), self.slot_of(&request));
        self.servers.push_settlement(Job::new(request, Caller::Settles(None, answer), patience, slot));
        answered
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
fn gone() -> Told {
    Err(Unanswered::from(stopped()))
}
