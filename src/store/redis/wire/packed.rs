//! Requests that leave in one call, byte by byte as `lua/wire.lua` reads them.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use ahash::RandomState;

use super::needs::Needs;
use super::request::Rule;
use crate::store::redis::batch::Job;

/// The keys and the argument of a call.
#[derive(Debug)]
pub(in crate::store::redis) struct Packed<'a> {
    /// Every key, once.
    pub(in crate::store::redis) keys: Vec<&'a str>,
    pub(in crate::store::redis) bytes: Vec<u8>,
    pub(in crate::store::redis) needs: Needs,
}

/// Puts requests side by side that are decided by the same rule, where no order is to be kept: those of
/// one check each, over keys that are all different.
pub(in crate::store::redis) fn sort(jobs: &mut [Job]) {
    let rule = |job: &Job| job.request.single().map(|(_, rule)| *rule);
    // Mostly all have one rule.
    if !jobs.is_sorted_by_key(rule) && singles(jobs).is_some() {
        jobs.sort_by_key(rule);
    }
}

/// The keys and rules of requests of one check each, if all keys are different.
fn singles(jobs: &[Job]) -> Option<Vec<(&str, &Rule)>> {
    let mut seen = HashSet::with_capacity_and_hasher(jobs.len(), RandomState::new());
    let singles = jobs.iter().map(|job| job.request.single().filter(|(key, _)| seen.insert(*key)));
    singles.collect()
}

impl<'a> Packed<'a> {
    /// Joins requests of together at most 255 checks.
    pub(in crate::store::redis) fn of(jobs: &'a [Job]) -> Self {
        match singles(jobs) {
            Some(singles) => Self::singles(&singles, needs(jobs)),
            None => Self::batch(jobs),
        }
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

    fn batch(jobs: &'a [Job]) -> Self {
        let (mut keys, mut rules, mut checks) = (Places::default(), Places::default(), Vec::new());
        for request in jobs.iter().map(|job| &job.request) {
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
        Self { keys: keys.items, bytes, needs: needs(jobs) }
    }
}

fn needs(jobs: &[Job]) -> Needs {
    jobs.iter().fold(Needs::default(), |needs, job| needs.and(job.request.needs))
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
