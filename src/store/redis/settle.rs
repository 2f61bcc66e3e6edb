//! Settlements: each is sent at once, and its answer may be waited for.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot::Receiver;

use super::batch::{Settled, Unanswered};
use super::engine::{Engine, settled};
use super::wire::{Request, applied_change};
use crate::core::{Error, kept};
use crate::store::{Answer, Applied, Change, Check, Decided, Receipt, Settlement, Settling, Taken};

/// A change on its way, or why there is none.
enum Sent {
    Change(Box<(Taken, Change)>, Receiver<Settled>),
    Nothing { stamp: u64 },
}

impl Sent {
    async fn applied(self) -> Result<Applied, Error> {
        match self {
            Self::Change(made, answered) => applied_change(&made.0, made.1, settled(answered).await?),
            Self::Nothing { stamp } => Ok(Applied::new(0, stamp)),
        }
    }
}

impl Engine {
    /// Sends changes in their order, and waits for what becomes of all.
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

    fn send_one(&self, settlement: &Settlement, receipt: &Receipt) -> Sent {
        let Some((taken, change)) = settlement.of(receipt) else {
            return Sent::Nothing { stamp: receipt.taken().get(settlement.check).map_or(0, |taken| taken.stamp) };
        };
        if let Some(refusals) = &self.refusals {
            refusals.settled(&taken.counter);
        }
        let request = Request::adjustment(&self.prefix, settlement.before(receipt), taken, change);
        Sent::Change(Box::new((taken.clone(), change)), self.send(request))
    }

    /// Refunds all that a receipt proves to be taken, in the background.
    pub(super) fn refund_all(&self, receipt: &Receipt) {
        let all = |check| Settlement { check, change: Change::Refund(u64::MAX) };
        let changes: SmallVec<[Settlement; 4]> = (0..receipt.taken().len()).map(all).collect();
        drop(self.settle(receipt, &changes));
    }

    /// Has what was taken given back if an answer comes that nobody waited for. Returns the error.
    pub(super) fn give_back_late(self: &Arc<Self>, checks: &[Check], unanswered: Unanswered) -> Error {
        let Unanswered { error, late } = unanswered;
        // That of the caller may end, or be driven no more, before the answer comes.
        let runtime = || self.runtime_of(checks).or_else(|| Runtime::try_current().ok());
        if let Some((late, runtime)) = late.and_then(|late| Some((late, runtime()?))) {
            let (engine, checks) = (Arc::clone(self), kept(checks));
            // It ends with the connection at the latest, which is not polled for long.
            runtime.spawn(async move {
                let Some(answered) = late.answer().await else { return };
                let Ok(Decided { receipt, .. }) = engine.decided(&checks, answered) else { return };
                engine.refund_all(&receipt);
            });
        }
        error
    }
}
