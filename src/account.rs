//! What an admitted request owes, until that is settled.

mod debt;
mod learning;
mod owed;
mod parts;
mod wanted;

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::response::Parts;
use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;

use self::learning::Learning;
use self::owed::{Owed, Sent};
use self::wanted::Wanted;
use crate::gate::Gate;
use crate::store::Decided;
use crate::{Decision, Handle, Policy, RealCost};

/// The account of one request. Dropped before there is a response, it settles the request as one
/// whose client went away.
pub(crate) struct Account {
    shared: Arc<Shared>,
    /// The request waits for its turn: what it queues for is unused until then.
    queues: bool,
    settled: bool,
    /// The decision is shown as it was made.
    is_as_decided: bool,
}

/// What the layer and the request's handles have in common.
pub(crate) struct Shared {
    pub(crate) gate: Arc<Gate>,
    /// The layer's.
    decision: Decision,
    owed: Mutex<Owed>,
}

/// Ready once the store has said what became of a request's last changes.
pub(crate) type Settled = oneshot::Receiver<()>;

impl Account {
    pub(crate) fn new(gate: Arc<Gate>, policies: &[usize], decided: Decided) -> Self {
        let Decided { decision, receipt } = decided;
        let owed = Mutex::new(Owed::of_layer(&gate, &decision, receipt, policies));
        Self { shared: Arc::new(Shared { gate, decision, owed }), queues: false, settled: false, is_as_decided: false }
    }

    pub(crate) fn decision(&self) -> &Decision {
        &self.shared.decision
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    /// The handle for whoever serves the request.
    pub(crate) fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.shared))
    }

    /// Whether somebody else may change what is owed.
    fn has_handles(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    pub(crate) fn queues(mut self, queues: bool) -> Self {
        self.queues = queues;
        self
    }

    /// Settles with the response, or `None` for an error of the service. Returns what to wait for, if the
    /// next request of this client may depend on it.
    pub(crate) fn settle(&mut self, response: Option<&Parts>) -> Option<Settled> {
        self.settled = true;
        let mut owed = self.shared.owed();
        if owed.ends_as_decided() {
            self.is_as_decided = true;
            return None;
        }
        let real = response.and_then(|parts| parts.extensions.get::<RealCost>());
        owed.end(&self.shared.gate, &self.shared.decision, |options, _, wanted| match (&options.count, real) {
            (Some(count), _) if !count.counts(response) => 0,
            (_, Some(RealCost(units))) if options.metered => *units,
            _ => wanted,
        });
        let sent = owed.make_changes(&self.shared.gate, self.has_handles());
        let settled = (owed.matters && owed.is_busy() && Runtime::try_current().is_ok()).then(|| owed.when_settled());
        self.shared.follow(owed, sent);
        settled
    }

    /// The decision with what was asked and changed since.
    pub(crate) fn shown(&self) -> Decision {
        if self.is_as_decided {
            return self.shared.decision.clone();
        }
        self.shared.owed().shown(&self.shared.decision)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let mut owed = self.shared.owed();
        owed.end(&self.shared.gate, &self.shared.decision, |options, outcome, wanted| {
            let unused = self.queues && !outcome.delay().is_zero();
            if unused || options.refund_dropped { 0 } else { wanted }
        });
        let sent = owed.make_changes(&self.shared.gate, self.has_handles());
        self.shared.follow(owed, sent);
    }
}

impl Shared {
    fn owed(&self) -> MutexGuard<'_, Owed> {
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

    /// Learns what becomes of changes in tasks, which may lead to other changes. Outside of a runtime that has to
    /// wait until something else happens to the account.
    fn follow(self: &Arc<Self>, mut owed: MutexGuard<'_, Owed>, sent: SmallVec<[Sent; 1]>) {
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
