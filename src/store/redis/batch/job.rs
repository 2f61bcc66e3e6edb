//! A request on its way to Redis, and who waits for it.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::timeout::Timeout;
use crate::core::Error;
use crate::store::redis::wire::{Answered, Request, Way};

/// What a caller receives.
pub(in crate::store::redis) type Response = Result<Answered, Unanswered>;

/// What became of a settlement.
pub(in crate::store::redis) type Settled = Result<Answered, Error>;

/// Why there is no answer, and whether one may still come.
#[derive(Debug)]
pub(in crate::store::redis) struct Unanswered {
    pub(in crate::store::redis) error: Error,
    /// The answer to what was sent, if it comes after all.
    pub(in crate::store::redis) late: Option<Late>,
}

/// An answer that nobody waits for any more.
#[derive(Debug)]
pub(in crate::store::redis) enum Late {
    /// Of what was sent.
    Sent(oneshot::Receiver<Answered>),
    /// Of what another runtime does, which was not there to say what became of it.
    Elsewhere(oneshot::Receiver<Response>),
}

impl Late {
    /// The answer, if it comes.
    pub(in crate::store::redis) async fn answer(self) -> Option<Answered> {
        let response = match self {
            Self::Sent(answer) => return answer.await.ok(),
            Self::Elsewhere(response) => response.await.ok()?,
        };
        match response {
            Ok(answered) => Some(answered),
            Err(Unanswered { late: Some(Self::Sent(answer)), .. }) => answer.await.ok(),
            Err(_) => None,
        }
    }
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        Self { error, late: None }
    }
}

/// One request on its way.
#[derive(Debug)]
pub(in crate::store::redis) struct Job {
    pub(super) request: Request,
    pub(super) caller: Caller,
    pub(super) timeout: Timeout,
    /// The slot that its keys are in.
    pub(in crate::store::redis) slot: u16,
    pub(in crate::store::redis) way: Way,
    /// It is not to share a call.
    pub(super) is_alone: bool,
    /// How often it was sent anew.
    pub(in crate::store::redis) tries: u8,
}

/// Who receives the answer.
#[derive(Debug)]
pub(in crate::store::redis) enum Caller {
    /// Somebody who may go away.
    Waits(oneshot::Sender<Response>),
    /// Somebody who was told that there was no answer in time, and gives back what is taken.
    Late(oneshot::Sender<Answered>),
    /// Perhaps nobody: it is a settlement, and is sent in any case. Once it is on its way it has a place
    /// among a bounded number.
    Settles(Option<OwnedSemaphorePermit>, oneshot::Sender<Settled>),
    /// Nobody any more.
    Gone,
}

impl AsRef<Request> for Job {
    fn as_ref(&self) -> &Request {
        &self.request
    }
}

impl Job {
    pub(in crate::store::redis) fn new(request: Request, caller: Caller, timeout: Timeout, slot: u16) -> Self {
        Self { request, caller, timeout, slot, way: Way::Plain, is_alone: false, tries: 0 }
    }

    /// Whether nobody wants it any more.
    pub(super) fn is_idle(&self) -> bool {
        match &self.caller {
            Caller::Waits(answer) => answer.is_closed(),
            Caller::Late(_) | Caller::Gone => true,
            Caller::Settles(..) => false,
        }
    }

    /// Whether somebody may wait for the answer.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.caller, Caller::Waits(_))
    }

    /// Keeps its place among settlements on their way.
    pub(super) fn keep(&mut self, place: OwnedSemaphorePermit) {
        if let Caller::Settles(kept, _) = &mut self.caller {
            *kept = Some(place);
        }
    }

    pub(in crate::store::redis) fn is_settlement(&self) -> bool {
        matches!(self.caller, Caller::Settles(..))
    }

    /// Answers whoever is still there.
    pub(in crate::store::redis) fn answer(self, answer: Result<Answered, Error>) {
        match (self.caller, answer) {
            // A caller who went away needs no answer.
            (Caller::Waits(caller), answer) => drop(caller.send(answer.map_err(Unanswered::from))),
            (Caller::Late(caller), Ok(answered)) => drop(caller.send(answered)),
            (Caller::Settles(_, caller), answer) => drop(caller.send(answer)),
            (Caller::Late(_), Err(_)) | (Caller::Gone, _) => {}
        }
    }

    /// Ends the wait of a caller whose request was sent and not yet answered.
    pub(super) fn time_out(&mut self, error: impl FnOnce() -> Error) {
        if !self.is_awaited() {
            return;
        }
        let (answer, late) = oneshot::channel();
        if let Caller::Waits(caller) = std::mem::replace(&mut self.caller, Caller::Gone)
            && caller.send(Err(Unanswered { error: error(), late: Some(Late::Sent(late)) })).is_ok()
        {
            self.caller = Caller::Late(answer);
        }
    }
}
