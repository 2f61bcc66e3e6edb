//! Accounts: the debts of an allowed request, until they are settled.
//!
//! A decision takes each policy's cost before the service is called. The final cost may differ: the [`RateLimitHandle`]
//! charges and refunds, or the response has an [`ActualCost`] or does not count. An [`Account`] begins with the
//! decision, ends with the response (or when it is dropped), and makes the store's counters follow.
//!
//! One request has one [`Shared`] state, for the layer and all handles. Handles only change what is owed. One
//! settlement at a time is in flight, and changes accumulate until it ends. Nothing is awaited under a lock. The
//! [`debts`] have an entry for each counter that can still change, with the units that are owed and the units that the
//! store really took. The difference is settled once the response is known, and later when a handle flushes it.
//! docs/accounts.md has the rules for users.
//!
//! Slots are not debts. The account holds them until its response has a body, and the body holds them from then on.
//! Strikes are not debts either, because policies that ban by failures count them with the response.
//!
//! The invariant: a store never refunds more for a request than it took or charged.

mod debts;
mod handle;

use std::borrow::Cow;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Extensions;
use http::response::Parts;
use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Timeout, timeout};

use self::debts::{Debt, Debts, PendingChange};
pub use self::handle::{ActualCost, RateLimitHandle};
use crate::core::error::Kind;
use crate::core::{Decision, Error, in_drop};
use crate::http::gate::LayerState;
use crate::http::policy::{AwaitsRefusals, Count};
use crate::store::{MaybeFuture, SlotGuard, StoreDecision};

/// Account of one request. Dropped before a response, it settles the request as cancelled.
pub(crate) struct Account {
    shared: Arc<Shared>,
    is_delayed: bool,
    awaits_trailers: bool,
    /// There was a response, and nothing to settle or to release.
    is_closed: bool,
}

/// Resolves once the store has replied to the last changes of a request, or at the end of the layer's timeout.
pub(crate) type InTime = Pin<Box<Timeout<Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>>>>;

impl Account {
    fn new(gate: Arc<LayerState>, policies: &[usize], decided: StoreDecision) -> Self {
        let StoreDecision { decision, receipt } = decided;
        let is_delayed = !decision.delay().is_zero();
        let settles_nothing = gate.settles_nothing && !is_delayed;
        let debts =
            if settles_nothing { Debts::default() } else { Debts::from_decision(&gate, &decision, &receipt, policies) };
        let shared = Arc::new(Shared::new(gate, decision, debts));
        Self { shared, is_delayed, awaits_trailers: false, is_closed: false }
    }

    pub(crate) fn is_delayed(&self) -> bool {
        self.is_delayed
    }

    /// Marks the wait as over: dropping the account no longer refunds the place in the queue.
    pub(crate) fn takes_turn(mut self) -> Self {
        self.is_delayed = false;
        self
    }

    pub(crate) fn decision(&self) -> &Decision {
        &self.shared.decision
    }

    pub(crate) fn gate(&self) -> &LayerState {
        &self.shared.gate
    }

    /// Also inserts a mark if a policy awaits denials by inner layers, because a handle may be taken out.
    #[inline]
    fn enter(&mut self, extensions: &mut Extensions) {
        if self.gate().awaits_refusals {
            extensions.insert(AwaitsRefusals);
        }
        let outer = if self.gate().has_handles {
            extensions.insert(RateLimitHandle::new(Arc::clone(&self.shared), None))
        } else {
            extensions.get::<RateLimitHandle>().cloned()
        };
        let Some(outer) = outer else { return };
        self.shared.is_nested.store(true, Ordering::Relaxed);
        outer.note_inner();
        if self.gate().has_handles {
            extensions.insert(RateLimitHandle::new(Arc::clone(&self.shared), Some(outer)));
        }
    }

    /// Ends the request. Returns `true` if it has nothing to [settle](Self::settle).
    #[inline]
    pub(crate) fn ends_as_decided(&mut self) -> bool {
        self.is_closed = self.shared.debts().end_as_decided();
        self.is_closed
    }

    /// The response has to wait for the result, if there is one.
    pub(crate) fn settle(&mut self, response: Option<&Parts>) -> Option<InTime> {
        let real = response.and_then(|parts| parts.extensions.get::<ActualCost>()).map(|ActualCost(units)| *units);
        self.end(|count| count.counts(response), real)
    }

    fn end(&mut self, counts: impl Fn(&Count) -> Option<bool>, real: Option<u64>) -> Option<InTime> {
        let mut debts = self.shared.debts();
        self.awaits_trailers = debts.end(&self.shared.gate, counts, real);
        self.shared.settle(debts, self.awaits_trailers)
    }

    #[cold]
    pub(crate) fn warn_of_real_cost(&self) {
        // A service that takes other units than requests may hide its handle from inner layers.
        let is_other = self.gate().unit.is_some() || self.shared.is_nested.load(Ordering::Relaxed);
        if !is_other && !self.shared.debts().has_metered_check && !self.gate().policies.is_empty() {
            self.gate().limits.warned.unmetered();
        }
    }

