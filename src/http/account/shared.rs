//! The account as the layer and the handles of one request share it.
//!
//! Changes are made under a lock that is never held while the store is awaited: a change is sent, and a task of its own
//! waits for the reply, which may lead to the next change. The account lives as long as the layer,
//! a handle or such a task holds it.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::response::Parts;
use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;

use super::Settled;
use super::debts::{Debts, Sent};
use super::metered::{ByteChecks, Meter};
use super::slots::RequestSlots;
use super::wanted::Wanted;
use crate::core::error::Kind;
use crate::core::{Decision, Error};
use crate::http::gate::Gate;
use crate::http::policy::{Direction, Policy};
use crate::lookup::Warning;
use crate::store::{Applied, Change, Decided, SlotGuard};

/// Limits how often `unlimited_bytes` is logged.
static UNLIMITED: Warning = Warning::new();

/// The account of a request, for the layer and the handles.
pub(crate) struct Shared {
    pub(crate) gate: Arc<Gate>,
    /// The layer's decision, as it was made.
    pub(super) decision: Decision,
    debts: Mutex<Debts>,
    /// What bodies are limited by.
    pub(super) bytes: ByteChecks,
    /// Whether the body of the request is limited.
    limits_request: AtomicBool,
    pub(super) slots: RequestSlots,
    /// Whether a layer inside admitted the request, too.
    is_around: AtomicBool,
    /// Whether the handler checked a metered policy of its own.
    has_metered_check: AtomicBool,
}

impl Shared {
    pub(super) fn new(gate: Arc<Gate>, decision: Decision, debts: Debts, bytes: ByteChecks, slots: SlotGuard) -> Self {
        let (debts, slots) = (Mutex::new(debts), RequestSlots::new(slots));
        let (limits_request, is_around, has_metered_check) = Default::default();
        Self { gate, decision, debts, bytes, limits_request, slots, is_around, has_metered_check }
    }

    /// Notes that a layer inside admitted the request, too.
    pub(super) fn note_inner(&self) {
        self.is_around.store(true, Ordering::Relaxed);
    }

    /// Returns whether a layer inside admitted the request, too.
    pub(super) fn is_around(&self) -> bool {
        self.is_around.load(Ordering::Relaxed)
    }

    /// Returns whether the handler checked a metered policy of its own.
    pub(super) fn has_metered_check(&self) -> bool {
        self.has_metered_check.load(Ordering::Relaxed)
    }

    /// Locks the debts. A panic elsewhere leaves it usable.
    pub(super) fn debts(&self) -> MutexGuard<'_, Debts> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the body of the request takes its bytes from, once; `None` if they are not limited.
    pub(super) fn request_meter(&self) -> Option<Box<Meter>> {
        let meter = self.bytes.meter(&self.gate, Direction::Request)?;
        (!self.limits_request.swap(true, Ordering::Relaxed)).then_some(meter)
    }

    /// Logs that nobody limits the body of a request whose bytes are limited. A service that fails may not have read
    /// it.
    pub(super) fn warn_of_unlimited(&self, response: Option<&Parts>) {
        let is_served = response.is_some_and(|head| head.status.is_success());
        let is_limited = || self.limits_request.load(Ordering::Relaxed);
        if is_served && self.bytes.has_request(&self.gate) && !is_limited() && UNLIMITED.is_due() {
            tracing::warn!(
                code = "unlimited_bytes",
                "a policy limits the bytes of request bodies, and nobody limited one: put a RequestBodyLayer inside of \
                 its layer, or call Handle::limit_body"
            );
        }
    }

    /// Charges units to every metered policy.
    pub(crate) fn charge(self: &Arc<Self>, units: u64) {
        self.meter(|wanted| wanted.add(units));
    }

    /// Refunds units to every metered policy.
    pub(crate) fn refund(self: &Arc<Self>, units: u64) {
        self.meter(|wanted| wanted.subtract(units));
    }

    fn meter(self: &Arc<Self>, change: impl Fn(&mut Wanted)) {
        let mut debts = self.debts();
        debts.meter(&self.gate, change);
        let sent = debts.make_changes(&self.gate, true);
        self.follow(debts, sent);
    }

    /// Adds a decision that the handler made, and returns it as clients may see it.
    pub(crate) fn add(&self, policy: &Policy, decided: Decided) -> Decision {
        let Decided { mut decision, receipt } = decided;
        if policy.options().metered {
            self.has_metered_check.store(true, Ordering::Relaxed);
        }
        self.slots.add(SlotGuard::new(self.gate.limits.store.hold(&receipt)));
        if !policy.is_shown() {
            decision = decision.hidden();
        }
        if decision.is_allowed() {
            self.debts().add(&self.gate, policy, &decision, receipt);
        }
        decision
    }

    /// Makes the changes that are due at the end of a request; they are the last ones unless they are `followed`.
    ///
    /// Returns what the response has to wait for, if the client's next request may depend on it.
    pub(super) fn end(self: &Arc<Self>, mut debts: MutexGuard<'_, Debts>, followed: bool) -> Option<Settled> {
        let sent = debts.make_changes(&self.gate, followed);
        let waits = debts.matters && debts.is_busy() && Runtime::try_current().is_ok();
        let settled = waits.then(|| debts.when_settled());
        self.follow(debts, sent);
        settled
    }

    /// Waits for the results of changes in tasks, which may make further changes.
    ///
    /// Outside of a runtime the results stay unread until the account changes again.
    pub(super) fn follow(self: &Arc<Self>, mut debts: MutexGuard<'_, Debts>, sent: SmallVec<[Sent; 1]>) {
        if sent.is_empty() && debts.unfollowed.is_empty() {
            return;
        }
        let Ok(runtime) = Runtime::try_current() else { return debts.unfollowed.extend(sent) };
        let unfollowed = mem::take(&mut debts.unfollowed);
        // A runtime that has ended drops the task here, which takes the lock.
        drop(debts);
        for sent in unfollowed.into_iter().chain(sent) {
            runtime.spawn(Following::of(Arc::clone(self), sent));
        }
    }
}

/// The wait for the result of a change. When it is dropped, the account receives that result, or an error if the
/// runtime ended or the store panicked before there was one.
pub(super) struct Following {
    shared: Arc<Shared>,
    debt: usize,
    change: Change,
    applied: Result<Vec<Applied>, Error>,
}

impl Following {
    /// Waits for the store's reply, which may lead to further changes.
    pub(super) fn of(shared: Arc<Shared>, sent: Sent) -> impl Future<Output = ()> + Send {
        let Sent { debt, change, settling } = sent;
        let following = Self { shared, debt, change, applied: Err(unknown_result()) };
        async move { following.finish(settling.wait().await) }
    }

    fn finish(mut self, applied: Result<Vec<Applied>, Error>) {
        self.applied = applied;
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut debts = self.shared.debts();
        debts.apply(self.debt, self.change, mem::replace(&mut self.applied, Err(unknown_result())));
        let sent = debts.make_changes(&self.shared.gate, true);
        self.shared.follow(debts, sent);
    }
}

fn unknown_result() -> Error {
    Error::new(Kind::Store, "the result of a settlement is unknown: its runtime has ended, or the store panicked")
}
