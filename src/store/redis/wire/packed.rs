//! Requests packed into one call, in the format of `lua/wire.lua`.
//!
//! A call contains each key and each rule once, however many checks refer to it, by an index of one byte. So a call has
//! at most 255 checks.
//!
//! There are two formats. If every request is a decision over one check, and no key occurs twice, the checks are in the
//! order of the keys, and each rule is followed by its number of keys (`lua/single.lua`, `lua/singles.lua`). Any other
//! call is a batch, which has the indexes of key and rule for each check (`lua/batch.lua`).

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::{SmallVec, smallvec};

use super::request::{Request, RuleBytes};
use super::script::{Calls, Program, count_of};
use super::source::Needs;

#[derive(Debug)]
pub(in crate::store::redis) struct Packed<'a> {
    keys: SmallVec<[&'a [u8]; 1]>,
    bytes: SmallVec<[u8; 48]>,
    /// Selects the script.
    needs: Needs,
}

/// Hashes of the keys of a call. Kept to reuse its memory.
#[derive(Default)]
pub(in crate::store::redis) struct KeyHashes {
    hashes: HashTable<u64>,
    hasher: RandomState,
}

impl KeyHashes {
    /// Keys of equal hash count as equal. Their call is a batch.
    fn is_new(&mut self, key: &[u8]) -> bool {
        let hash = self.hasher.hash_one(key);
        match self.hashes.entry(hash, |other| *other == hash, |other| *other) {
            Entry::Occupied(_) => false,
            Entry::Vacant(room) => {
                room.insert(hash);
                true
            }
        }
    }
}

type Single<'a> = (&'a [u8], &'a RuleBytes);

/// Returns `None` if a request has more than one check or is no decision, or if a key occurs twice.
fn singles<'a>(requests: &[&'a Request], seen: &mut KeyHashes) -> Option<SmallVec<[Single<'a>; 1]>> {
    if let [request] = requests {
        return request.single().map(|single| smallvec![single]);
    }
    seen.hashes.clear();
    requests.iter().map(|request| request.single().filter(|(key, _)| seen.is_new(key))).collect()
}

impl<'a> Packed<'a> {
    /// Makes requests of equal rules adjacent, so that they share the rule's bytes.
    ///
    /// Batches keep their order, because a later check must find what an earlier check of the same key took.
    pub(in crate::store::redis) fn sort<'r, T>(items: &mut [T], request: impl Fn(&T) -> &'r Request) {
        let rule = |item: &T| request(item).single().map(|(_, rule)| *rule);
        // Usually all have the same rule.
        if !items.is_sorted_by_key(rule) {
            let requests: Vec<&Request> = items.iter().map(&request).collect();
            if singles(&requests, &mut KeyHashes::default()).is_some() {
                items.sort_by_key(rule);
            }
        }
    }

    /// # Panics
    ///
    /// If the requests have more than 255 checks.
    pub(in crate::store::redis) fn new(requests: &[&'a Request], seen: &mut KeyHashes) -> Self {
        match singles(requests, seen) {
            Some(singles) => Self::singles(&singles, needs(requests)),
            None => Self::batch(requests),
        }
    }

    pub(in crate::store::redis) fn program(&self, calls: Calls) -> &'static Program {
        Program::shared(calls, self.needs)
    }

    /// `now` is in microseconds since the Unix epoch, in decimal. If empty, the script calls `TIME`.
    pub(in crate::store::redis) fn arguments<'b>(
        &'b self,
        program: &'b Program,
        now: &'b str,
        is_missing: bool,
    ) -> impl Iterator<Item = &'b [u8]> {
        let keys = self.keys.iter().copied();
        let count = [count_of(self.keys.len())];
        program
            .call(self.needs.entry(), is_missing)
            .into_iter()
            .chain(count)
            .chain(keys)
            .chain([now.as_bytes(), &self.bytes])
    }

    pub(in crate::store::redis) fn count(&self) -> usize {
        self.keys.len() + 5
    }

    /// Format: the number of groups of equal rules, then each group's rule and number of keys.
    fn singles(singles: &[Single<'a>], needs: Needs) -> Self {
        if let [(key, rule)] = singles {
            // Usually a request is sent alone.
            let mut bytes = SmallVec::new();
            bytes.push(1);
            bytes.extend_from_slice(*rule);
            bytes.push(1);
            return Self { keys: smallvec![*key], bytes, needs: needs.singles(1) };
        }
        let mut bytes = SmallVec::new();
        bytes.push(0);
        for same in singles.chunk_by(|one, next| one.1 == next.1) {
            bytes[0] += 1;
            bytes.extend_from_slice(same[0].1);
            bytes.push(count(same.len()));
        }
        Self { keys: singles.iter().map(|(key, _)| *key).collect(), bytes, needs: needs.singles(singles.len()) }
    }

    /// Format: the number of rules, the rules, then each request's number of checks and their indexes, from 1.
    fn batch(requests: &[&'a Request]) -> Self {
        let (mut keys, mut rules, mut checks) = (Distinct::default(), Distinct::default(), Vec::new());
        for request in requests {
            checks.push(count(request.checks.len()));
            for [key, rule] in &request.checks {
                checks.push(place_of(&mut keys, &*request.keys[usize::from(*key)]));
                checks.push(place_of(&mut rules, &request.rules[usize::from(*rule)]));
            }
        }
        let mut bytes = SmallVec::with_capacity(1 + rules.0.len() * size_of::<RuleBytes>() + checks.len());
        bytes.push(count(rules.0.len()));
        rules.0.into_iter().for_each(|rule| bytes.extend_from_slice(rule));
        bytes.extend_from_slice(&checks);
        Self { keys: keys.0.into(), bytes, needs: needs(requests) }
    }
}

fn needs(requests: &[&Request]) -> Needs {
    requests.iter().fold(Needs::default(), |needs, request| needs.and(request.needs))
}

fn count(items: usize) -> u8 {
    u8::try_from(items).expect("a call has at most 255 checks")
}

/// Distinct items in order, and the index of each, from 1.
type Distinct<'a, T> = (Vec<&'a T>, HashMap<&'a T, u8>);

fn place_of<'a, T: Eq + Hash + ?Sized>((items, places): &mut Distinct<'a, T>, item: &'a T) -> u8 {
    *places.entry(item).or_insert_with(|| {
        items.push(item);
        count(items.len())
    })
}
