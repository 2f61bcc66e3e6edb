//! What a store has taken of one debt, in parts.
//!
//! A refund has to name when the units were taken: a window may have ended since, a bucket refilled. So each part keeps
//! the stamp that the store returned with it, and refunds go from the last part to the first.

use smallvec::SmallVec;

use crate::store::{Change, Counter, Receipt, Settlement, StoreId, Taken};

/// How many parts are kept apart; beyond that the two oldest become one.
const MOST: usize = 64;

/// What a store has taken of one debt: the units of the decision, then those charged since, in order.
#[derive(Debug)]
pub(super) struct Parts {
    /// Never empty; only the first may have no units.
    each: SmallVec<[Taken; 1]>,
    /// Whether the last refund left some units of the last part.
    is_rest: bool,
}

impl Parts {
    /// Creates the first part.
    pub(super) fn new(taken: &Taken) -> Self {
        Self { each: SmallVec::from_buf([taken.clone()]), is_rest: false }
    }

    /// Returns the counter that all parts are of.
    pub(super) fn counter(&self) -> &Counter {
        &self.each[0].counter
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
        if units == 0 {
            return;
        }
        let last = self.last();
        if last.stamp == stamp {
            last.units += units;
            return;
        }
        let part = last.clone().units(units).stamp(stamp);
        if last.units == 0 && self.each.len() == 1 {
            self.each[0] = part;
            return;
        }
        if self.each.len() == MOST {
            let second = self.each.remove(1);
            self.each[0].units += second.units;
        }
        self.each.push(part);
    }

    /// Returns the receipt to charge more units with.
    pub(super) fn receipt_of_last(&mut self, store: StoreId) -> Receipt {
        Receipt::new(store, [self.last().clone()])
    }

    /// Removes units, those first that were taken last. Returns the changes to send, and a receipt of all parts, as
    /// what a bucket has refilled of one depends on those before it.
    pub(super) fn refund(&mut self, store: StoreId, units: u64) -> (Receipt, SmallVec<[Settlement; 1]>) {
        let receipt = Receipt::new(store, self.each.iter().cloned());
        let (mut changes, mut left) = (SmallVec::new(), units);
        self.is_rest = false;
        for (check, part) in self.each.iter_mut().enumerate().rev() {
            let back = left.min(part.units);
            if back > 0 {
                (part.units, left) = (part.units - back, left - back);
                self.is_rest = part.units > 0;
                changes.push(Settlement::new(check, Change::Refund(back)));
            }
        }
        while self.each.len() > 1 && self.last().units == 0 {
            self.each.pop();
        }
        (receipt, changes)
    }

    /// Sets the stamp that the store returned with a refund, if that left some units of its part.
    pub(super) fn restamp(&mut self, stamp: u64) {
        if self.is_rest {
            self.last().stamp = stamp;
        }
    }

    fn last(&mut self) -> &mut Taken {
        self.each.last_mut().expect("there is always one part")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Key, Quota};

    fn parts(units: u64) -> Parts {
        let counter =
            Counter::new("policy".try_into().expect("a valid name"), Key::new("global", ""), Quota::per_hour(100));
        Parts::new(&Taken::new(counter, units, 1))
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
    fn the_last_units_are_refunded_first_and_no_more_than_there_are() {
        let mut parts = parts(2);
        parts.add(3, 2);
        parts.add(4, 3);
        let (receipt, changes) = parts.refund(StoreId::new(), 5);
        let made: Vec<_> = changes.iter().map(|made| (made.check, made.change)).collect();
        assert_eq!(made, [(2, Change::Refund(4)), (1, Change::Refund(1))]);
        assert_eq!(receipt.taken().iter().map(|part| part.units).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!((parts.units(), parts.each.len()), (4, 2));
        let (_, changes) = parts.refund(StoreId::new(), 100);
        assert_eq!((changes.len(), parts.units(), parts.each.len()), (2, 0, 1));
        parts.add(5, 9);
        assert_eq!((parts.units(), parts.each[0].stamp), (5, 9), "a part without units is replaced");
    }
}
