//! Settlements: each is sent at once, and its answer may be waited for.

use smallvec::SmallVec;
use tokio::sync::oneshot::Receiver;

use super::RedisStore;
use super::batch::Settled;
use super::engine::settled;
use super::wire::{Request, verdict};
use crate::Error;
use crate::store::{Answer, Applied, Change, Receipt, Settlement, Settling, Taken};

/// A change on its way, or why there is none.
enum Sent {
    Change(Box<(Taken, Change)>, Receiver<Settled>),
    Nothing { stamp: u64 },
}

impl Sent {
    async fn applied(self) -> Result<Applied, Error> {
        match self {
            Self::Change(made, answered) => verdict::changed(&made.0, made.1, settled(answered).await?),
            Self::Nothing { stamp } => Ok(Applied::new(0, stamp)),
        }
    }
}

impl RedisStore {
    /// Sends changes in their order, and waits for what becomes of all.
    pub(super) fn send_all(&self, receipt: &Receipt, changes: &[Settlement]) -> Settling {
        let sent: SmallVec<[Sent; 1]> = changes.iter().map(|settlement| self.send(settlement, receipt)).collect();
        Answer::pending(async move {
            let mut applied = Vec::with_capacity(sent.len());
            for sent in sent {
                applied.push(sent.applied().await?);
            }
            Ok(applied)
        })
    }

    fn send(&self, settlement: &Settlement, receipt: &Receipt) -> Sent {
        let Some((taken, change)) = settlement.of(receipt) else {
            return Sent::Nothing { stamp: receipt.taken().get(settlement.check).map_or(0, |taken| taken.stamp) };
        };
        if let Some(refusals) = &self.refusals {
            refusals.settled(&taken.counter);
        }
        let request = Request::adjustment(&self.inner.prefix, settlement.before(receipt), taken, change);
        Sent::Change(Box::new((taken.clone(), change)), self.inner.send(request))
    }
}
