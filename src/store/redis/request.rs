//! What is sent, byte by byte as `lua/wire.lua` reads it.

use std::collections::HashMap;
use std::hash::Hash;

use ahash::RandomState;
use smallvec::SmallVec;

use super::names::redis_key;
use super::needs::{Needs, algorithm_of, number_of};
use crate::algorithm::{Adjustment, MOST_UNITS};
use crate::quota::{Algorithm, Quota, Tick};
use crate::store::{Change, Check, Counter, Mode};

/// The most checks of one request: places are one byte.
pub(super) const MOST_CHECKS: usize = 255;

/// Bytes of a number.
const NUMBER: usize = 7;

const ENFORCED: u8 = 1;
const MILLIS: u8 = 2;
const WHOLE: u8 = 4;
const REFUNDS: u8 = 8;
const CHARGES: u8 = 16;
const RESETS: u8 = 32;

/// Algorithm, flags, and five numbers.
type Rule = [u8; 2 + 5 * NUMBER];

/// One request, one adjustment or one reset.
#[derive(Debug, Default)]
pub(super) struct Request {
    keys: SmallVec<[String; 1]>,
    rules: SmallVec<[Rule; 1]>,
    /// The places of a check's key and rule in this request, from 0.
    checks: SmallVec<[[u8; 2]; 4]>,
    needs: Needs,
}

impl Request {
    /// A request of at most [`MOST_CHECKS`] checks.
    pub(super) fn new(prefix: &str, checks: &[Check]) -> Self {
        let mut request = Self::default();
        for (index, check) in checks.iter().enumerate() {
            let enforced = if check.mode == Mode::Enforce { ENFORCED } else { 0 };
            let whole = if tells_all(checks, index) { WHOLE } else { 0 };
            let numbers = [check.cost.min(MOST_UNITS), check.floor.min(MOST_UNITS)];
            request.add(prefix, &check.counter, enforced | whole, numbers);
        }
        request
    }

    pub(super) fn adjustment(prefix: &str, counter: &Counter, change: Change, stamp: Option<u64>) -> Self {
        let mut request = Self::default();
        let Adjustment { refund, charge, stamp } = Adjustment::new(change, stamp);
        let flag = if charge > 0 { CHARGES } else { REFUNDS };
        request.add(prefix, counter, flag, [refund + charge, stamp]);
        request
    }

    pub(super) fn reset(prefix: &str, counter: &Counter) -> Self {
        let mut request = Self::default();
        request.add(prefix, counter, RESETS, [0, 0]);
        request
    }

    fn add(&mut self, prefix: &str, counter: &Counter, flags: u8, numbers: [u64; 2]) {
        let key = place_of(&mut self.keys, redis_key(prefix, counter));
        let rule = place_of(&mut self.rules, rule(&counter.quota, flags, numbers));
        self.checks.push([key, rule]);
        self.needs = self.needs.and(Needs::of(counter.quota.algorithm()));
    }

    /// One of its keys: on a Cluster all are in its slot.
    pub(super) fn key(&self) -> Option<&str> {
        self.keys.first().map(String::as_str)
    }

    /// How many checks it has.
    pub(super) fn size(&self) -> usize {
        self.checks.len()
    }

    /// Whether it asks for a decision over one check.
    fn is_one_check(&self) -> bool {
        self.checks.len() == 1 && self.rules.iter().all(|rule| rule[1] < REFUNDS)
    }

    /// For each check, its algorithm, and whether the whole of a log is told.
    pub(super) fn told(&self) -> impl Iterator<Item = (Algorithm, bool)> {
        let rules = self.checks.iter().map(|[_, rule]| &self.rules[usize::from(*rule)]);
        rules.map(|rule| (algorithm_of(rule[0]), rule[1] & WHOLE != 0))
    }
}

/// Whether the answer to a check is the whole of its log: where another check of the request changes
/// what it looks at, a digest does not say enough.
pub(super) fn tells_all(checks: &[Check], index: usize) -> bool {
    let counter = &checks[index].counter;
    let others = || checks.iter().enumerate().filter(|(other, _)| *other != index);
    counter.quota.algorithm() == Algorithm::SlidingLog && others().any(|(_, other)| other.counter.shares_state(counter))
}

/// The place of an item among few, from 0; it stands there once.
fn place_of<T: PartialEq>(items: &mut SmallVec<[T; 1]>, item: T) -> u8 {
    let found = items.iter().position(|other| *other == item);
    let place = found.unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    });
    u8::try_from(place).expect("a request has at most 255 checks")
}

fn rule(quota: &Quota, flags: u8, numbers: [u64; 2]) -> Rule {
    let mut rule = [0; 2 + 5 * NUMBER];
    rule[0] = number_of(quota.algorithm());
    rule[1] = flags | if quota.tick() == Tick::Milli { MILLIS } else { 0 };
    let numbers = [quota.window_ticks(), quota.limit(), quota.capacity(), numbers[0], numbers[1]];
    for (place, number) in rule[2..].chunks_exact_mut(NUMBER).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes()[8 - NUMBER..]);
    }
    rule
}

/// Requests that leave in one call.
#[derive(Debug)]
pub(super) struct Packed<'a> {
    /// Every key, once.
    pub(super) keys: Vec<&'a str>,
    pub(super) bytes: Vec<u8>,
    pub(super) needs: Needs,
}

impl<'a> Packed<'a> {
    /// Joins requests of together at most 255 checks.
    pub(super) fn of(requests: impl Iterator<Item = &'a Request>) -> Self {
        let (mut keys, mut rules) = (Places::default(), Places::default());
        let (mut checks, mut needs, mut single) = (Vec::new(), Needs::default(), None);
        for request in requests {
            needs = needs.and(request.needs);
            single = Some(single.is_none() && request.is_one_check());
            checks.push(u8::try_from(request.checks.len()).expect("a request has at most 255 checks"));
            for [key, rule] in &request.checks {
                checks.push(keys.place_of(&*request.keys[usize::from(*key)]));
                checks.push(rules.place_of(&request.rules[usize::from(*rule)]));
            }
        }
        let needs = if single == Some(true) { needs.single() } else { needs };
        let count = u8::try_from(rules.items.len()).expect("a batch has at most 255 rules");
        let mut bytes = Vec::with_capacity(1 + rules.items.len() * size_of::<Rule>() + checks.len());
        bytes.push(count);
        bytes.extend(rules.items.into_iter().flatten());
        bytes.extend(checks);
        Self { keys: keys.items, bytes, needs }
    }
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
            u8::try_from(self.items.len()).expect("a batch has at most 255 checks")
        })
    }
}
