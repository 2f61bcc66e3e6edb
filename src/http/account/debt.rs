//! The debt of a request to one counter.
//!
//! It has the units that are owed and those that the store has taken; a settlement sends the difference. Charged units
//! are *doubted* until the store replies, as it may cut a charge. If it never does they stay doubted: neither charged
//! again nor refunded, so that an error never admits a client to more.

use super::parts::{Change, Parts};
use crate::core::Outcome;
use crate::http::policy::{Count, Policy};
use crate::store::{Applied, Check, Counter, Mode, StoreId, Taken};

/// The debt of a request to one counter, in units.
#[derive(Debug)]
pub(super) struct Debt {
    /// The place of its outcome among those that clients see.
    pub(super) place: usize,
    pub(super) metered: bool,
    pub(super) refund_dropped: bool,
    pub(super) count: Option<Count>,
    /// The outcome of the decision.
    before: Outcome,
    /// The units that the store has taken.
    parts: Parts,
    /// Units that decisions took.
    cost: u64,
    /// Units of charges in flight, and of those whose results were lost.
    doubted: u64,
    /// The units that are to be taken, if the store takes the charge in flight in full.
    owed: u64,
    /// The units that are to be taken even if it takes nothing of that charge: what was charged or set since.
    least: u64,
    /// The outcome that the store returned with the latest change, and the units of this debt that it had taken by
    /// then.
    after: Option<(Outcome, u64)>,
}

impl Debt {
    /// Creates the debt of what a decision took.
    pub(super) fn new(place: usize, policy: &Policy, before: &Outcome, store: StoreId, taken: &Taken) -> Self {
        let options = policy.options();
        Self {
            place,
            metered: options.metered,
            refund_dropped: options.refund_dropped,
            count: options.count.clone(),
            before: before.clone(),
            parts: Parts::new(store, taken),
            cost: taken.units,
            doubted: 0,
            owed: taken.units,
            least: 0,
            after: None,
        }
    }

    /// Adds what another decision took from the same counter.
    pub(super) fn add(&mut self, taken: &Taken) {
        self.cost += taken.units;
        self.charge(taken.units);
        self.parts.add(taken.units, taken.stamp);
    }

    /// Returns whether it is to this counter of this store.
    pub(super) fn is_to(&self, store: StoreId, counter: &Counter) -> bool {
        self.parts.are_of(store, counter)
    }

    /// Returns a look at the counter, which takes nothing.
    pub(super) fn look(&self) -> Check {
        let (key, floor) = self.parts.key_and_floor();
        let counter = Counter::of(self.before.name_and_quota().clone(), key.clone());
        Check::new(counter, 0).floor(floor).mode(self.before.mode())
    }

    /// Returns whether the request has a turn to wait for.
    pub(super) fn is_delayed(&self) -> bool {
        !self.before.delay().is_zero()
    }

    /// Owes more units.
    pub(super) fn charge(&mut self, units: u64) {
        self.owed = self.owed.saturating_add(units);
        self.least = self.least.saturating_add(units);
    }

    /// Owes fewer units, down to 0.
    pub(super) fn refund(&mut self, units: u64) {
        self.owed = self.owed.saturating_sub(units);
        self.least = self.least.saturating_sub(units);
    }

    /// Sets the units that are owed, whatever a charge in flight takes.
    pub(super) fn set(&mut self, units: u64) {
        (self.owed, self.least) = (units, units);
    }

    /// Returns what is to be charged or refunded, if anything, with the charged units, 0 for a refund. Refunded units leave
    /// the debt at once. Nothing of the debt may be in flight.
    pub(super) fn due(&mut self) -> Option<(u64, Change)> {
        let taken = self.parts.units();
        let charged = self.owed.saturating_sub(taken.saturating_add(self.doubted));
        if charged > 0 {
            (self.doubted, self.least) = (self.doubted.saturating_add(charged), 0);
            return Some((charged, self.parts.charge(charged)));
        }
        (self.owed < taken).then(|| (0, self.parts.refund(taken - self.owed)))
    }

