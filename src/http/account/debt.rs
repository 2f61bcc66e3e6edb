//! The debt of a request to one counter.
//!
//! It has the units that are owed and those that the store has taken; a settlement sends the difference. Charged units
//! are *doubted* until the store replies, as it may cut a charge. If it never does they stay doubted: neither charged
//! again nor refunded, so that an error never admits a client to more.
//!
//! What the store has taken is kept in parts. A refund has to name when the units were taken: a window may have ended
//! since, a bucket refilled. So each part keeps the stamp that the store returned with it, and refunds go from the last
//! part to the first.

use smallvec::SmallVec;

use crate::core::{Key, Outcome};
use crate::http::policy::{Count, Policy};
use crate::store::{self, ChangeResult, Check, Counter, Mode, Receipt, ReceiptItem, Settlement, StoreId};

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
    pub(super) fn new(place: usize, policy: &Policy, before: &Outcome, store: StoreId, taken: &ReceiptItem) -> Self {
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
    pub(super) fn add(&mut self, taken: &ReceiptItem) {
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
    pub(super) fn apply(&mut self, charged: u64, applied: &[ChangeResult]) {
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

/// How many parts are kept apart; beyond that the two oldest become one.
const MOST: usize = 64;

/// The receipt and the settlements of a change to one debt.
type Change = (Receipt, SmallVec<[Settlement; 1]>);

/// What a store has taken of one debt: the units of the decision, then those charged since, in order.
#[derive(Debug)]
struct Parts {
    store: StoreId,
    /// Never empty; only the first may have no units.
    each: SmallVec<[ReceiptItem; 1]>,
    /// The stamp of the part of which the last refund left some units.
    rest: Option<u64>,
}

impl Parts {
    /// Creates the first part.
    fn new(store: StoreId, taken: &ReceiptItem) -> Self {
        Self { store, each: SmallVec::from_buf([taken.clone()]), rest: None }
    }

    /// Returns whether the parts are of this counter of this store.
    fn are_of(&self, store: StoreId, counter: &Counter) -> bool {
        self.store == store && self.each[0].counter == *counter
    }

    /// Returns the key of the counter, and the units that the decision left for others.
    fn key_and_floor(&self) -> (&Key, u64) {
        (self.each[0].counter.key(), self.each[0].floor)
    }

    /// Returns the units of all parts.
    fn units(&self) -> u64 {
        self.each.iter().map(|part| part.units).sum()
    }

    /// Adds units that were taken after all others.
    ///
    /// Units of one stamp are one part. Where two parts with different stamps become one, it has the older stamp, so
    /// that no more is refunded than of the two.
    fn add(&mut self, units: u64, stamp: u64) {
        let last = self.last();
        if last.stamp == stamp || units == 0 {
            last.units += units;
            return;
        }
        let part = last.clone().units(units).stamp(stamp);
        if self.each.len() == MOST {
            let second = self.each.remove(1);
            self.each[0].units += second.units;
        }
        self.each.push(part);
    }

    /// Returns what charges more units. They are added once the store has taken them.
    fn charge(&mut self, units: u64) -> Change {
        let receipt = Receipt::of_one(self.store, self.last().clone());
        (receipt, SmallVec::from_buf([Settlement::new(0, store::Change::Charge(units))]))
    }

    /// Removes units, those first that were taken last. Returns what refunds them, with a receipt of all parts, as what a
    /// bucket has refilled of one depends on those before it.
    fn refund(&mut self, units: u64) -> Change {
        let receipt = Receipt::new(self.store, self.each.iter().cloned());
        let (mut changes, mut left) = (SmallVec::new(), units);
        self.rest = None;
        for (check, part) in self.each.iter_mut().enumerate().rev() {
            let back = left.min(part.units);
            if back > 0 {
                (part.units, left) = (part.units - back, left - back);
                self.rest = (part.units > 0).then_some(part.stamp);
                changes.push(Settlement::new(check, store::Change::Refund(back)));
            }
        }
        while self.each.len() > 1 && self.last().units == 0 {
            self.each.pop();
        }
        (receipt, changes)
    }

    /// Sets the stamp that the store returned with a refund, if that left some units of a part.
    fn restamp(&mut self, stamp: u64) {
        let rest = self.rest.take();
        if let Some(part) = self.each.iter_mut().rfind(|part| Some(part.stamp) == rest) {
            part.stamp = stamp;
        }
    }

    fn last(&mut self) -> &mut ReceiptItem {
        self.each.last_mut().expect("there is always one part")
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
        Debt::new(
            0,
            &Policy::new("policy", quota).metered(),
            &outcome,
            StoreId::new(),
            &ReceiptItem::new(counter, units, 1),
        )
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
            debt.apply(charged, &[ChangeResult::new(took, 2)]);
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
        debt.apply(charged, &[ChangeResult::new(1, 2)]);
        assert_eq!(debt.owed, u64::MAX);
        debt.refund(u64::MAX);
        assert_eq!((debt.owed, debt.parts.units()), (0, 2));
    }

    fn parts(units: u64) -> Parts {
        let counter =
            Counter::new("policy".try_into().expect("a valid name"), Key::new("global", ""), Quota::per_hour(100));
        Parts::new(StoreId::new(), &ReceiptItem::new(counter, units, 1))
    }

    #[test]
    fn a_stream_that_charges_every_chunk_keeps_few_parts_and_all_units() {
        let mut parts = parts(1);
        for stamp in 1..10_000 {
            parts.add(2, stamp);
            parts.add(1, stamp);
        }
        assert_eq!((parts.units(), parts.each.len()), (1 + 3 * 9_999, MOST));
    }

    #[test]
    fn what_a_refund_left_of_a_part_has_the_stamp_that_the_store_returned() {
        let mut parts = parts(2);
        parts.add(3, 2);
        let _ = parts.refund(1);
        // A check of the handler took more meanwhile.
        parts.add(4, 3);
        parts.restamp(9);
        assert_eq!(parts.each.iter().map(|part| part.stamp).collect::<Vec<_>>(), [1, 9, 3]);
        let _ = parts.refund(4);
        parts.restamp(10);
        assert_eq!(parts.each.iter().map(|part| part.stamp).collect::<Vec<_>>(), [1, 9]);
    }

    #[test]
    fn the_last_units_are_refunded_first_and_no_more_than_there_are() {
        let mut parts = parts(2);
        parts.add(3, 2);
        parts.add(4, 3);
        let (receipt, changes) = parts.refund(5);
        let made: Vec<_> = changes.iter().map(|made| (made.check, made.change)).collect();
        assert_eq!(made, [(2, store::Change::Refund(4)), (1, store::Change::Refund(1))]);
        assert_eq!(receipt.taken().iter().map(|part| part.units).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!((parts.units(), parts.each.len()), (4, 2));
        let (_, changes) = parts.refund(100);
        assert_eq!((changes.len(), parts.units(), parts.each.len()), (2, 0, 1));
        parts.add(5, 9);
        assert_eq!((parts.units(), parts.each.len()), (5, 2));
    }
}
