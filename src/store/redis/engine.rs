//! One decision: from checks to a reply within the budget, and from the reply to a decision.
//!
//! Requests come in from the store, from `settle.rs` and from `apart.rs`; each becomes a job of a
//! lane, and its reply a decision and a receipt. A request is sent at most once as far as can be
//! known, and its caller waits no longer than its timeout. A lane that runs in the caller's runtime
//! ends the wait itself; only for a lane elsewhere, whose runtime may have stopped, does the caller
//! use a timer of its own. So the usual decision costs no timer.

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

use super::batch::{Caller, GRACE, Job, Late, NoReply, Response, Settled, Timeout, stopped};
use super::server_time::ServerTime;
use super::servers::Servers;
use super::wire::{ReplyPart, Request, Verdict, redis_key, step_of_one};
use crate::core::Error;
use crate::store::deny::Refusals;
use crate::store::evaluate::{decided, decided_one};
use crate::store::{Check, Deadline, Decided, DenyCacheBuilder, StoreId};

/// What all clones of a store share: its servers, its settings and the cached refusals.
pub(super) struct Engine {
    /// Identifies the store in receipts: a receipt of another store changes nothing here.
    pub(super) id: StoreId,
    /// Where decisions are made.
    pub(super) servers: Servers,
    /// What every key starts with.
    pub(super) prefix: String,
    /// How long one decision may take, from its start to the reply.
    pub(super) budget: Duration,
    /// The time that decisions are made at.
    pub(super) time: ServerTime,
    /// The refusals that are cached around the store.
    pub(super) refusals: Arc<Refusals>,
}

impl Engine {
    /// Returns the engine of a new store.
    ///
    /// # Errors
    ///
    /// If the settings of the deny cache are not valid.
    pub(super) fn new(
        servers: Servers,
        prefix: String,
        budget: Duration,
        time: ServerTime,
        deny_cache: Option<DenyCacheBuilder>,
    ) -> Result<Arc<Self>, Error> {
        let id = StoreId::new();
        let refusals = deny_cache.map_or_else(|| Ok(Refusals::off(id)), |cache| cache.refusals(id))?;
        Ok(Arc::new(Self { id, servers, prefix, budget, time, refusals: Arc::new(refusals) }))
    }

    /// Has a request decided, in one call with others of the same moment, within the budget and by
    /// the deadline.
    ///
    /// # Errors
    ///
    /// If there is no reply in time, or no server to call, or the server refuses the call. The
    /// error contains whether the reply may still come: see [`refund_late`](Self::refund_late).
    ///
    /// # Cancellation
    ///
    /// A request that was not sent yet is dropped. Units taken by one that was sent stay taken.
    pub(super) async fn call(&self, request: Request, deadline: Deadline) -> Response {
        let (sender, receiver) = oneshot::channel();
        let timeout = Timeout::by(self.budget, deadline);
        self.servers.find(timeout).await;
        let (slot, has_calendars) = (self.slot_of(&request), request.has_calendars());
        let response = match self.servers.push(Job::new(request, Caller::Waits(sender), timeout, slot))? {
            Some(here) => self.wait_here(here, slot, timeout, receiver).await,
            None => Box::pin(self.wait(slot, timeout, receiver)).await,
        };
        if has_calendars && let Ok(part) = &response {
            self.time.learn(part.now_us());
        }
        response
    }

    /// Waits for a lane of the runtime `here`, which keeps the timeout. Polled in another runtime, as
    /// when the future was moved, it uses that one's timer from then on.
    async fn wait_here(&self, here: Id, slot: u16, timeout: Timeout, mut receiver: Receiver<Response>) -> Response {
        let mut is_new = true;
        let response = poll_fn(|cx| {
            if let Poll::Ready(response) = Pin::new(&mut receiver).poll(cx) {
                return Poll::Ready(Some(response));
            }
            // The first poll is that in which the job was queued.
            let is_here = mem::take(&mut is_new) || Handle::try_current().is_ok_and(|runtime| runtime.id() == here);
            if is_here { Poll::Pending } else { Poll::Ready(None) }
        });
        match response.await {
            Some(response) => response.unwrap_or_else(|_| gone()),
            None => Box::pin(self.wait(slot, timeout, receiver)).await,
        }
    }

