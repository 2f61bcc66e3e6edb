//! What an admitted request took, until that is settled.

mod booking;

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::response::Parts;
use smallvec::SmallVec;

use self::booking::{Booking, Of};
use crate::gate::Gate;
use crate::policy::Options;
use crate::store::{Change, Decided, Receipt, Settlement};
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

impl Account {
    pub(crate) fn new(gate: Arc<Gate>, policies: SmallVec<[usize; 4]>, decided: Decided) -> Self {
        let Decided { decision, receipt } = decided;
        let bookings = Mutex::new(SmallVec::from_buf([Booking::new(Of::Layer(policies), receipt)]));
        Self { shared: Arc::new(Shared { gate, decision, bookings }), queues: false, settled: false }
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

    pub(crate) fn queues(mut self, queues: bool) -> Self {
        self.queues = queues;
        self
    }

    /// Settles with the response, or `None` for an error of the service. Returns the decision with
    /// what was asked and changed since.
    pub(crate) fn settle(&mut self, response: Option<&Parts>) -> Decision {
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
            for check in 0..booking.receipt.taken().len() {
                let (policy, balance) = (booking.policy(&self.gate, check), booking.balance(check));
                let outcome = &booking.decision(self).outcomes()[check];
                if let Some(change) = wanted(policy.options(), outcome, balance) {
                    self.gate.store.settle(booking.part(check), &[Settlement { check: 0, change }]);
                    let changed = match change {
                        Change::Refund(units) => balance.saturating_sub(units),
                        Change::Charge(units) => booking.charged(check, outcome, units),
                    };
                    booking.set_balance(check, changed);
                }
            }
        }
    }

    /// Ends the decisions; what a handle charges or refunds later still finds what they took.
    fn release(self: &Arc<Self>, bookings: &mut [Booking]) {
        let has_handles = Arc::strong_count(self) > 1;
        for booking in bookings {
            let spent = Receipt::empty(booking.receipt.store());
            let receipt = mem::replace(&mut booking.receipt, spent);
            if has_handles {
                booking.receipt = Receipt::new(receipt.store(), receipt.taken().iter().cloned());
            }
            self.gate.store.settle(receipt, &[]);
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
                Some(taken) => outcome.settled(taken.units, booking.balance(check)),
                None => outcome.clone(),
            })
        });
        Decision::new(outcomes, self.decision.source())
    }
}