    /// Applies the result of what was sent. Units that the store did not charge are not owed any more.
    pub(super) fn apply(&mut self, charged: u64, applied: &[Applied]) {
        let last = applied.last();
        if charged > 0 {
            let (units, stamp) = last.map_or((0, 0), |applied| (applied.units.min(charged), applied.stamp));
            self.doubted -= charged;
            self.parts.add(units, stamp);
            self.owed = self.owed.saturating_sub(charged - units).max(self.least);
        } else if let Some(applied) = last {
            self.parts.restamp(applied.stamp);
        }
        if let Some(outcome) = last.and_then(|applied| applied.outcome.clone()) {
            self.after = Some((outcome, self.parts.units()));
        }
    }

    /// Returns whether another request like this one may be decided differently before the last change than after it.
    pub(super) fn matters_soon(&self, is_in_flight: bool) -> bool {
        let (taken, owed) = (self.parts.units(), self.owed);
        let perhaps = taken.saturating_add(self.doubted);
        let may_refuse = self.before.mode() == Mode::Enforce;
        // The least that was left since the decision, or may be left until the last change.
        let after = self.after.as_ref().map_or(u64::MAX, |(after, _)| after.remaining());
        let least = || self.before.remaining().min(after).min(self.shown_with(owed.max(perhaps)).remaining());
        may_refuse && (is_in_flight || owed < taken || owed > perhaps) && least() < self.cost.max(1)
    }

    /// Returns whether the debt is as it was decided, and the store has returned nothing newer.
    pub(super) fn is_as_decided(&self) -> bool {
        self.owed == self.cost && self.after.is_none()
    }

    /// Returns the outcome of the decision as it is after the changes.
    pub(super) fn shown(&self) -> Outcome {
        self.shown_with(self.owed)
    }

    /// Returns the outcome as if these units were owed.
    fn shown_with(&self, units: u64) -> Outcome {
        match &self.after {
            Some((after, taken)) => self.before.after(after).settled(*taken, units),
            None => self.before.settled(self.cost, units),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Key, Quota};

    fn debt(units: u64) -> Debt {
        let (quota, name) = (Quota::per_hour(100), "policy".try_into().expect("a valid name"));
        let counter = Counter::new(name, Key::new("global", ""), quota);
        let outcome = Outcome::allowed(&Check::new(counter.clone(), units), 50);
        Debt::new(0, &Policy::new("policy", quota).metered(), &outcome, StoreId::new(), &Taken::new(counter, units, 1))
    }

    #[test]
    fn charges_and_refunds_during_a_charge_in_flight_count_from_what_it_took() {
        let seed = fastrand::u64(..);
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..10_000 {
            let (mut debt, before, more) = (debt(5), rng.u64(..6), rng.u64(1..20));
            debt.refund(5 - before);
            if let Some((0, _)) = debt.due() {
                debt.apply(0, &[]);
            }
            debt.charge(more);
            let (charged, _) = debt.due().expect("a charge");
            let took = rng.u64(..=charged);
            let mut expected = before + took;
            for _ in 0..rng.usize(..6) {
                let units = rng.u64(..10);
                match rng.u32(..7) {
                    0 => {
                        debt.set(units);
                        expected = units;
                    }
                    1..4 => {
                        debt.charge(units);
                        expected += units;
                    }
                    _ => {
                        debt.refund(units);
                        expected = expected.saturating_sub(units);
                    }
                }
            }
            debt.apply(charged, &[Applied::new(took, 2)]);
            assert_eq!((debt.owed, debt.parts.units(), debt.doubted), (expected, before + took, 0), "seed {seed}");
        }
    }

    #[test]
    fn units_whose_charge_was_lost_are_neither_charged_again_nor_refunded() {
        let mut debt = debt(1);
        debt.charge(50);
        assert_eq!(debt.due().map(|(charged, _)| charged), Some(50));
        debt.charge(9);
        assert_eq!(debt.due().map(|(charged, _)| charged), Some(9), "the rest");
        debt.set(40);
        assert!(debt.due().is_none(), "it may have been charged");
        debt.set(0);
        let (charged, (_, refunds)) = debt.due().expect("a refund");
        assert_eq!((charged, refunds.len(), debt.parts.units()), (0, 1, 0), "of what is known to be taken");
    }

    #[test]
    fn nothing_overflows() {
        let mut debt = debt(1);
        debt.charge(u64::MAX);
        let (charged, _) = debt.due().expect("a charge");
        debt.charge(u64::MAX);
        debt.apply(charged, &[Applied::new(1, 2)]);
        assert_eq!(debt.owed, u64::MAX);
        debt.refund(u64::MAX);
        assert_eq!((debt.owed, debt.parts.units()), (0, 2));
    }
}
