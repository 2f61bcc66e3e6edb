//! Requests that leave in one call, byte by byte as `lua/wire.lua` reads them.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use ahash::RandomState;
use deadpool_redis::redis::Cmd;

use super::needs::Needs;
use super::request::{Request, Rule};
use super::script::{Calls, Program};

/// The keys and the argument of a call.
#[derive(Debug)]
pub(in crate::store::redis) struct Packed<'a> {
    /// Every key, once.
    keys: Vec<&'a str>,
    bytes: Vec<u8>,
    needs: Needs,
}

/// The keys and rules of requests of one check each, if all keys are different.
fn singles<R: AsRef<Request>>(requests: &[R]) -> Option<Vec<(&str, &Rule)>> {
    let mut seen = HashSet::with_capacity_and_hasher(requests.len(), RandomState::new());
    let singles = requests.iter().map(|request| request.as_ref().single().filter(|(key, _)| seen.insert(*key)));
    singles.collect()
}

impl<'a> Packed<'a> {
    /// Puts requests side by side that are decided by the same rule, where no order is to be kept: those of
    /// one check each, over keys that are all different.
    pub(in crate::store::redis) fn sort<R: AsRef<Request>>(requests: &mut [R]) {
        let rule = |request: &R| request.as_ref().single().map(|(_, rule)| *rule);
        // Mostly all have one rule.
        if !requests.is_sorted_by_key(rule) && singles(requests).is_some() {
            requests.sort_by_key(rule);
        }
    }

    /// Joins requests of together at most 255 checks.
    pub(in crate::store::redis) fn of<R: AsRef<Request>>(requests: &'a [R]) -> Self {
        match singles(requests) {
            Some(singles) => Self::singles(&singles, needs(requests)),
            None => Self::batch(requests),
        }
    }

    /// What is called, and the call: at a time in microseconds, or at the server's if that is empty.
    pub(in crate::store::redis) fn command(self, calls: Calls, now: &str) -> (&'static Program, Cmd) {
        let program = Program::of(calls, self.needs);
        let room = self.keys.iter().map(|key| key.len()).sum::<usize>() + now.len() + self.bytes.len();
        let mut call = program.command(self.needs, self.keys.len() + 3, room);
        call.arg(self.keys.len()).arg(self.keys).arg(now).arg(self.bytes);
        (program, call)
    }

    fn singles(singles: &[(&'a str, &'a Rule)], needs: Needs) -> Self {
        let mut bytes = Vec::with_capacity(2 + size_of::<Rule>());
        bytes.push(0);
        for same in singles.chunk_by(|one, next| one.1 == next.1) {
            bytes[0] += 1;
            bytes.extend(same[0].1);
            bytes.push(count(same.len()));
        }
        Self { keys: singles.iter().map(|(key, _)| *key).collect(), bytes, needs: needs.singles(singles.len()) }
    }

    fn batch<R: AsRef<Request>>(requests: &'a [R]) -> Self {
        let (mut keys, mut rules, mut checks) = (Places::default(), Places::default(), Vec::new());
        for request in requests.iter().map(AsRef::as_ref) {
            checks.push(count(request.checks.len()));
            for [key, rule] in &request.checks {
                checks.push(keys.place_of(&*request.keys[usize::from(*key)]));
                checks.push(rules.place_of(&request.rules[usize::from(*rule)]));
            }
        }
        let mut bytes = Vec::with_capacity(1 + rules.items.len() * size_of::<Rule>() + checks.len());
        bytes.push(count(rules.items.len()));
        bytes.extend(rules.items.into_iter().flatten());
        bytes.extend(checks);
        Self { keys: keys.items, bytes, needs: needs(requests) }
    }
}

fn needs<R: AsRef<Request>>(requests: &[R]) -> Needs {
    requests.iter().fold(Needs::default(), |needs, request| needs.and(request.as_ref().needs))
}

fn count(items: usize) -> u8 {
    u8::try_from(items).expect("a call has at most 255 checks")
}

/// Items, each once, and their places.
struct Places<'a, T: ?Sized> {
    items: Vec<&'a T>,
    places: HashMap<&'a T, u8, RandomState>,
}

impl<T: ?Sized> Default for Places<'_, T> {
    fn default() -> Self {
        Self { items: Vec::new(), places: HashMap::default() }
    }
}

impl<'a, T: Eq + Hash + ?Sized> Places<'a, T> {
    /// The place of an item, from 1.
    fn place_of(&mut self, item: &'a T) -> u8 {
        *self.places.entry(item).or_insert_with(|| {
            self.items.push(item);
            count(self.items.len())
        })
    }
}
