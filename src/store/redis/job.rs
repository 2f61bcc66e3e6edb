//! A request on its way to Redis, and who waits for it.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::reply::Answered;
use super::request::Request;
use crate::Error;

/// One request on its way.
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) caller: Caller,
}

/// Who is to be told the answer.
pub(super) enum Caller {
    /// Somebody who may go away.
    Waits(oneshot::Sender<Result<Answered, Error>>),
    /// Nobody: it is a settlement, one of a bounded number, and is sent in any case.
    None(#[allow(dead_code, reason = "it is given back on drop")] OwnedSemaphorePermit),
}

impl Job {
    /// Whether nobody wants it any more.
    pub(super) fn is_idle(&self) -> bool {
        matches!(&self.caller, Caller::Waits(answer) if answer.is_closed())
    }

    pub(super) fn is_settlement(&self) -> bool {
        matches!(self.caller, Caller::None(_))
    }

    /// Tells the answer to whoever is still there.
    pub(super) fn answer(self, answer: Result<Answered, Error>) {
        if let Caller::Waits(caller) = self.caller {
            // A caller who went away needs no answer.
            let _ = caller.send(answer);
        }
    }
}
