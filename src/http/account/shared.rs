//! The account as the layer and the handles of one request share it.
//!
//! Handles only change what is owed. It is settled when the response is known, when a handle flushes it, and when the
//! last of them is dropped. One settlement at a time is in flight; while it is, changes accumulate. Nothing is awaited
//! under a lock.

use std::mem;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::InTime;
use super::debt::Debt;
use super::debts::{Debts, PendingChange};
use crate::core::error::Kind;
use crate::core::{Decision, Error, in_drop};
use crate::http::gate::Gate;
use crate::store::MaybeFuture;

/// The account of a request, for the layer and the handles.
pub(super) struct Shared {
    pub(super) gate: Arc<Gate>,
    /// The layer's decision, as it was made.
    pub(super) decision: Decision,
    debts: Mutex<Debts>,
    /// Has one permit, for the settlement in flight.
    turn: Semaphore,
    /// Whether another layer, outside or inside, admitted the request, too.
    pub(super) is_nested: AtomicBool,
    /// Whether a clone of the layer inside did not count what this one had counted.
    pub(super) has_let_in: AtomicBool,
}

impl Shared {
    pub(super) fn new(gate: Arc<Gate>, decision: Decision, debts: Debts) -> Self {
        let (is_nested, has_let_in) = Default::default();
        Self { gate, decision, debts: Mutex::new(debts), turn: Semaphore::new(1), is_nested, has_let_in }
    }

    /// Locks the debts. A panic elsewhere leaves them usable.
    pub(super) fn debts(&self) -> MutexGuard<'_, Debts> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the debts to metered policies. Returns whether the request has such a policy, or its layer.
    pub(super) fn meter(&self, change: impl Fn(&mut Debt)) -> bool {
        let mut debts = self.debts();
        debts.each.iter_mut().filter(|debt| debt.metered).for_each(change);
        self.gate.is_metered || debts.has_metered_check
    }

    /// Settles the end of the request, or of a call if the account `is_open` until then.
    ///
    /// Returns what the response has to wait for, within the layer's timeout, if the client's next request may depend on
    /// it.
    pub(super) fn settle(self: &Arc<Self>, mut debts: MutexGuard<'_, Debts>, is_open: bool) -> Option<InTime> {
        let is_in_flight = self.turn.available_permits() == 0;
        // There are no timers outside of a runtime.
        let waits = debts.each.iter().any(|debt| debt.matters_soon(is_in_flight)) && Runtime::try_current().is_ok();
        let is_read = waits || is_open || Arc::strong_count(self) > 1;
        let task = SettleTask::new(self, &mut debts);
        drop(debts);
        match is_read.then(|| task.follow()) {
            Some(MaybeFuture::Pending(replied)) if waits => {
                Some(Box::pin(timeout(self.gate.limits.store.decision_budget(), replied)))
            }
            _ => None,
        }
    }

    /// Settles what has changed since. It is sent at once, or after the settlement in flight, whether or not the answer
    /// is waited for.
    pub(super) fn flush(self: &Arc<Self>) -> MaybeFuture<Result<(), Error>> {
        let task = SettleTask::new(self, &mut self.debts());
        task.follow()
    }
}

impl Drop for Shared {
    /// Sends what handles have changed since the last settlement.
    fn drop(&mut self) {
        let Self { debts, gate, .. } = self;
        let debts = debts.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !debts.each.is_empty() {
            drop(in_drop(|| debts.send(gate)));
        }
    }
}

/// The settlement of an account that is in flight, or that waits for the one in flight. If it is dropped before the
/// store's reply, its charges stay doubted.
struct SettleTask {
    shared: Arc<Shared>,
    has_turn: bool,
    sent: SmallVec<[PendingChange; 1]>,
    /// The number of the settlement in flight when it began to wait: later ones have its changes.
    after: u64,
}

impl SettleTask {
    /// Sends what is due, unless another settlement is in flight.
    fn new(shared: &Arc<Shared>, debts: &mut Debts) -> Self {
        let mut task = Self { shared: Arc::clone(shared), has_turn: false, sent: SmallVec::new(), after: debts.sent };
        if let Ok(turn) = shared.turn.try_acquire() {
            task.send(turn, debts);
        }
        task
    }

    fn send(&mut self, turn: SemaphorePermit<'_>, debts: &mut Debts) {
        turn.forget();
        self.has_turn = true;
        self.sent = debts.send(&self.shared.gate);
    }

    /// Waits for the store in a task of its own, as the caller may leave.
    fn follow(self) -> MaybeFuture<Result<(), Error>> {
        if self.has_turn && self.sent.is_empty() {
            return MaybeFuture::Ready(Ok(()));
        }
        let Ok(runtime) = Runtime::try_current() else { return MaybeFuture::pending(self.finish()) };
        let finished = runtime.spawn(self.finish());
        MaybeFuture::pending(async { finished.await.unwrap_or_else(|_| Err(unknown_result())) })
    }

    /// Waits for the store's replies, and applies them. Returns the last error.
    async fn finish(mut self) -> Result<(), Error> {
        let (shared, mut finished) = (Arc::clone(&self.shared), Ok(()));
        if !self.has_turn {
            let turn = shared.turn.acquire().await.expect("it is never closed");
            self.send(turn, &mut shared.debts());
        }
        for PendingChange { debt, charged, settling } in mem::take(&mut self.sent) {
            match settling.wait().await {
                Ok(applied) => shared.debts().each[debt].apply(charged, &applied),
                Err(error) => {
                    let mut debts = shared.debts();
                    debts.unknown = debts.sent;
                    finished = Err(error);
                }
            }
        }
        // Another one may have sent its changes.
        let is_unknown = shared.debts().unknown > self.after;
        if finished.is_ok() && is_unknown { Err(unknown_result()) } else { finished }
    }
}

impl Drop for SettleTask {
    fn drop(&mut self) {
        if self.has_turn {
            self.shared.turn.add_permits(1);
        }
    }
}

fn unknown_result() -> Error {
    Error::new(Kind::Store, "the result of a settlement is unknown: its runtime has ended, or the store panicked")
}
