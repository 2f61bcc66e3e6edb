//! Keyed hashes of counters, so that no client can choose counters that collide.
//!
//! Of a [`Fingerprint`] a counter comes in; 84 bits go out that stand for its policy, key, algorithm and window, in
//! tables whose entries do not keep texts that clients choose and may make long. The limit, the burst and the queue are
//! no part of it: a counter whose limit is changed keeps its units, and one whose window or algorithm is changed starts
//! anew.
//!
//! The memory store and the deny cache use it; stores that keep the text use [`CounterHasher`].

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip128::{Hash128, Hasher128, SipHasher13};

use crate::core::Quota;
use crate::store::Counter;

/// What a counter is found by: 84 bits of a hash of its policy, key, algorithm and window.
///
/// The hash is SipHash-1-3, keyed at random for each store, so that no client can choose
/// counters that meet. By chance some two of `n` meet with a probability of n² / 2^85: among a million
/// kept at once it is less than one in 10^13. They would count together; nothing worse follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Fingerprint {
    /// What finds a shard, and a place in its table.
    pub(in crate::store) hash: u64,
    /// The rest, in the bits of [`TAIL`].
    pub(in crate::store) tail: u64,
}

/// The bits of a tail: the highest 20.
pub(in crate::store) const TAIL: u64 = u64::MAX << 44;

/// Takes the fingerprints of one store.
pub(in crate::store) struct Fingerprints {
    /// The keys of `SipHash`, random and the same for the life of the store.
    keys: [u64; 2],
}

impl Fingerprints {
    /// Fingerprints like those of no other store.
    pub(in crate::store) fn new() -> Self {
        // The standard library's hash is keyed by the operating system, anew for each state.
        let random = RandomState::new();
        Self { keys: [0, 1].map(|number| random.hash_one(number)) }
    }

    /// Returns the fingerprint of a counter; the same counter has the same one for as long as the store lives.
    ///
    /// What is hashed is unambiguous: shape, a hash of the policy's name, key in words of eight bytes, and its rest in one
    /// word with how many bytes that has. Clients choose keys, but not the names of policies.
    #[inline]
    pub(in crate::store) fn of(&self, counter: &Counter) -> Fingerprint {
        let ([first, second], key) = (self.keys, counter.key());
        let mut hasher = SipHasher13::new_with_keys(first, second);
        hasher.write_u64(shape(counter.quota()));
        hasher.write_u64(counter.policy().hash_of_text());
        let (words, rest) = key.as_bytes().as_chunks();
        for word in words {
            hasher.write_u64(u64::from_le_bytes(*word));
        }
        hasher.write_u64(last_word(key.as_bytes(), rest));
        let Hash128 { h1: hash, h2 } = hasher.finish128();
        Fingerprint { hash, tail: h2 & TAIL }
    }
}

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
}

/// The bytes that fill no word, at most seven, and above them their number.
#[inline]
fn last_word(key: &[u8], rest: &[u8]) -> u64 {
    let bits = 8 * rest.len();
    // Lengths differ from key to key, so that branches on what is left would be guessed badly.
    let word = match key.last_chunk() {
        Some(last) => u64::from_le_bytes(*last) >> 8 >> (56 - bits),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    word | (rest.len() as u64) << 56
}

/// The algorithm and the window, in microseconds: they are shorter than 2^51. Of a calendar it is its number.
#[inline]
fn shape(quota: &Quota) -> u64 {
    let algorithm = quota.algorithm() as u64;
    // The highest bit of a window of microseconds is lower.
    let window = match quota.calendar() {
        Some(calendar) => 1 << 55 | calendar.number(),
        None => quota.shape_ticks() * quota.tick().micros(),
    };
    algorithm << 56 | window
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::core::Key;

    fn counter(policy: &str, value: &str) -> Counter {
        Counter::new(policy.try_into().expect("a valid name"), Key::new("k", value), Quota::per_second(1))
    }

    #[test]
    fn no_two_stores_hash_a_key_alike_so_that_none_can_be_flooded_by_a_list_made_before() {
        let of_stores = || (0..8).map(|_| Fingerprints::new().of(&counter("p", "v")));
        assert_eq!(of_stores().map(|of| of.hash).collect::<HashSet<_>>().len(), 8);
        assert!(of_stores().map(|of| of.tail).collect::<HashSet<_>>().len() > 1);
        let quick: HashSet<u64> = (0..8).map(|_| CounterHasher::new().of(&counter("p", "v"))).collect();
        assert_eq!(quick.len(), 8);
    }

    #[test]
    fn texts_that_differ_only_in_where_the_key_ends_and_the_policy_begins_differ() {
        let fingerprints = Fingerprints::new();
        let pairs = (1..=21).flat_map(|policy| (0..=20).map(move |value| (policy, value)));
        let found = pairs.map(|(policy, value)| fingerprints.of(&counter(&"a".repeat(policy), &"a".repeat(value))));
        assert_eq!(found.map(|of| of.hash).collect::<HashSet<_>>().len(), 21 * 21);
    }
}