    /// If `true`, and dropped before the trailers, the account stays as it is.
    pub(crate) fn awaits_trailers(&self) -> bool {
        self.awaits_trailers
    }

    pub(crate) fn settle_call(&mut self, has_failed: bool) -> Option<InTime> {
        // Counts that depend on the head alone are settled already.
        self.end(|count| count.counts_call(has_failed).or(Some(true)), None)
    }

    pub(crate) fn pass_slots(&self) -> SlotGuard {
        self.shared.debts().pass_slots()
    }

    pub(crate) fn shown(&self) -> Cow<'_, Decision> {
        self.shared.debts().shown(self.decision())
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.is_closed {
            return;
        }
        drop(self.pass_slots());
        let mut debts = self.shared.debts();
        // There was a response, so nothing was cancelled.
        if mem::replace(&mut debts.is_ended, true) {
            return;
        }
        for debt in &mut debts.each {
            if debt.refund_dropped || self.is_delayed && debt.is_delayed() {
                debt.set(0);
            }
        }
        drop(in_drop(|| self.shared.settle(debts, false)));
    }
}

pub(crate) enum Admitted {
    /// Units may change until its response, or later.
    WithAccount(Account),
    /// Nothing is settled, and there is no handle, so nothing can change any more.
    AsDecided { gate: Arc<LayerState>, decision: Decision },
    /// An outer clone of the layer has counted it.
    Outside,
}

impl Admitted {
    #[inline]
    pub(crate) fn new(gate: Arc<LayerState>, policies: &[usize], decided: StoreDecision) -> Self {
        if gate.has_handles || !gate.settles_nothing || !decided.decision.delay().is_zero() {
            return Self::WithAccount(Account::new(gate, policies, decided));
        }
        Self::AsDecided { gate, decision: decided.decision }
    }

    pub(crate) fn is_delayed(&self) -> bool {
        match self {
            Self::WithAccount(account) => account.is_delayed(),
            Self::AsDecided { .. } | Self::Outside => false,
        }
    }

    pub(crate) fn enter(&mut self, extensions: &mut Extensions) {
        if let Self::WithAccount(account) = self {
            account.enter(extensions);
        }
    }
}

struct Shared {
    gate: Arc<LayerState>,
    decision: Decision,
    debts: Mutex<Debts>,
    /// One permit, for the settlement in flight.
    turn: Semaphore,
    is_nested: AtomicBool,
    has_let_in: AtomicBool,
}

impl Shared {
    fn new(gate: Arc<LayerState>, decision: Decision, debts: Debts) -> Self {
        let (is_nested, has_let_in) = Default::default();
        Self { gate, decision, debts: Mutex::new(debts), turn: Semaphore::new(1), is_nested, has_let_in }
    }

    /// Locks the debts. A panic elsewhere leaves them usable.
    fn debts(&self) -> MutexGuard<'_, Debts> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meter(&self, change: impl Fn(&mut Debt)) -> bool {
        let mut debts = self.debts();
        debts.each.iter_mut().filter(|debt| debt.metered).for_each(change);
        self.gate.is_metered || debts.has_metered_check
    }

    /// `is_open` is `true` if a call settles later. The response has to wait for the result.
    fn settle(self: &Arc<Self>, mut debts: MutexGuard<'_, Debts>, is_open: bool) -> Option<InTime> {
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

    /// Sends later changes at once, or after the settlement in flight, even if the result is not awaited.
    fn flush(self: &Arc<Self>) -> MaybeFuture<Result<(), Error>> {
        let task = SettleTask::new(self, &mut self.debts());
        task.follow()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Self { debts, gate, .. } = self;
        let debts = debts.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !debts.each.is_empty() {
            drop(in_drop(|| debts.send(gate)));
        }
    }
}

/// Settlement in flight, or waiting for the one in flight. Dropped before the reply, its charges stay doubted.
struct SettleTask {
    shared: Arc<Shared>,
    has_turn: bool,
    sent: SmallVec<[PendingChange; 1]>,
    /// Number of the settlement in flight when this one began to wait. Later settlements contain the changes of this
    /// one.
    after: u64,
}

impl SettleTask {
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

    /// Waits in a separate task, because the caller may be dropped.
    fn follow(self) -> MaybeFuture<Result<(), Error>> {
        if self.has_turn && self.sent.is_empty() {
            return MaybeFuture::Ready(Ok(()));
        }
        let Ok(runtime) = Runtime::try_current() else { return MaybeFuture::pending(self.finish()) };
        let finished = runtime.spawn(self.finish());
        MaybeFuture::pending(async { finished.await.unwrap_or_else(|_| Err(unknown_result())) })
    }

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
        // Another settlement may have sent these changes.
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
