//! The quick hash of counters.
//!
//! A counter comes in, a hash of 64 bits goes out, which picks a part of a map and a place in its table. It does
//! not identify a counter by itself: the entries it finds are compared besides.

use std::hash::Hash;

use ahash::RandomState;

use crate::store::Counter;

/// Hashes counters by policy and key, for entries that are compared by their text besides.
///
/// The hash has random keys of its own for each store. It does not depend on the quota, so a counter whose limit
/// is changed stays where it is.
#[derive(Debug)]
pub(in crate::store) struct CounterHasher {
    /// Random for each hasher, so that no client can choose counters that collide.
    keys: RandomState,
}

impl CounterHasher {
    /// Hashes like those of no other store.
    pub(in crate::store) fn new() -> Self {
        Self { keys: RandomState::new() }
    }

    /// The hash of a counter.
    #[inline]
    pub(in crate::store) fn of(&self, counter: &Counter) -> u64 {
        self.keys.hash_one((counter.key(), counter.policy().as_str()))
    }

    /// The hash of anything else, such as a counter's hash and something besides.
    #[inline]
    pub(in crate::store) fn of_other(&self, value: impl Hash) -> u64 {
        self.keys.hash_one(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Key, Quota};

    #[test]
    fn no_two_stores_hash_a_key_alike_so_that_none_can_be_flooded_by_a_list_made_before() {
        let counter = Counter::new("p".try_into().expect("a valid name"), Key::new("k", "v"), Quota::per_second(1));
        let hashes: std::collections::HashSet<u64> = (0..8).map(|_| CounterHasher::new().of(&counter)).collect();
        assert_eq!(hashes.len(), 8);
    }
}
