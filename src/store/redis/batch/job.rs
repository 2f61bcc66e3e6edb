//! A request on its way to Redis, and the caller that waits for the reply.
//!
//! A [`Job`] is what queues, calls and lanes pass on. It is consumed when it completes (`complete`),
//! so it completes once. The caller may have stopped waiting at any point before:
//!
//! | caller | waits for | if it drops its receiver |
//! | --- | --- | --- |
//! | `Waits` | a decision or a change | before sending, the job is left out; after, what it took stays taken |
//! | `Late` | the reply after a timeout, to refund it | nothing is refunded |
//! | `Settles` | a settlement | it is sent nevertheless |
//! | `Gone` | nothing | |
//!
//! The only transition is `Waits` to `Late`, or to `Gone` if the receiver was dropped, in
//! `time_out`: it happens for jobs in flight, when the caller's timeout ends before the reply is
//! there. Jobs that were never sent are completed with the error instead, as there is no late reply to
//! them.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::timeout::Timeout;
use crate::core::Error;
use crate::store::redis::wire::{ReplyPart, Request, Way};

/// What a caller that waits receives: its part of the reply, or why there is none.
pub(in crate::store::redis) type Response = Result<ReplyPart, NoReply>;

/// What the caller of a settlement receives: its part of the reply, or why there is none. After an
/// error the changes may have been made or not.
pub(in crate::store::redis) type Settled = Result<ReplyPart, Error>;

/// Why there is no reply, and the means to receive one that comes late.
#[derive(Debug)]
pub(in crate::store::redis) struct NoReply {
    /// The error for the caller. All jobs that failed together have one that counts as one failure.
    pub(in crate::store::redis) error: Error,
    /// The reply to what was sent, if it comes after all. `None` if the request was never sent, or
    /// if its outcome will never be known.
    pub(in crate::store::redis) late: Option<Late>,
}

/// A reply that comes after its caller timed out.
///
/// The store waits for it in the background, to refund what the request took.
#[derive(Debug)]
pub(in crate::store::redis) enum Late {
    /// The lane ended the wait of a request in flight; it completes this channel if the reply is
    /// received.
    Sent(oneshot::Receiver<ReplyPart>),
    /// The caller ended its own wait, as the lane of another runtime did not do so in time. The
    /// lane may yet complete the request in any way.
    Elsewhere(oneshot::Receiver<Response>),
}

impl Late {
    /// Waits for the late reply. Returns `None` if there will be none.
    ///
    /// It ends in a bounded time as long as the lane's runtime runs: late replies are waited for on
    /// a connection for 10 s at most once it is replaced, and jobs are dropped with their lane.
    ///
    /// # Cancellation
    ///
    /// Dropped, the reply is lost, and what the request took stays taken.
    pub(in crate::store::redis) async fn reply(self) -> Option<ReplyPart> {
        let response = match self {
            Self::Sent(receiver) => return receiver.await.ok(),
            Self::Elsewhere(receiver) => receiver.await.ok()?,
        };
        match response {
            Ok(part) => Some(part),
            Err(NoReply { late: Some(Self::Sent(receiver)), .. }) => receiver.await.ok(),
            Err(_) => None,
        }
    }
}

impl From<Error> for NoReply {
    fn from(error: Error) -> Self {
        Self { error, late: None }
    }
}

/// One request on its way, with what is needed to send it again elsewhere.
#[derive(Debug)]
pub(in crate::store::redis) struct Job {
    /// What is sent.
    pub(super) request: Request,
    /// The receiver of the reply.
    pub(super) caller: Caller,
    /// The time until which the reply is needed.
    pub(super) timeout: Timeout,
    /// The slot of its keys, which all are in the same one: 0 to 16383 on a Redis Cluster, and 0 on
    /// any other server.
    pub(in crate::store::redis) slot: u16,
    /// How the call is sent: plainly, or after `ASKING` while the slot is being moved.
    pub(in crate::store::redis) way: Way,
    /// Whether it must not share a call. Set once the server has replied `TRYAGAIN`, so that one
    /// request whose keys are not all there does not fail others.
    pub(super) is_alone: bool,
    /// How often it was sent anew, because it was surely not sent before or because a node
    /// redirected it. Both are limited.
    pub(in crate::store::redis) tries: u8,
}

/// The receiver of a job's reply.
#[derive(Debug)]
pub(in crate::store::redis) enum Caller {
    /// A caller that waits for a decision or a change, and may stop waiting by dropping its
    /// receiver.
    Waits(oneshot::Sender<Response>),
    /// A caller that received a timeout error already. It waits in the background for the reply, to
    /// refund what was taken; errors are dropped.
    Late(oneshot::Sender<ReplyPart>),
    /// The caller of a settlement, who may or may not wait: it is sent in any case. The permit is
    /// its place among a limited number of settlements in flight (`settling.rs`), taken when it is
    /// queued and released with the job.
    Settles(Option<OwnedSemaphorePermit>, oneshot::Sender<Settled>),
    /// None: the caller stopped waiting while the request was in flight.
    Gone,
}

impl AsRef<Request> for Job {
    fn as_ref(&self) -> &Request {
        &self.request
    }
}

impl Job {
    /// A job to be sent plainly, which may share a call and was not sent before.
    pub(in crate::store::redis) fn new(request: Request, caller: Caller, timeout: Timeout, slot: u16) -> Self {
        Self { request, caller, timeout, slot, way: Way::Plain, is_alone: false, tries: 0 }
    }

    /// Returns whether no caller waits for an immediate reply, so that a job that was not sent need
    /// not be. Settlements are never idle.
    pub(super) fn is_idle(&self) -> bool {
        match &self.caller {
            Caller::Waits(caller) => caller.is_closed(),
            Caller::Late(_) | Caller::Gone => true,
            Caller::Settles(..) => false,
        }
    }

    /// Returns whether a caller may still wait for the reply, and so has to be timed out.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.caller, Caller::Waits(_))
    }

    /// Holds a settlement's place until the job completes. For other jobs it releases the place.
    pub(super) fn keep(&mut self, place: OwnedSemaphorePermit) {
        if let Caller::Settles(kept, _) = &mut self.caller {
            *kept = Some(place);
        }
    }

    /// Returns whether it is a settlement: sent in any case, in the order of the queue, and moved
    /// to another lane if its own ends.
    pub(in crate::store::redis) fn is_settlement(&self) -> bool {
        matches!(self.caller, Caller::Settles(..))
    }

    /// Completes the job. The send is ignored if the receiver was dropped, and a late caller
    /// receives replies only.
    pub(in crate::store::redis) fn complete(self, result: Result<ReplyPart, Error>) {
        match (self.caller, result) {
            // A caller that disconnected needs no reply.
            (Caller::Waits(caller), result) => drop(caller.send(result.map_err(NoReply::from))),
            (Caller::Late(caller), Ok(part)) => drop(caller.send(part)),
            (Caller::Settles(_, caller), result) => drop(caller.send(result)),
            (Caller::Late(_), Err(_)) | (Caller::Gone, _) => {}
        }
    }

    /// Ends the wait of a caller whose request is in flight: it receives the error, and a channel
    /// for the late reply. `error` is called only if there is a caller that waits.
    pub(super) fn time_out(&mut self, error: impl FnOnce() -> Error) {
        if !self.is_awaited() {
            return;
        }
        let (sender, late) = oneshot::channel();
        if let Caller::Waits(caller) = std::mem::replace(&mut self.caller, Caller::Gone)
            && caller.send(Err(NoReply { error: error(), late: Some(Late::Sent(late)) })).is_ok()
        {
            self.caller = Caller::Late(sender);
        }
    }
}
