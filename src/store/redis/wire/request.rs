//! What is asked: the parts of a call, as `lua/wire.lua` reads them.

use smallvec::SmallVec;

use super::names::redis_key;
use super::needs::{Needs, algorithm_of};
use crate::core::algorithm::{Adjustment, Layout, MOST_UNITS};
use crate::core::quota::{Quota, Tick};
use crate::store::evaluate::adjustment;
use crate::store::{Change, Check, Counter, Mode, Taken};

/// The most checks of one request: places are one byte.
pub(in crate::store::redis) const MOST_CHECKS: usize = 255;

/// Bytes of a number.
const NUMBER: usize = 7;

const ENFORCED: u8 = 1;
const MILLIS: u8 = 2;
const WHOLE: u8 = 4;
const REFUNDS: u8 = 8;
const CHARGES: u8 = 16;
const RESETS: u8 = 32;
const REPEATS: u8 = 64;

/// Algorithm, flags, and five numbers.
pub(super) type Rule = [u8; 2 + 5 * NUMBER];

/// What is told of a check's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// How many units a change came to is told before the state after it.
    pub(super) is_change: bool,
    /// All of a log is told, rather than a digest.
    pub(super) is_whole: bool,
}

impl View {
    fn of(flags: u8) -> Self {
        Self { is_change: flags & (REFUNDS | CHARGES) != 0, is_whole: flags & WHOLE != 0 }
    }
}

/// One request, one adjustment or one reset.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct Request {
    pub(super) keys: SmallVec<[String; 1]>,
    pub(super) rules: SmallVec<[Rule; 1]>,
    /// The places of a check's key and rule in this request, from 0.
    pub(super) checks: SmallVec<[[u8; 2]; 4]>,
    pub(super) needs: Needs,
}

impl Request {
    /// A request of at most [`MOST_CHECKS`] checks.
    pub(in crate::store::redis) fn new(prefix: &str, checks: &[Check]) -> Self {
        let mut request = Self::default();
        for (index, check) in checks.iter().enumerate() {
            let enforced = if check.mode == Mode::Enforce { ENFORCED } else { 0 };
            let whole = if tells_all(checks, index) { WHOLE } else { 0 };
            let numbers = [check.cost.min(MOST_UNITS), check.floor.min(MOST_UNITS)];
            request.add(prefix, &check.counter, enforced | whole, numbers);
        }
        request
    }

    /// A change to what was taken; `before` it the same request took this.
    pub(in crate::store::redis) fn adjustment(prefix: &str, before: &[Taken], taken: &Taken, change: Change) -> Self {
        let mut request = Self::default();
        let Adjustment { refund, charge, stamp } = adjustment(before, taken, change);
        let flag = if charge > 0 { CHARGES } else { REFUNDS };
        let whole = if tells_all_after(taken) { WHOLE } else { 0 };
        request.add(prefix, &taken.counter, flag | whole, [refund + charge, stamp]);
        request
    }

    pub(in crate::store::redis) fn reset(prefix: &str, counter: &Counter) -> Self {
        let mut request = Self::default();
        request.add(prefix, counter, RESETS, [0, 0]);
        request
    }

    /// A request that has no more than its size.
    #[cfg(test)]
    pub(in crate::store::redis) fn of_size(checks: usize) -> Self {
        Self { checks: (0..checks).map(|_| [0, 0]).collect(), ..Self::default() }
    }

    fn add(&mut self, prefix: &str, counter: &Counter, flags: u8, numbers: [u64; 2]) {
        let others = self.keys.len();
        let key = place_of(&mut self.keys, redis_key(prefix, counter));
        let flags = if usize::from(key) < others { flags | REPEATS } else { flags };
        let rule = place_of(&mut self.rules, rule(&counter.quota, flags, numbers));
        self.checks.push([key, rule]);
        self.needs = self.needs.and(Needs::of(counter.quota.algorithm()));
    }

    /// One of its keys: on a Cluster all are in its slot.
    pub(in crate::store::redis) fn key(&self) -> Option<&str> {
        self.keys.first().map(String::as_str)
    }

    /// How many checks it has.
    pub(in crate::store::redis) fn size(&self) -> usize {
        self.checks.len()
    }

    /// The key and the rule of a decision over one check; `None` if it asks for more, or for something
    /// else.
    pub(super) fn single(&self) -> Option<(&str, &Rule)> {
        match (&*self.keys, &*self.rules, &*self.checks) {
            ([key], [rule], [_]) if rule[1] < REFUNDS => Some((key, rule)),
            _ => None,
        }
    }

    /// For each check, how its state stands in Redis, and what is told of it.
    pub(super) fn views(&self) -> impl Iterator<Item = (Layout, View)> {
        let rules = self.checks.iter().map(|[_, rule]| &self.rules[usize::from(*rule)]);
        rules.map(|rule| (algorithm_of(rule[0]).facts().layout, View::of(rule[1])))
    }
}

/// Whether the answer to a check is the whole of its log: where another check of the request changes
/// what it looks at, a digest does not say enough.
pub(super) fn tells_all(checks: &[Check], index: usize) -> bool {
    let counter = &checks[index].counter;
    let others = || checks.iter().enumerate().filter(|(other, _)| *other != index);
    counter.quota.facts().layout == Layout::Log && others().any(|(_, other)| other.counter.shares_state(counter))
}

/// Whether the answer to a change is the whole of a log: a digest does not say when what is left beyond a
/// floor returns.
pub(super) fn tells_all_after(taken: &Taken) -> bool {
    taken.floor > 0 && taken.counter.quota.facts().layout == Layout::Log
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
    rule[0] = quota.facts().number;
    rule[1] = flags | if quota.tick() == Tick::Milli { MILLIS } else { 0 };
    let numbers = [quota.window_ticks(), quota.limit(), quota.capacity(), numbers[0], numbers[1]];
    for (place, number) in rule[2..].chunks_exact_mut(NUMBER).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes()[8 - NUMBER..]);
    }
    rule
}
