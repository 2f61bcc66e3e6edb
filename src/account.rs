//! What an admitted request took, until that is settled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::response::Parts;
use smallvec::SmallVec;

use crate::gate::Gate;
use crate::policy::Options;
use crate::store::{Change, Decided, Receipt, Settlement, Taken};
use crate::{Decision, Handle, Outcome, Policy, RealCost, Store};

/// The account of one request. Dropped before there is a response, it settles the request as one
/// whose client went away.
pub(crate) struct Account {
    shared: Arc<Shared>,
    /// The request waits for its turn: what it queues for is unused until then.
    queues: bool,
    settled: bool,
}

/// What the layer and the request's handles have in common.
pub(crate) struct Shared {
    pub(crate) gate: Arc<Gate>,
    /// The layer's.
    decision: Decision,
    /// What the layer's decision took, then what those took that the handler asked for.
    bookings: Mutex<SmallVec<[Booking; 1]>>,
}

/// What one decision took.
struct Booking {
    of: Of,
    receipt: Receipt,
    /// Units that are taken now, for each check.
    balances: SmallVec<[u64; 2]>,
}

/// Whose decision it is.
enum Of {
    /// The layer's; its policies by their places.
    Layer(SmallVec<[usize; 4]>),
    /// The handler's, over a policy of its own.
    Handler(Box<(Policy, Decision)>),
}

impl Account {
    pub(crate) fn new(gate: Arc<Gate>, policies: SmallVec<[usize; 4]>, decided: Decided) -> Self {
        let Decided { decision, receipt } = decided;
        let bookings = Mutex::new(SmallVec::from_buf([Booking::new(Of::Layer(policies), receipt)]));
        Self { shared: Arc::new(Shared { gate, decision, bookings }), queues: false, settled: false }
    }

    pub(crate) fn decision(&self) -> &Decision {
        &self.shared.decision
    }

    /// The handle for whoever serves the request.
    pub(crate) fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.shared))
    }

    pub(crate) fn queues(mut self, queues: bool) -> Self {
        self.queues = queues;
        self
    }

    /// Settles with the response, or `None` for an error of the service. Returns the decision with
    /// what was asked and changed since.
    pub(crate) fn settle(mut self, response: Option<&Parts>) -> Decision {
        self.settled = true;
        let real = response.and_then(|parts| parts.extensions.get::<RealCost>());
        let mut bookings = self.shared.bookings();
        self.shared.change_each(&mut bookings, |options, _, balance| match (&options.count, real) {
            (Some(count), _) if !count.counts(response) => Some(Change::Refund(balance)),
            (_, Some(RealCost(units))) if options.metered => Some(difference(balance, *units)),
            _ => None,
        });
        let shown = self.shared.shown(&bookings);
        self.shared.release(&mut bookings);
        shown
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let mut bookings = self.shared.bookings();
        self.shared.change_each(&mut bookings, |options, outcome, balance| {
            let unused = self.queues && !outcome.delay().is_zero();
            (unused || options.refund_dropped).then_some(Change::Refund(balance))
        });
        self.shared.release(&mut bookings);
    }
}

/// The change from what is taken to what it should be.
fn difference(balance: u64, units: u64) -> Change {
    if units < balance { Change::Refund(balance - units) } else { Change::Charge(units - balance) }
}

impl Shared {
    fn bookings(&self) -> MutexGuard<'_, SmallVec<[Booking; 1]>> {
        self.bookings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges or refunds every metered policy.
    pub(crate) fn meter(&self, change: Change) {
        self.change_each(&mut self.bookings(), |options, _, _| options.metered.then_some(change));
    }

    /// Books a decision the handler asked for.
    pub(crate) fn book(&self, policy: &Policy, decided: Decided) -> Decision {
        let Decided { mut decision, receipt } = decided;
        if !policy.is_shown() {
            decision = decision.hidden();
        }
        if decision.is_allowed() {
            let of = Of::Handler(Box::new((policy.clone(), decision.clone())));
            self.bookings().push(Booking::new(of, receipt));
        }
        decision
    }

    /// Changes what each check took, at once, as `wanted` says of its options, outcome and balance.
    fn change_each(&self, bookings: &mut [Booking], wanted: impl Fn(&Options, &Outcome, u64) -> Option<Change>) {
        for booking in bookings {
            for check in 0..booking.balances.len() {
                let (policy, balance) = (booking.policy(&self.gate, check), booking.balances[check]);
                let outcome = &booking.decision(self).outcomes()[check];
                if let Some(change) = wanted(policy.options(), outcome, balance) {
                    self.gate.store.settle(booking.part(check), &[Settlement { check: 0, change }]);
                    booking.balances[check] = match change {
                        Change::Refund(units) => balance.saturating_sub(units),
                        Change::Charge(units) => booking.charged(check, outcome, units),
                    };
                }
            }
        }
    }

    /// Ends the decisions; what a handle charges or refunds later still finds what they took.
    fn release(self: &Arc<Self>, bookings: &mut [Booking]) {
        let has_handles = Arc::strong_count(self) > 1;
        for booking in bookings {
            let kept = booking.receipt.taken().iter().filter(|_| has_handles);
            let rest = Receipt::new(booking.receipt.store(), kept.cloned());
            self.gate.store.settle(std::mem::replace(&mut booking.receipt, rest), &[]);
        }
    }

    /// The decision as clients are told it: with what was asked and changed since.
    fn shown(&self, bookings: &[Booking]) -> Decision {
        if bookings.len() == 1 && bookings.iter().all(Booking::is_as_taken) {
            return self.decision.clone();
        }
        let outcomes = bookings.iter().flat_map(|booking| {
            let taken = booking.receipt.taken();
            let outcomes = booking.decision(self).outcomes().iter().enumerate();
            // A store that admits all while it is away takes nothing.
            outcomes.map(|(check, outcome)| match taken.get(check) {
                Some(taken) => outcome.settled(taken.units, booking.balances[check]),
                None => outcome.clone(),
            })
        });
        Decision::new(outcomes, self.decision.source())
    }
}

impl Booking {
    fn new(of: Of, receipt: Receipt) -> Self {
        let balances = receipt.taken().iter().map(|taken| taken.units).collect();
        Self { of, receipt, balances }
    }

    fn decision<'a>(&'a self, shared: &'a Shared) -> &'a Decision {
        match &self.of {
            Of::Layer(_) => &shared.decision,
            Of::Handler(own) => &own.1,
        }
    }

    fn policy<'a>(&'a self, gate: &'a Gate, check: usize) -> &'a Policy {
        match &self.of {
            Of::Layer(places) => &gate.policies[places[check]],
            Of::Handler(own) => &own.0,
        }
    }

    /// A receipt for the units one check has taken now; it holds no slot.
    fn part(&self, check: usize) -> Receipt {
        let taken = Taken { units: self.balances[check], slot: 0, ..self.receipt.taken()[check].clone() };
        Receipt::new(self.receipt.store(), [taken])
    }

    /// What a check has taken after a charge: with what others had then, at most two capacities.
    fn charged(&self, check: usize, outcome: &Outcome, units: u64) -> u64 {
        let balance = self.balances[check];
        let free = outcome.quota().capacity().saturating_add(outcome.remaining());
        let most = free.saturating_add(self.receipt.taken()[check].units);
        balance.saturating_add(units).min(most.max(balance))
    }

    fn is_as_taken(&self) -> bool {
        self.receipt.taken().iter().zip(&self.balances).all(|(taken, balance)| taken.units == *balance)
    }
}
