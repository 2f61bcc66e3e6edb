//! Keyed hashes of counters, so that no client can cause collisions.
//!
//! A [`Fingerprint`] is 84 bits that identify policy, key, algorithm and window, in tables that keep no texts, because
//! clients choose them and may make them long. Limit, burst and queue are not part of it: a counter whose limit changes
//! keeps its units. If its window or algorithm changes, it starts with none.
//!
//! The memory store and the deny cache use it. Stores that keep the text use [`CounterHasher`].

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip128::{Hash128, Hasher128, SipHasher13};

use crate::store::Counter;

/// 84 bits of SipHash-1-3 over the key and a hash of policy, algorithm and window. Two of `n` counters collide with a probability of n²
/// / 2^85, and would only count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Fingerprint {
    /// Selects a shard, and a bucket of its table.
    pub(in crate::store) hash: u64,
    pub(in crate::store) tail: u64,
}

/// The highest 20 bits.
pub(in crate::store) const TAIL: u64 = u64::MAX << 44;

pub(in crate::store) struct Fingerprints {
    keys: [u64; 2],
}

impl Fingerprints {
    pub(in crate::store) fn new() -> Self {
        // The standard library keys its hash by the operating system's random numbers, for each state.
        let random = RandomState::new();
        Self { keys: [0, 1].map(|number| random.hash_one(number)) }
    }

    #[inline]
    pub(in crate::store) fn hash(&self, counter: &Counter) -> Fingerprint {
        let ([first, second], key) = (self.keys, counter.key());
        // Unambiguous: clients choose keys, but not policies, and the last word contains the number of its bytes.
        let mut hasher = SipHasher13::new_with_keys(first, second);
        hasher.write_u64(counter.limit().hash);
        let (words, rest) = key.as_bytes().as_chunks();
        for word in words {
            hasher.write_u64(u64::from_le_bytes(*word));
        }
        hasher.write_u64(last_word(key.as_bytes(), rest));
        let Hash128 { h1: hash, h2 } = hasher.finish128();
        Fingerprint { hash, tail: h2 & TAIL }
    }
}

/// Hashes policy and key, for entries that also compare the text. A changed limit does not change the hash.
#[derive(Debug)]
pub(in crate::store) struct CounterHasher {
    /// Random for each hasher, so that clients cannot cause collisions.
    keys: RandomState,
}

impl CounterHasher {
    pub(in crate::store) fn new() -> Self {
        Self { keys: RandomState::new() }
    }

    #[inline]
    pub(in crate::store) fn hash(&self, counter: &Counter) -> u64 {
        self.keys.hash_one((counter.key(), counter.policy().as_str()))
    }
}

/// The last bytes, at most seven, below their number.
#[inline]
fn last_word(key: &[u8], rest: &[u8]) -> u64 {
    let bits = 8 * rest.len();
    // Avoids branches on the rest, which would be mispredicted, because lengths differ from key to key.
    let word = match key.last_chunk() {
        Some(last) => u64::from_le_bytes(*last) >> 8 >> (56 - bits),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    word | (rest.len() as u64) << 56
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::core::{Key, Quota};

    fn counter(policy: &str, value: &str) -> Counter {
        Counter::new(policy.try_into().expect("a valid name"), Key::new("k", value), Quota::per_second(1))
    }

    #[test]
    fn no_two_stores_hash_a_key_alike_so_that_none_can_be_flooded_by_a_list_made_before() {
        let of_stores = || (0..8).map(|_| Fingerprints::new().hash(&counter("p", "v")));
        assert_eq!(of_stores().map(|of| of.hash).collect::<HashSet<_>>().len(), 8);
        assert!(of_stores().map(|of| of.tail).collect::<HashSet<_>>().len() > 1);
        let quick: HashSet<u64> = (0..8).map(|_| CounterHasher::new().hash(&counter("p", "v"))).collect();
        assert_eq!(quick.len(), 8);
    }

    #[test]
    fn texts_that_differ_only_in_where_the_key_ends_and_the_policy_begins_differ() {
        let fingerprints = Fingerprints::new();
        let pairs = (1..=21).flat_map(|policy| (0..=20).map(move |value| (policy, value)));
        let found = pairs.map(|(policy, value)| fingerprints.hash(&counter(&"a".repeat(policy), &"a".repeat(value))));
        assert_eq!(found.map(|of| of.hash).collect::<HashSet<_>>().len(), 21 * 21);
    }
}
