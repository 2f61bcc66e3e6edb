//! Requests packed into one call, in the format of `lua/wire.lua`.
//!
//! A call contains each key and each rule once, however many checks refer to it, by an index of one byte. So a call has
//! at most 255 checks.
//!
//! There are two formats. If every request is a decision over one check, and no key occurs twice, the checks are in the
//! order of the keys, and each rule is followed by its number of keys (`lua/single.lua`, `lua/singles.lua`). Any other
//! call is a batch, which has the indexes of key and rule for each check (`lua/batch.lua`).

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::ptr;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::request::{Request, RuleBytes};
use super::script::{Calls, Program, count_of, push_argument, push_head};
use super::source::Needs;

/// What a connection keeps between calls: the scripts that its server has, and memory.
///
/// The first call of a script includes its source, which later calls on the connection cannot overtake.
#[derive(Default)]
pub(in crate::store::redis) struct Packer {
    programs: Vec<&'static Program>,
    /// Hashes of the keys of a call. Equal hashes only make it a batch, so they need not withstand attacks.
    hashes: HashTable<u64>,
    hasher: DefaultHashBuilder,
    bytes: Vec<u8>,
}

impl Packer {
    /// Makes requests of equal rules adjacent, so that they share the rule's bytes.
    ///
    /// Batches keep their order, because a later check must find what an earlier check of the same key took.
    pub(in crate::store::redis) fn sort<'r, T>(items: &mut [T], request: impl Fn(&T) -> &'r Request) {
        let rule = |item: &T| request(item).single().map(|(_, rule)| rule);
        // Usually all have the same rule.
        if !items.is_sorted_by_key(rule) && Self::default().singles(items.iter().map(&request)).is_some() {
            items.sort_by_key(rule);
        }
    }

    /// Appends a call of the script that decides the requests. Its source is sent if it `is_missing` on the server.
    ///
    /// `now` is in microseconds since the Unix epoch, in decimal. If empty, the script calls `TIME`.
    ///
    /// # Panics
    ///
    /// If the requests have more than 255 checks.
    pub(in crate::store::redis) fn call<'r>(
        &mut self,
        requests: impl ExactSizeIterator<Item = &'r Request> + Clone,
        calls: Calls,
        now: &str,
        is_missing: bool,
        out: &mut Vec<u8>,
    ) {
        if let Some(needs) = self.singles(requests.clone()) {
            self.begin(needs, requests.len(), calls, is_missing, out);
            requests.filter_map(Request::single).for_each(|(key, _)| push_argument(out, key));
        } else {
            let (keys, needs) = self.batch(requests);
            self.begin(needs, keys.len(), calls, is_missing, out);
            for key in keys {
                push_argument(out, key);
            }
        }
        push_argument(out, now.as_bytes());
        push_argument(out, &self.bytes);
    }

    /// `needs` select the script.
    fn begin(&mut self, needs: Needs, keys: usize, calls: Calls, is_missing: bool, out: &mut Vec<u8>) {
        let program = Program::shared(calls, needs);
        let is_new = !self.programs.iter().any(|known| ptr::eq(*known, program));
        if is_new {
            self.programs.push(program);
        }
        push_head(out, b'*', keys + 5);
        program.push_call(needs.entry(), is_new || is_missing, out);
        push_argument(out, count_of(keys));
    }

    /// Format: the number of groups of equal rules, then each group's rule and number of keys.
    ///
    /// Returns `None` if a request has more than one check or is no decision, or if a key occurs twice.
    fn singles<'r>(&mut self, requests: impl ExactSizeIterator<Item = &'r Request>) -> Option<Needs> {
        let (all, mut needs, mut last) = (count(requests.len()), Needs::default(), None::<&RuleBytes>);
        self.hashes.clear();
        self.bytes.clear();
        self.bytes.push(0);
        for request in requests {
            let (key, rule) = request.single()?;
            if all > 1 && !self.is_new(key) {
                return None;
            }
            needs = needs.and(request.needs);
            match self.bytes.last_mut() {
                Some(same) if last == Some(rule) => *same += 1,
                _ => {
                    self.bytes[0] += 1;
                    self.bytes.extend_from_slice(rule);
                    self.bytes.push(1);
                    last = Some(rule);
                }
            }
        }
        Some(needs.singles(all.into()))
    }

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

    /// Format: the number of rules, the rules, then each request's number of checks and their indexes, from 1.
    fn batch<'r>(&mut self, requests: impl Iterator<Item = &'r Request>) -> (Vec<&'r [u8]>, Needs) {
        let (mut keys, mut rules, mut checks) = (Distinct::default(), Distinct::default(), Vec::new());
        let mut needs = Needs::default();
        for request in requests {
            needs = needs.and(request.needs);
            checks.push(count(request.checks.len()));
            for [key, rule] in &request.checks {
                checks.push(place_of(&mut keys, &*request.keys[usize::from(*key)]));
                checks.push(place_of(&mut rules, &request.rules[usize::from(*rule)]));
            }
        }
        self.bytes.clear();
        self.bytes.push(count(rules.0.len()));
        rules.0.into_iter().for_each(|rule| self.bytes.extend_from_slice(rule));
        self.bytes.extend_from_slice(&checks);
        (keys.0, needs)
    }
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
