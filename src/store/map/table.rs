//! Entries of one shard.
//!
//! The table decides when a sweep is due. Its store decides which entries are dropped.
//!
//! Invariant: there are at most `capacity` entries, in a table no larger than they need, however often they are added
//! and removed. If the capacity is within 1/32 of the table's buckets, it may double once. Only `insert` and
//! `find_or_insert` allocate.

use std::mem;

use hashbrown::HashTable;

const SMALL: usize = 64;

/// A table without free buckets is rebuilt if at least this share of them is only marked as removed.
const MARKED_SHARE: usize = 32;

pub(in crate::store) trait MapEntry {
    fn hash(&self) -> u64;
}

#[derive(Debug)]
pub(in crate::store) struct Table<E> {
    entries: HashTable<E>,
    capacity: usize,
    sweep_at: usize,
}

impl<E: MapEntry> Table<E> {
    pub(in crate::store) fn new(capacity: usize) -> Self {
        Self { entries: HashTable::new(), capacity, sweep_at: SMALL.min(capacity) }
    }

    pub(in crate::store) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(in crate::store) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(in crate::store) fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    /// Returns `true` if a [sweep](Self::sweep) is due before the next insert, as always when full.
    #[inline]
    pub(in crate::store) fn is_due(&self) -> bool {
        self.entries.len() >= self.sweep_at
    }

    /// The next sweep is due when the number of remaining entries has doubled.
    pub(in crate::store) fn sweep(&mut self, mut stays: impl FnMut(&E) -> bool) {
        self.entries.retain(|entry| stays(entry));
        self.sweep_at = (2 * self.entries.len()).max(SMALL).min(self.capacity);
    }

    #[inline]
    pub(in crate::store) fn find(&self, hash: u64, is: impl FnMut(&E) -> bool) -> Option<&E> {
        self.entries.find(hash, is)
    }

    #[inline]
    pub(in crate::store) fn find_mut(&mut self, hash: u64, is: impl FnMut(&E) -> bool) -> Option<&mut E> {
        self.entries.find_mut(hash, is)
    }

    #[inline]
    pub(in crate::store) fn find_or_insert(
        &mut self,
        hash: u64,
        is: impl FnMut(&E) -> bool,
        make: impl FnOnce() -> Option<E>,
        stays: impl FnMut(&E) -> bool,
    ) -> Option<&mut E> {
        if let Some(found) = self.entries.find_bucket_index(hash, is) {
            return self.entries.get_bucket_mut(found);
        }
        let entry = make()?;
        if self.is_due() {
            self.sweep(stays);
        }
        if self.is_full() { None } else { Some(self.insert(entry)) }
    }

    /// The entry must be new, and the table not full.
    pub(in crate::store) fn insert(&mut self, entry: E) -> &mut E {
        debug_assert!(self.entries.len() < self.capacity.max(1), "there is no room");
        if self.entries.len() == self.entries.capacity() {
            clean(&mut self.entries);
        }
        self.entries.insert_unique(entry.hash(), entry, E::hash).into_mut()
    }

    pub(in crate::store) fn remove(&mut self, hash: u64, is: impl FnMut(&E) -> bool) -> Option<E> {
        self.entries.find_entry(hash, is).ok().map(|found| found.remove().0)
    }

    /// Does not change when the next sweep is due.
    pub(in crate::store) fn retain(&mut self, keep: impl FnMut(&mut E) -> bool) {
        self.entries.retain(keep);
    }

    pub(in crate::store) fn iter(&self) -> impl Iterator<Item = &E> {
        self.entries.iter()
    }

    /// The entries' hashes must not change.
    pub(in crate::store) fn iter_mut(&mut self) -> impl Iterator<Item = &mut E> {
        self.entries.iter_mut()
    }
}

/// Rebuilds a table whose buckets are full of marks of removed entries, because it would double otherwise.
#[cold]
fn clean<E: MapEntry>(entries: &mut HashTable<E>) {
    // One of eight buckets stays free. Below half, a table cleans itself when it would grow.
    let places = entries.num_buckets() / 8 * 7;
    let len = entries.len();
    if len >= places / 2 && len + places / MARKED_SHARE < places {
        let marked = mem::replace(entries, HashTable::with_capacity(places));
        for entry in marked {
            entries.insert_unique(entry.hash(), entry, E::hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl MapEntry for u64 {
        fn hash(&self) -> u64 {
            self.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }
    }

    fn insert(table: &mut Table<u64>, number: u64) {
        assert_eq!(*table.insert(number), number);
    }

    #[test]
    fn a_table_is_due_when_it_has_doubled_and_when_it_is_full() {
        let mut table = Table::new(200);
        let mut due = Vec::new();
        for number in 0..200 {
            if table.is_due() {
                due.push(table.len());
                table.sweep(|_| true);
            }
            insert(&mut table, number);
        }
        assert_eq!(due, [64, 128]);
        assert!(table.is_due() && table.is_full());
        table.sweep(|number| number % 10 == 0);
        assert_eq!((table.len(), table.is_due()), (20, false));
        assert!(table.find(30_u64.hash(), |number| *number == 30).is_some());
    }

    #[test]
    fn what_was_taken_out_is_found_no_more() {
        let mut table = Table::new(100);
        (0..10).for_each(|number| insert(&mut table, number));
        assert_eq!(table.remove(7_u64.hash(), |number| *number == 7), Some(7));
        assert_eq!(table.find_mut(7_u64.hash(), |number| *number == 7), None);
    }

    #[test]
    fn a_full_table_takes_no_more_places_however_often_its_entries_come_and_go() {
        for (capacity, most) in [(1_000, 2_048), (1_562, 2_048), (1_700, 2_048), (1_750, 4_096), (1_792, 4_096)] {
            let mut table = Table::new(capacity);
            let mut next = 0;
            for round in 0..200 {
                while !table.is_full() {
                    insert(&mut table, next);
                    next += 1;
                }
                assert!(table.entries.num_buckets() <= most, "{capacity} entries, round {round}");
                table.sweep(|number| !number.is_multiple_of(7 + round % 11));
            }
        }
    }
}
