//! What a store has taken of one debt, in parts.
//!
//! A refund has to name when the units were taken: a window may have ended since, a bucket refilled. So each part keeps
//! the stamp that the store returned with it, and refunds go from the last part to the first.

use smallvec::SmallVec;

use crate::core::Key;
use crate::store::{self, Counter, Receipt, Settlement, StoreId, Taken};

/// How many parts are kept apart; beyond that the two oldest become one.
const MOST: usize = 64;

/// The receipt and the settlements of a change to one debt.
pub(super) type Change = (Receipt, SmallVec<[Settlement; 1]>);

/// What a store has taken of one debt: the units of the decision, then those charged since, in order.
#[derive(Debug)]
pub(super) struct Parts {
    store: StoreId,
    /// Never empty; only the first may have no units.
    each: SmallVec<[Taken; 1]>,
    /// The stamp of the part of which the last refund left some units.
    rest: Option<u64>,
}

impl Parts {
    /// Creates the first part.
    pub(super) fn new(store: StoreId, taken: &Taken) -> Self {
        Self { store, each: SmallVec::from_buf([taken.clone()]), rest: None }
    }

    /// Returns whether the parts are of this counter of this store.
    pub(super) fn are_of(&self, store: StoreId, counter: &Counter) -> bool {
        self.store == store && self.each[0].counter == *counter
    }

    /// Returns the key of the counter, and the units that the decision left for others.
    pub(super) fn key_and_floor(&self) -> (&Key, u64) {
        (self.each[0].counter.key(), self.each[0].floor)
    }

    /// Returns the units of all parts.
    pub(super) fn units(&self) -> u64 {
        self.each.iter().map(|part| part.units).sum()
    }

    /// Adds units that were taken after all others.
    ///
    /// Units of one stamp are one part. Where two parts with different stamps become one, it has the older stamp, so
    /// that no more is refunded than of the two.
    pub(super) fn add(&mut self, units: u64, stamp: u64) {
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
    pub(super) fn charge(&mut self, units: u64) -> Change {
        let receipt = Receipt::of_one(self.store, self.last().clone());
        (receipt, SmallVec::from_buf([Settlement::new(0, store::Change::Charge(units))]))
    }

    /// Removes units, those first that were taken last. Returns what refunds them, with a receipt of all parts, as what a
    /// bucket has refilled of one depends on those before it.
    pub(super) fn refund(&mut self, units: u64) -> Change {
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
    pub(super) fn restamp(&mut self, stamp: u64) {
        let rest = self.rest.take();
        if let Some(part) = self.each.iter_mut().rfind(|part| Some(part.stamp) == rest) {
            part.stamp = stamp;
        }
    }

    fn last(&mut self) -> &mut Taken {
        self.each.last_mut().expect("there is always one part")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Quota;

    fn parts(units: u64) -> Parts {
        let counter =
            Counter::new("policy".try_into().expect("a valid name"), Key::new("global", ""), Quota::per_hour(100));
        Parts::new(StoreId::new(), &Taken::new(counter, units, 1))
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
