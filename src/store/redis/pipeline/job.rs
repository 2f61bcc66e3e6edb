//! A request on its way to Redis, and what becomes of it.

use std::sync::Arc;

use deadpool_redis::redis::{Cmd, RedisError, Value};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::timeout::Timeout;
use crate::core::error::Kind;
use crate::core::{Error, Lines};
use crate::store::breaker::Permit;
use crate::store::redis::connections::is_definite;
use crate::store::redis::wire::{ReplyPart, Request, Way};

/// One request, with what is needed to send it again elsewhere.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Job {
    pub(super) asked: Asked,
    pub(in crate::store::redis) timeout: Timeout,
    /// The slot of its keys, which all are in the same one: 0 unless the server is a node of a Cluster.
    pub(in crate::store::redis) slot: u16,
    /// How the call is sent: plainly, or after `ASKING` while the slot is being moved.
    pub(in crate::store::redis) way: Way,
    /// Whether it must not share a call, so that it cannot fail others.
    pub(in crate::store::redis) is_alone: bool,
    /// How often it waited again because a connection was lost before it was sent.
    pub(super) tries: u8,
    /// How often it was sent again because a server refused it, or could not be reached.
    pub(in crate::store::redis) hops: u8,
    /// Whether it is a settlement, for which no caller waits.
    pub(super) settles: bool,
    /// The permit of the server's circuit breaker, if it has one.
    pub(in crate::store::redis) permit: Option<Permit>,
}

/// What is sent.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// A part of a call of the script.
    Script(Request),
    /// A command of its own.
    Command(Arc<Cmd>),
}

/// What is replied.
#[derive(Debug)]
pub(in crate::store::redis) enum Part {
    Script(ReplyPart),
    Command(Value),
}

/// What a caller receives.
pub(in crate::store::redis) type Response = Result<Part, Failed>;

/// Why there is no reply.
#[derive(Debug)]
pub(in crate::store::redis) enum Failed {
    /// There will be none. Callers that failed together have errors that count as one failure.
    Error(Error),
    /// There was none in time. It may still come: see [`NoReply`](super::NoReply).
    Late(Error),
    /// The server replied with an error.
    Refused(Box<Refused>),
}

/// A request that the server refused.
#[derive(Debug)]
pub(in crate::store::redis) struct Refused {
    /// The error for the caller.
    pub(in crate::store::redis) error: Error,
    pub(in crate::store::redis) cause: RedisError,
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "one server redirects nothing"))]
    pub(in crate::store::redis) job: Box<Job>,
}

impl Failed {
    /// Returns the error for the caller.
    pub(in crate::store::redis) fn into_error(self) -> Error {
        match self {
            Self::Error(error) | Self::Late(error) => error,
            Self::Refused(refused) if is_definite(&refused.cause) => refused.error.unsent(),
            Self::Refused(refused) => refused.error,
        }
    }
}

/// What the caller of a settlement receives. After an error that is not [unsent](Error::is_unsent) the changes may have
/// been made or not.
pub(in crate::store::redis) type Settled = Result<ReplyPart, Error>;

/// Whoever waits for a settlement, if anybody does: it is sent in any case.
#[derive(Debug)]
pub(in crate::store::redis) struct Settler {
    /// Its place among the settlements on their way, held until it is done.
    place: OwnedSemaphorePermit,
    sender: oneshot::Sender<Settled>,
}

impl Settler {
    /// Returns one, and what receives the result.
    pub(super) fn new(place: OwnedSemaphorePermit) -> (Self, oneshot::Receiver<Settled>) {
        let (sender, receiver) = oneshot::channel();
        (Self { place, sender }, receiver)
    }

    pub(super) fn complete(self, result: Settled) {
        // Its place is free for whoever is woken.
        drop(self.place);
        // Mostly nobody waits.
        drop(self.sender.send(result));
    }
}

/// Completes settlements with one error, and logs it once, as their callers seldom wait for the result.
#[cold]
pub(super) fn fail_all(settlers: Vec<Settler>, error: &Error) {
    static UNCERTAIN: Lines = Lines::ten();
    if settlers.is_empty() {
        return;
    }
    UNCERTAIN.log("", |more| {
        let (error, settlements) = (format!("{error:#}"), settlers.len());
        tracing::warn!(code = "settlement_uncertain", error, settlements, more, "settlements may not have arrived");
    });
    for settler in settlers {
        settler.complete(Err(error.shared()));
    }
}

/// A settlement that was surely not done.
#[derive(Debug)]
pub(in crate::store::redis) struct Unsettled {
    pub(in crate::store::redis) job: Box<Job>,
    pub(in crate::store::redis) settler: Settler,
    /// Why not.
    pub(in crate::store::redis) error: Error,
    /// The server's refusal, if it was sent.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "one server redirects nothing"))]
    pub(in crate::store::redis) cause: Option<RedisError>,
}

impl Job {
    /// Returns a part of a call of the script.
    #[inline]
    pub(in crate::store::redis) fn new(request: Request, timeout: Timeout, slot: u16) -> Box<Self> {
        Box::new(Self::of(Asked::Script(request), timeout, slot))
    }

    /// Returns a command of its own.
    pub(in crate::store::redis) fn command(command: Cmd, timeout: Timeout, slot: u16) -> Box<Self> {
        Box::new(Self { is_alone: true, ..Self::of(Asked::Command(Arc::new(command)), timeout, slot) })
    }

    #[inline]
    fn of(asked: Asked, timeout: Timeout, slot: u16) -> Self {
        let (way, is_alone, tries, hops, settles, permit) = (Way::Plain, false, 0, 0, false, None);
        Self { asked, timeout, slot, way, is_alone, tries, hops, settles, permit }
    }

    /// Returns how many checks it has, by which calls are limited.
    pub(super) fn size(&self) -> usize {
        match &self.asked {
            Asked::Script(request) => request.size(),
            Asked::Command(_) => 1,
        }
    }

    /// Returns what is the same for all requests of one call.
    pub(super) fn part(&self) -> (u16, Way) {
        (self.slot, self.way)
    }

    /// Returns the part of a call; `None` of a command of its own.
    pub(super) fn request(&self) -> Option<&Request> {
        match &self.asked {
            Asked::Script(request) => Some(request),
            Asked::Command(_) => None,
        }
    }
}

/// The error of all that wait when their runtime ends.
#[cold]
pub(in crate::store::redis) fn stopped() -> Error {
    Error::new(Kind::Store, "the call to Redis was stopped: its runtime has ended")
}