    /// Waits for a lane of another runtime, which may have stopped and then does not keep the timeout.
    /// Outside a runtime there is no timer, and only the lane ends the wait.
    ///
    /// Callers box it, as it is rare: with room for a timer, the future of each decision would be larger than what
    /// glibc allocates without a lock.
    async fn wait(&self, slot: u16, timeout: Timeout, mut receiver: Receiver<Response>) -> Response {
        if Handle::try_current().is_err() {
            return receiver.await.unwrap_or_else(|_| gone());
        }
        if let Ok(response) = timeout_at(timeout.until + GRACE, &mut receiver).await {
            return response.unwrap_or_else(|_| gone());
        }
        let error = self.servers.late(slot, timeout);
        Err(NoReply { error, late: Some(Late::Elsewhere(receiver)) })
    }

    /// As [`call`](Self::call), for a change or a reset: there is nothing to refund if the reply is
    /// late.
    pub(super) async fn change(&self, request: Request) -> Result<ReplyPart, Error> {
        self.call(request, Deadline::none()).await.map_err(|no_reply| no_reply.error)
    }

    /// Sends a settlement in the background, after those sent before: at most once, and up to a
    /// bounded number for each server. The reply may be waited for, or the receiver be dropped.
    pub(super) fn send(&self, request: Request) -> Receiver<Settled> {
        let (sender, receiver) = oneshot::channel();
        let (timeout, slot) = (Timeout::of_settlement(self.budget), self.slot_of(&request));
        self.servers.push_settlement(Job::new(request, Caller::Settles(None, sender), timeout, slot));
        receiver
    }

    /// Works out the decision and the receipt from what the script found.
    ///
    /// # Errors
    ///
    /// If the reply is not one to these checks.
    pub(super) fn decided(&self, checks: &[Check], part: ReplyPart) -> Result<Decided, Error> {
        decided_by(self.id, checks, part)
    }

    /// Returns the runtime that receives the reply to a decision over checks of one slot, if a lane
    /// is there.
    pub(super) fn runtime_of(&self, checks: &[Check]) -> Option<Handle> {
        let key = redis_key(&self.prefix, &checks.first()?.counter);
        self.servers.runtime(self.servers.slot_of(&key))
    }

    /// Returns the slot of a request's keys; 0 if it has none.
    fn slot_of(&self, request: &Request) -> u16 {
        request.key().map_or(0, |key| self.servers.slot_of(key))
    }
}

/// As [`Engine::decided`]. The decisions of one call name it, as they do if they fail together: that is one failure.
fn decided_by(id: StoreId, checks: &[Check], part: ReplyPart) -> Result<Decided, Error> {
    let call = part.call;
    let read = || {
        if let [check @ Check { ban: None, .. }] = checks {
            return Ok(decided_one(id, check, &step_of_one(check, part)?));
        }
        let mut verdict = Verdict::of(checks, part)?;
        if verdict.refused {
            verdict.look_again(checks);
        }
        Ok(decided(id, checks, &verdict.bans, &verdict.steps, verdict.refused))
    };
    match read() {
        Ok(Decided { decision, receipt }) => Ok(Decided { decision, receipt: receipt.of_call(call) }),
        Err(error) => Err(call.into_iter().fold(error, Error::of_call)),
    }
}

/// Waits for the reply to a settlement.
///
/// # Errors
///
/// If it was not sent, or has no reply; or its lane has stopped.
pub(super) async fn settled(receiver: Receiver<Settled>) -> Settled {
    receiver.await.unwrap_or_else(|_| Err(stopped()))
}

/// Returns the error of a job whose lane has stopped.
#[cold]
fn gone() -> Response {
    Err(NoReply::from(stopped()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::wire::Reply;
    use super::*;
    use crate::core::{Key, Quota};
    use crate::store::Counter;

    #[test]
    fn decisions_that_cannot_be_read_from_one_reply_are_failures_of_one_call() {
        let counter = Counter::new("p".try_into().expect("a valid name"), Key::new("k", "v"), Quota::per_hour(1));
        let checks = [Check::new(counter, 1)];
        let request = Request::new("tollgate", &checks, || 0);
        // Two checks that fit, says the script, with a bucket that is full of debts.
        let state = [1_u64, (1 << 52) - 1, 1].map(|number| number.to_be_bytes()[1..].to_vec()).concat();
        let bytes = [&[0, 0, 0, 0, 0, 0, 1, 1, 1][..], &state, &state].concat();
        let mut reply = Reply::read(Bytes::from(bytes), 2).expect("a time and two flags");
        let calls = [0, 1].map(|_| {
            let part = reply.take(&request).expect("a state for each");
            decided_by(StoreId::new(), &checks, part).expect_err("the script is wrong").call()
        });
        assert!(calls[0].is_some() && calls[0] == calls[1], "{calls:?}");
    }
}
