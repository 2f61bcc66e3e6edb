//! The account as the layer and the handles of one request share it.
//!
//! Most requests have nothing to settle, and handlers that do not ask for their limits: of these the account is the
//! decision alone. What may change is [`Unsettled`], which is made with the account, or when a handler needs it first.
//!
//! Changes are made under a lock that is never held while the store is awaited: a change is sent, and a task of its own
//! waits for the reply, which may lead to the next change. The account lives as long as the layer,
//! a handle or such a task holds it.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;

use super::StoreReplied;
use super::debts::{Debts, Sent};
use super::metered::Meter;
use super::unsettled::Unsettled;
use super::wanted::Wanted;
use crate::core::error::Kind;
use crate::core::{Decision, Error};
use crate::http::gate::Gate;
use crate::http::policy::{Direction, Policy};
use crate::store::{Applied, Change, Decided, SlotGuard};

/// The account of a request, for the layer and the handles.
pub(crate) struct Shared {
    pub(crate) gate: Arc<Gate>,
    /// The layer's decision, as it was made.
    decision: Decision,
    unsettled: OnceLock<Box<Unsettled>>,
    /// Whether there is a response, or will be none. It is locked while [`Unsettled`] is made later than the account.
    is_ended: Mutex<bool>,
    /// Whether a layer inside admitted the request, too.
    has_inner: AtomicBool,
    /// Whether a clone of the layer inside did not count what this one had counted.
    has_let_in: AtomicBool,
}

impl Shared {
    /// Creates the account of a request with nothing to settle, so far.
    #[inline]
    pub(super) fn new(gate: Arc<Gate>, decision: Decision) -> Self {
        let (is_ended, has_inner, has_let_in) = Default::default();
        Self { gate, decision, unsettled: OnceLock::new(), is_ended, has_inner, has_let_in }
    }

    /// Creates the account of a request with something that may change.
    pub(super) fn with_unsettled(gate: Arc<Gate>, decision: Decision, unsettled: Unsettled) -> Self {
        Self { unsettled: OnceLock::from(Box::new(unsettled)), ..Self::new(gate, decision) }
    }

    /// Returns the layer's decision, as it was made.
    pub(super) fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns whether a clone of the layer inside is not to count the request again: the first, before the response.
    pub(super) fn lets_in(&self) -> bool {
        !*self.is_ended() && !self.has_let_in.swap(true, Ordering::Relaxed)
    }

    /// Notes that a layer inside admitted the request, too.
    pub(super) fn note_inner(&self) {
        self.has_inner.store(true, Ordering::Relaxed);
    }

    /// Returns whether a layer inside admitted the request, too.
    pub(super) fn has_inner(&self) -> bool {
        self.has_inner.load(Ordering::Relaxed)
    }

    /// Returns whether the handler checked a metered policy of its own.
    pub(super) fn has_metered_check(&self) -> bool {
        self.unsettled.get().is_some_and(|unsettled| unsettled.has_metered_check())
    }

    /// Returns what may change; `None` if nothing does, so far.
    #[inline]
    pub(super) fn unsettled(&self) -> Option<&Unsettled> {
        self.unsettled.get().map(|unsettled| &**unsettled)
    }

    /// Returns what may change, made now if nothing did before.
    fn unsettled_or_new(&self) -> &Unsettled {
        self.unsettled().unwrap_or_else(|| {
            let is_ended = self.is_ended();
            self.unsettled.get_or_init(|| Box::new(Unsettled::of_handler(*is_ended)))
        })
    }

    /// Ends the request, whose handles may remain. Returns what may change; if nothing does, a handle that needs it from
    /// now on makes one of a request that has ended.
    #[inline]
    pub(super) fn end_changes(&self) -> Option<&Unsettled> {
        *self.is_ended() = true;
        self.unsettled()
    }

    /// Ends the request if nothing may change, as [`end_changes`](Self::end_changes), and returns whether it has
    /// ended.
    #[inline]
    pub(super) fn ends_unchanged(self: &Arc<Self>) -> bool {
        if Arc::strong_count(self) > 1 {
            return self.end_changes().is_none();
        }
        // Nobody is left to need it later, and what handles did before they were dropped is seen from here on.
        fence(Ordering::Acquire);
        self.unsettled().is_none()
    }

    fn is_ended(&self) -> MutexGuard<'_, bool> {
        self.is_ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the body of the request takes its bytes from, once; `None` if they are not limited.
    pub(super) fn request_meter(&self) -> Option<Box<Meter>> {
        self.unsettled()?.request_meter(&self.gate)
    }

    /// Returns what the body of the response takes its bytes from; `None` if they are not limited.
    #[inline]
    pub(super) fn response_meter(&self) -> Option<Box<Meter>> {
        self.unsettled()?.bytes.meter(&self.gate, Direction::Response)
    }

    /// Returns the slots of the request, from then on held by the returned guard alone.
    #[inline]
    pub(super) fn pass_slots(&self) -> SlotGuard {
        self.unsettled().map(|unsettled| unsettled.slots.pass()).unwrap_or_default()
    }

    /// Returns a guard of the slots that the request still holds.
    pub(super) fn slots(&self) -> SlotGuard {
        self.unsettled().map(|unsettled| unsettled.slots.guard()).unwrap_or_default()
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
        // A policy of the layer that is metered has a debt from the beginning.
        let Some(unsettled) = self.unsettled() else { return };
        let mut debts = unsettled.debts();
        debts.meter(&self.gate, change);
        let sent = debts.make_changes(&self.gate, true);
        self.follow(debts, sent);
    }

    /// Adds a decision that the handler made, and returns it as clients may see it.
    pub(crate) fn add(&self, policy: &Policy, decided: Decided) -> Decision {
        let (Decided { mut decision, receipt }, unsettled) = (decided, self.unsettled_or_new());
        if policy.options().metered {
            unsettled.note_metered_check();
        }
        unsettled.slots.add(SlotGuard::new(self.gate.limits.store.hold(&receipt)));
        if !policy.is_shown() {
            decision = decision.hidden();
        }
        if decision.is_allowed() {
            unsettled.debts().add(policy, &decision, &receipt);
        }
        decision
    }

    /// Makes the changes that are due at the end of a request; they are the last ones unless they are `followed`.
    ///
    /// Returns what the response has to wait for, if the client's next request may depend on it.
    pub(super) fn end(self: &Arc<Self>, mut debts: MutexGuard<'_, Debts>, followed: bool) -> Option<StoreReplied> {
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
        let Some(unsettled) = self.shared.unsettled() else { return };
        let mut debts = unsettled.debts();
        debts.apply(self.debt, self.change, mem::replace(&mut self.applied, Err(unknown_result())));
        let sent = debts.make_changes(&self.shared.gate, true);
        self.shared.follow(debts, sent);
    }
}

fn unknown_result() -> Error {
    Error::new(Kind::Store, "the result of a settlement is unknown: its runtime has ended, or the store panicked")
}
