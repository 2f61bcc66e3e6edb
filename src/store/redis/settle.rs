//! Settlements: changes to what a decision took, when it is known what the request really costs.
//!
//! A receipt and changes come in; the result of each change goes out. Everything is queued before
//! the function returns, and in the order given, so that a caller may drop the future at once:
//! `settle` is called from `Drop` too. A change that surely was not done is sent again; if its result
//! is not known, it is an error.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;

use super::engine::Engine;
use super::pipeline::{Job, NoReply, Part, Timeout, stopped};
use super::wire::{Request, applied_change};
use crate::core::{Error, kept};
use crate::store::around::settle_each;
use crate::store::bans::changed;
use crate::store::{Answer, Change, Check, Decided, Receipt, Settlement, Settling};

impl Engine {
    /// Sends changes in their order, and returns a future of all results. For a receipt of
    /// another store it is ready and empty.
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
        if receipt.store() != self.id {
            return Answer::Ready(Ok(Vec::new()));
        }
        settle_each(receipt, changes, |before, taken, change| {
            let (taken, change) = changed(taken, change);
            let request = Request::adjustment(&self.prefix, before, &taken, change, || self.time.now_ms());
            let slot = request.key().map_or(0, |key| self.servers.slot_of(key));
            let sent = self.servers.settle(Job::new(request, Timeout::of_settlement(self.budget), slot));
            let taken = taken.into_owned();
            Answer::pending(async move {
                let part = sent?.await.unwrap_or_else(|_| Err(stopped()))?;
                Ok(vec![applied_change(&taken, change, part)?])
            })
        })
    }

    /// Refunds in the background all that a receipt proves to be taken. Cached refusals of its counters are dropped:
    /// they may have units again.
    pub(super) fn refund_all(&self, receipt: &Receipt) {
        receipt.taken().iter().for_each(|taken| self.refusals.changed(&taken.counter));
        let all = |check| Settlement::new(check, Change::Refund(u64::MAX));
        let changes: SmallVec<[Settlement; 4]> = (0..receipt.taken().len()).map(all).collect();
        drop(self.settle(receipt, &changes));
    }

    /// Refunds what was taken if the reply comes after its caller's timeout. Returns the
    /// caller's error.
    pub(super) fn refund_late(self: &Arc<Self>, checks: &[Check], no_reply: NoReply) -> Error {
        let NoReply { error, late } = no_reply;
        // That of the caller may end before the reply comes, where the store has one of its own.
        let runtime = || self.servers.settings().runtime.clone().or_else(|| Runtime::try_current().ok());
        if let Some((late, runtime)) = late.and_then(|late| Some((late, runtime()?))) {
            let (engine, checks) = (Arc::clone(self), kept(checks));
            // It ends with the connection at the latest, which is not read for long.
            runtime.spawn(async move {
                let Ok(Part::Script(part)) = late.reply().await else { return };
                let Ok(Decided { receipt, .. }) = engine.decided(&checks, part) else { return };
                engine.refund_all(&receipt);
            });
        }
        error
    }
}
