//! Requests that leave in one call, byte by byte as `lua/wire.lua` reads them.
//!
//! Requests of several callers come in; the keys of the call, its one packed argument and what the
//! script must be able to do go out. Each key and each rule stands in a call once, however many
//! checks refer to it, by a place of one byte: so a call has at most 255 checks.
//!
//! There are two formats. Where every request is a decision over one check, and no key occurs
//! twice, the checks follow from the order of the keys, and the rules are written with the number
//! of keys that each decides (`lua/single.lua`, `lua/singles.lua`). All else is a batch, which
//! names the places of key and rule for each check (`lua/batch.lua`).

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::{SmallVec, smallvec};

use super::request::{Request, RuleBytes};
use super::script::{Calls, Program, count_of};
use super::source::Needs;

/// The keys and the argument of a call.
///
/// The reply has the parts of its requests in the order in which they were given.
#[derive(Debug)]
pub(in crate::store::redis) struct Packed<'a> {
    /// Every key, once.
    keys: SmallVec<[&'a [u8]; 1]>,
    /// The rules, and what refers to them: the second argument of the script.
    bytes: SmallVec<[u8; 48]>,
    /// What the script must be able to do: it decides which one is called.
    needs: Needs,
}

/// Tells apart the keys of a call, by their hashes; kept for its room.
#[derive(Default)]
pub(in crate::store::redis) struct KeyHashes {
    hashes: HashTable<u64>,
    hasher: RandomState,
}

impl KeyHashes {
    /// Returns whether a key is another than those before. Two keys of one hash are taken for one, and then leave in a
    /// batch.
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

/// The key and the rule of a request of one check.
type Single<'a> = (&'a [u8], &'a RuleBytes);

/// Returns the keys and rules of requests of one check each, or `None` if one of them has more, is
/// no decision, or a key occurs twice.
fn singles<'a>(requests: &[&'a Request], seen: &mut KeyHashes) -> Option<SmallVec<[Single<'a>; 1]>> {
    if let [request] = requests {
        return request.single().map(|single| smallvec![single]);
    }
    seen.hashes.clear();
    requests.iter().map(|request| request.single().filter(|(key, _)| seen.is_new(key))).collect()
}

impl<'a> Packed<'a> {
    /// Puts requests side by side that are decided by the same rule, where no order is to be kept: those of
    /// one check each, over keys that are all different.
    ///
    /// Neighbours of the same rule share its bytes in the call. Requests that are a batch stay as
    /// they are: what an earlier one takes, a later one over the same key must find taken.
    pub(in crate::store::redis) fn sort<'r, T>(items: &mut [T], request: impl Fn(&T) -> &'r Request) {
        let rule = |item: &T| request(item).single().map(|(_, rule)| *rule);
        // Mostly all have one rule.
        if !items.is_sorted_by_key(rule) {
            let requests: Vec<&Request> = items.iter().map(&request).collect();
            if singles(&requests, &mut KeyHashes::default()).is_some() {
                items.sort_by_key(rule);
            }
        }
    }

    /// Joins requests of together at most 255 checks.
    ///
    /// # Panics
    ///
    /// If there are more than 255 checks: the caller bounds them.
    pub(in crate::store::redis) fn of(requests: &[&'a Request], seen: &mut KeyHashes) -> Self {
        match singles(requests, seen) {
            Some(singles) => Self::singles(&singles, needs(requests)),
            None => Self::batch(requests),
        }
    }

    pub(in crate::store::redis) fn program(&self, calls: Calls) -> &'static Program {
        Program::of(calls, self.needs)
    }

    /// Returns the arguments of the call of a program, its name first.
    ///
    /// `now` is the time of the decisions in microseconds since the Unix epoch, in digits; if it is
    /// empty, the script takes the server's `TIME`. If the server may not have a script, its source is sent.
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

    /// Packs decisions of one check each: the number of runs of the same rule, then for each run
    /// the rule and its number of keys.
    fn singles(singles: &[Single<'a>], needs: Needs) -> Self {
        if let [(key, rule)] = singles {
            // Mostly one leaves alone.
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

    /// Packs any requests: the number of rules, the rules, then for each request the number of its
    /// checks and the places of their keys and rules, from 1.
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

/// Returns a number of items, or a place from 1, as the byte that stands for it.
fn count(items: usize) -> u8 {
    u8::try_from(items).expect("a call has at most 255 checks")
}

/// Distinct items in the order in which they came, and the place of each, from 1.
type Distinct<'a, T> = (Vec<&'a T>, HashMap<&'a T, u8>);

/// Returns the place of an item, from 1.
fn place_of<'a, T: Eq + Hash + ?Sized>((items, places): &mut Distinct<'a, T>, item: &'a T) -> u8 {
    *places.entry(item).or_insert_with(|| {
        items.push(item);
        count(items.len())
    })
}
