//! Settlements: changes to what a decision took, when it is known what the request really costs.
//!
//! A receipt and changes come in; the result of each change goes out. Everything is queued before
//! the function returns, and in the order given, so that a caller may drop the future at once:
//! `settle` is called from `Drop` too. A change is sent at most once: if its result is not known,
//! it is an error.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot::Receiver;

use super::batch::{NoReply, Settled};
use super::engine::{Engine, settled};
use super::wire::{Request, applied_change};
use crate::core::{Error, kept};
use crate::store::{Answer, Applied, Change, Check, Decided, Receipt, Settlement, Settling, Taken};

/// A change that was sent, or none where the receipt shows that there is nothing to change.
enum Sent {
    /// What was changed and how, and where the result is received.
    Change(Box<(Taken, Change)>, Receiver<Settled>),
    /// Nothing was sent; the units keep this stamp.
    Nothing { stamp: u64 },
}

impl Sent {
    /// Waits for the result of the change.
    async fn applied(self) -> Result<Applied, Error> {
        match self {
            Self::Change(made, receiver) => applied_change(&made.0, made.1, settled(receiver).await?),
            Self::Nothing { stamp } => Ok(Applied::new(0, stamp)),
        }
    }
}

impl Engine {
    /// Sends changes in their order, and returns a future of all results. For a receipt of
    /// another store, or without changes, it is ready and empty.
    ///
    /// # Errors
    ///
    /// The first error: of a change that was not sent, or whose result is not known. It keeps no
    /// other change from being sent.
    ///
    /// # Cancellation
    ///
    /// Dropping the future cancels nothing.
    pub(super) fn settle(&self, receipt: &Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() != self.id || changes.is_empty() {
            return Answer::Ready(Ok(Vec::new()));
        }
        let sent: SmallVec<[Sent; 1]> = changes.iter().map(|settlement| self.send_one(settlement, receipt)).collect();
        Answer::pending(async move {
            let mut applied = Vec::with_capacity(sent.len());
            for sent in sent {
                applied.push(sent.applied().await?);
            }
            Ok(applied)
        })
    }

    /// Sends one change, after cached refusals of its counter are dropped: it may have units again.
    fn send_one(&self, settlement: &Settlement, receipt: &Receipt) -> Sent {
        let Some((taken, change)) = settlement.of(receipt) else {
            return Sent::Nothing { stamp: receipt.taken().get(settlement.check).map_or(0, |taken| taken.stamp) };
        };
        if let Some(refusals) = &self.refusals
            && !matches!(change, Change::Strike(_))
        {
            refusals.settled(&taken.counter);
        }
        let request =
            Request::adjustment(&self.prefix, settlement.before(receipt), taken, change, || self.time.now_ms());
        Sent::Change(Box::new((taken.clone(), change)), self.send(request))
    }

    /// Refunds in the background all that a receipt proves to be taken.
    pub(super) fn refund_all(&self, receipt: &Receipt) {
        let all = |check| Settlement::new(check, Change::Refund(u64::MAX));
        let changes: SmallVec<[Settlement; 4]> = (0..receipt.taken().len()).map(all).collect();
        drop(self.settle(receipt, &changes));
    }

    /// Refunds what was taken if the reply comes after its caller's timeout. Returns the
    /// caller's error.
    pub(super) fn refund_late(self: &Arc<Self>, checks: &[Check], no_reply: NoReply) -> Error {
        let NoReply { error, late } = no_reply;
        // That of the caller may end, or run no more, before the reply comes.
        let runtime = || self.runtime_of(checks).or_else(|| Runtime::try_current().ok());
        if let Some((late, runtime)) = late.and_then(|late| Some((late, runtime()?))) {
            let (engine, checks) = (Arc::clone(self), kept(checks));
            // It ends with the connection at the latest, which is not polled for long.
            runtime.spawn(async move {
                let Some(part) = late.reply().await else { return };
                let Ok(Decided { receipt, .. }) = engine.decided(&checks, part) else { return };
                engine.refund_all(&receipt);
            });
        }
        error
    }
}
