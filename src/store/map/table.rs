//! The entries of one part.
//!
//! Entries come in with their hash and are found by it and a comparison; a sweep drops those that its caller finds to
//! mean nothing any more. The table decides when a sweep is due and how much room it has; what an entry is worth is its
//! store's to decide.
//!
//! Invariant: there are at most `capacity` entries, however often they come and go, in a table no larger than those
//! need; one whose capacity is within 1/32 of its places may grow to twice that once. No method but `insert` and
//! `find_or_insert` allocates.

use std::mem;

use hashbrown::HashTable;

/// At least this many entries are kept before idle ones are looked for.
const SMALL: usize = 64;

/// A table that has no free places left, but for this share of them only because of entries that were removed, is
/// made anew; where it is less, the table is about to need more places anyway.
const MARKED_SHARE: usize = 32;

/// What a table keeps.
pub(in crate::store) trait MapEntry {
    /// The hash that it is found by, which picks its part too.
    fn hash(&self) -> u64;
}

/// A bounded number of entries. The [page](super) of this module documents what is dropped when it is full.
#[derive(Debug)]
pub(in crate::store) struct Table<E> {
    /// The places, allocated as entries come.
    entries: HashTable<E>,
    /// The most entries there may be.
    capacity: usize,
    /// The size at which it is swept next.
    sweep_at: usize,
}

impl<E: MapEntry> Table<E> {
    /// A table of up to `capacity` entries that is swept as it doubles: as many are idle after a while.
    pub(in crate::store) fn new(capacity: usize) -> Self {
        Self { entries: HashTable::new(), capacity, sweep_at: SMALL.min(capacity) }
    }

    /// Returns how many entries there are.
    pub(in crate::store) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the most entries there may be, as it was given.
    pub(in crate::store) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether no more entries fit.
    pub(in crate::store) fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    /// Whether it is to be [swept](Self::sweep) before one more entry is added. It is, if it is full.
    #[inline]
    pub(in crate::store) fn is_due(&self) -> bool {
        self.entries.len() >= self.sweep_at
    }

    /// Drops what does not stay; it is due again when it has twice as many entries as are left.
    pub(in crate::store) fn sweep(&mut self, mut stays: impl FnMut(&E) -> bool) {
        self.entries.retain(|entry| stays(entry));
        self.sweep_at = (2 * self.entries.len()).max(SMALL).min(self.capacity);
    }

    /// Returns the entry of this hash for which `is` holds; `is` is called with those of equal hash bits.
    #[inline]
    pub(in crate::store) fn find(&self, hash: u64, is: impl FnMut(&E) -> bool) -> Option<&E> {
        self.entries.find(hash, is)
    }

    /// As [`find`](Self::find), to change the entry; its hash must stay as it is.
    #[inline]
    pub(in crate::store) fn find_mut(&mut self, hash: u64, is: impl FnMut(&E) -> bool) -> Option<&mut E> {
        self.entries.find_mut(hash, is)
    }

    /// The entry that is found, by one probe; else the one that is made, if one is, and if there is room, after a
    /// sweep if the table is due.
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

    /// Adds an entry that is not there yet, for which there is room. The table is cleaned before it would grow.
    pub(in crate::store) fn insert(&mut self, entry: E) -> &mut E {
        debug_assert!(self.entries.len() < self.capacity.max(1), "there is no room");
        if self.entries.len() == self.entries.capacity() {
            clean(&mut self.entries);
        }
        self.entries.insert_unique(entry.hash(), entry, E::hash).into_mut()
    }

    /// Takes out the entry of this hash for which `is` holds.
    pub(in crate::store) fn remove(&mut self, hash: u64, is: impl FnMut(&E) -> bool) -> Option<E> {
        self.entries.find_entry(hash, is).ok().map(|found| found.remove().0)
    }

    /// Drops what is not to be kept, without a word on when it is swept next.
    pub(in crate::store) fn retain(&mut self, keep: impl FnMut(&mut E) -> bool) {
        self.entries.retain(keep);
    }

    /// Iterates over all entries, in no order.
    pub(in crate::store) fn iter(&self) -> impl Iterator<Item = &E> {
        self.entries.iter()
    }

    /// As [`iter`](Self::iter), to change the entries; their hashes must stay as they are.
    pub(in crate::store) fn iter_mut(&mut self) -> impl Iterator<Item = &mut E> {
        self.entries.iter_mut()
    }
}

/// Makes a table anew that has no free places left because removed entries left marks in theirs: it would
/// grow to twice what its entries need. One that is less than half full cleans itself when it is to grow.
#[cold]
fn clean<E: MapEntry>(entries: &mut HashTable<E>) {
    // One of eight places stays free.
    let places = entries.num_buckets() / 8 * 7;
    let len = entries.len();
    if len >= places / 2 && len + places / MARKED_SHARE < places {
        let marked = mem::replace(entries, HashTable::with_capacity(places));
        for entry in marked {
            entries.insert_unique(entry.hash(), entry, E::hash);
        }
    }
}
