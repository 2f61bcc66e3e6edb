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
