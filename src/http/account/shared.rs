//! What a layer and the handles of a request have in common.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;

use super::Settled;
use super::owed::{Owed, Sent};
use super::wanted::Wanted;
use crate::core::error::Kind;
use crate::http::gate::Gate;
use crate::store::{Applied, Change, Decided};
use crate::{Decision, Error, Policy};

/// What the layer and the request's handles have in common.
pub(crate) struct Shared {
    pub(crate) gate: Arc<Gate>,
    /// The layer's.
    pub(super) decision: Decision,
    owed: Mutex<Owed>,
}

impl Shared {
    pub(super) fn new(gate: Arc<Gate>, decision: Decision, owed: Owed) -> Self {
        Self { gate, decision, owed: Mutex::new(owed) }
    }

    pub(super) fn owed(&self) -> MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges units to every metered policy.
    pub(crate) fn charge(self: &Arc<Self>, units: u64) {
        self.meter(|wanted| wanted.add(units));
    }

    /// Gives units of every metered policy back.
    pub(crate) fn refund(self: &Arc<Self>, units: u64) {
        self.meter(|wanted| wanted.subtract(units));
    }

    fn meter(self: &Arc<Self>, change: impl Fn(&mut Wanted)) {
        let mut owed = self.owed();
        owed.meter(&self.gate, change);
        let sent = owed.make_changes(&self.gate, true);
        self.follow(owed, sent);
    }

    /// Notes a decision the handler asked for.
    pub(crate) fn add(&self, policy: &Policy, decided: Decided) -> Decision {
        let Decided { mut decision, receipt } = decided;
        if !policy.is_shown() {
            decision = decision.hidden();
        }
        if decision.is_allowed() {
            self.owed().add(&self.gate, policy, &decision, receipt);
        }
        decision
    }

    /// Makes a request's last changes, unless they are followed by others. Returns what to wait for, if the next
    /// request of this client may depend on it.
    pub(super) fn end(self: &Arc<Self>, mut owed: MutexGuard<'_, Owed>, followed: bool) -> Option<Settled> {
        let sent = owed.make_changes(&self.gate, followed);
        let waits = owed.matters && owed.is_busy() && Runtime::try_current().is_ok();
        let settled = waits.then(|| owed.when_settled());
        self.follow(owed, sent);
        settled
    }

    /// Learns what becomes of changes in tasks, which may lead to other changes. Outside of a runtime that has to
    /// wait until something else happens to the account.
    pub(super) fn follow(self: &Arc<Self>, mut owed: MutexGuard<'_, Owed>, sent: SmallVec<[Sent; 1]>) {
        if sent.is_empty() && owed.unheard.is_empty() {
            return;
        }
        let Ok(runtime) = Runtime::try_current() else { return owed.unheard.extend(sent) };
        let unheard = mem::take(&mut owed.unheard);
        // A runtime that ends drops what it is given, and that is learnt at once.
        drop(owed);
        for sent in unheard.into_iter().chain(sent) {
            runtime.spawn(Learning::of(Arc::clone(self), sent));
        }
    }
}

/// Tells an account what became of a change when it is dropped: that nobody knows, if its runtime ends or the
/// store panics before there is an answer.
pub(super) struct Learning {
    shared: Arc<Shared>,
    debt: usize,
    change: Change,
    applied: Result<Vec<Applied>, Error>,
}

impl Learning {
    /// Waits for the store's answer, which may lead to other changes.
    pub(super) fn of(shared: Arc<Shared>, sent: Sent) -> impl Future<Output = ()> + Send {
        let Sent { debt, change, settling } = sent;
        let learning = Self { shared, debt, change, applied: Err(not_learnt()) };
        async move { learning.hear(settling.wait().await) }
    }

    fn hear(mut self, applied: Result<Vec<Applied>, Error>) {
        self.applied = applied;
    }
}

impl Drop for Learning {
    fn drop(&mut self) {
        let mut owed = self.shared.owed();
        owed.learn(self.debt, self.change, mem::replace(&mut self.applied, Err(not_learnt())));
        let sent = owed.make_changes(&self.shared.gate, true);
        self.shared.follow(owed, sent);
    }
}

fn not_learnt() -> Error {
    Error::new(Kind::Store, "what became of a settlement is not known: its runtime has ended, or the store panicked")
}
