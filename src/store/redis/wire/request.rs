//! A request to the script: which counters it checks or changes, and by which rules, as
//! `lua/wire.lua` reads them.
//!
//! Checks, a settlement or a reset come in; a `Request` goes out, which `packed.rs` joins with
//! those of others. It owns its bytes, as it waits in a queue and is sent by another task than the
//! caller's. A rule is all that the script needs besides the key, so requests by the same
//! policy at the same cost have equal rules, and a call carries them once.
//!
//! | place in a rule | bytes | what |
//! | --- | --- | --- |
//! | 0 | 1 | the number of the algorithm, from 1; and [`WIDE`] for levels that may reach 2^52, or [`CALENDAR`] |
//! | 1 | 1 | flags: the constants below |
//! | 2 | 7 | the window, in ticks; the start of a calendar's, in ms |
//! | 9 | 7 | the limit, in units per window |
//! | 16 | 7 | the capacity: the most units at once; of a calendar, lengths of three windows |
//! | 23 | 7 | the cost of a check, or the units of a change |
//! | 30 | 7 | the floor of a check, or the stamp of a refund |
//!
//! The name of a key is the prefix of the store, and the name of the counter's state (`store/evaluate.rs`). The client's key
//! stands in braces, as a hash tag: on a Cluster all policies over one key are in one slot, and one script can decide
//! them.
//!
//! The ban of a check stands before it: see `lua/ban.lua` for the numbers of its rule.

use std::mem::take;

use smallvec::SmallVec;

use super::source::{Needs, algorithm_of};
use crate::core::algorithm::{Adjustment, Layout, MOST_UNITS};
use crate::core::quota::{Quota, Tick};
use crate::store::evaluate::adjustment;
use crate::store::evaluate::name;
use crate::store::{Change, Check, Counter, Mode, ReceiptItem};

/// The most checks of one request: the places of keys and rules are one byte.
pub(in crate::store::redis) const MOST_CHECKS: usize = 255;

/// More than the number of an algorithm, where its levels are kept as units and parts: see `lua/wide.lua`.
const WIDE: u8 = 16;

/// More than the number of an algorithm, where its windows are those of a calendar.
const CALENDAR: u8 = 32;

/// Bytes of a number in a rule, which is below 2^52.
const NUMBER: usize = 7;

/// Milliseconds of a minute: windows of a calendar are whole minutes.
const MINUTE_MS: u64 = 60_000;

/// Flag: the request is refused if this check does not fit.
const ENFORCED: u8 = 1;
/// Flag: a tick is 1 ms, else 1 µs.
const MILLIS: u8 = 2;
/// Flag: the script returns the whole of a log, not a digest.
const WHOLE: u8 = 4;
/// Flag: no decision, but a refund of units. With this and all flags above it, the rule is none of
/// a single decision: see [`Request::single`].
const REFUNDS: u8 = 8;
/// Flag: no decision, but a charge of units; with the flag of a refund, a renewal.
const CHARGES: u8 = 16;
/// Flag: no decision, but the end of the counter's state.
const RESETS: u8 = 32;
/// Flag: another check of the same request has the same key, and their costs add up.
const REPEATS: u8 = 64;

/// A rule as it is sent: algorithm, flags, and five numbers.
pub(super) type RuleBytes = [u8; 2 + 5 * NUMBER];

/// What the script returns of a check's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// The number of units that a change came to (7 bytes) stands before the state after it.
    pub(super) is_change: bool,
    /// The state of a log is returned as a whole, rather than as a digest.
    pub(super) is_whole: bool,
}

impl View {
    fn of(flags: u8) -> Self {
        Self { is_change: flags & (REFUNDS | CHARGES) != 0, is_whole: flags & WHOLE != 0 }
    }
}

/// The checks of one decision, one adjustment, or one reset: what is decided all or nothing.
///
/// Its checks are in the order in which they were given, and so is their part of the reply.
#[derive(Clone, Debug, Default)]
pub(in crate::store::redis) struct Request {
    /// The distinct keys in Redis, mostly one.
    pub(super) keys: SmallVec<[RedisKey; 1]>,
    /// The distinct rules, mostly one.
    pub(super) rules: SmallVec<[RuleBytes; 1]>,
    /// The places of each check's key and rule in this request, from 0.
    pub(super) checks: SmallVec<[[u8; 2]; 4]>,
    /// The algorithms that decide it.
    pub(super) needs: Needs,
}

impl Request {
    /// Returns the request that decides at most [`MOST_CHECKS`] checks, those of bans included.
    ///
    /// Costs and floors beyond `MOST_UNITS` are cut to that, as the algorithms in Rust cut them. `now_ms` returns the
    /// time, which only windows of a calendar need.
    pub(in crate::store::redis) fn new(prefix: &str, checks: &[Check], now_ms: impl Fn() -> u64) -> Self {
        let mut request = Self::default();
        for (index, check) in checks.iter().enumerate() {
            let enforced = if check.mode == Mode::Enforce { ENFORCED } else { 0 };
            let whole = if returns_whole(checks, index) { WHOLE } else { 0 };
            let numbers = [check.cost.min(MOST_UNITS), check.floor.min(MOST_UNITS)];
            let windows = windows(check.counter.quota(), &now_ms);
            request.add(prefix, &check.counter, enforced | whole, windows, numbers);
        }
        if request.keys.len() < request.checks.len() {
            request.mark_repeats();
        }
        request
    }

    /// Returns the request that changes what was taken. `before` are the units that the same
    /// request took before these, which count in the refund of a bucket.
    pub(in crate::store::redis) fn adjustment(
        prefix: &str,
        before: &[ReceiptItem],
        taken: &ReceiptItem,
        change: Change,
        now_ms: impl Fn() -> u64,
    ) -> Self {
        let mut request = Self::default();
        if change == Change::Reset {
            return Self::reset(prefix, &taken.counter);
        }
        let Adjustment { refund, charge, stamp } = adjustment(before, taken, change);
        let charges = if charge > 0 { CHARGES } else { 0 };
        let flag = if refund > 0 || charge == 0 { REFUNDS | charges } else { charges };
        let whole = if returns_whole_after(taken) { WHOLE } else { 0 };
        let windows = windows(taken.counter.quota(), now_ms);
        request.add(prefix, &taken.counter, flag | whole, windows, [refund.max(charge), stamp]);
        request
    }

    fn reset(prefix: &str, counter: &Counter) -> Self {
        let mut request = Self::default();
        let windows = [counter.quota().window_ticks(), counter.quota().capacity()];
        request.add(prefix, counter, RESETS, windows, [0, 0]);
        request
    }

    /// Adds a check, which shares its key and its rule with earlier ones where they are equal.
    /// `windows` are the window and the capacity of the rule, and `numbers` its last two.
    fn add(&mut self, prefix: &str, counter: &Counter, flags: u8, windows: [u64; 2], numbers: [u64; 2]) {
        let key = place_of(&mut self.keys, redis_key(prefix, counter));
        let rule = place_of(&mut self.rules, rule(counter.quota(), flags, windows, numbers));
        self.checks.push([key, rule]);
        self.needs = self.needs.and(needs_of(counter.quota()));
    }

    fn mark_repeats(&mut self) {
        let (checks, rules) = (take(&mut self.checks), take(&mut self.rules));
        for [key, place] in &checks {
            let mut rule = rules[usize::from(*place)];
            if checks.iter().filter(|[other, _]| other == key).count() > 1 {
                rule[1] |= REPEATS;
            }
            self.checks.push([*key, place_of(&mut self.rules, rule)]);
        }
    }

    /// Returns one of its keys, or `None` if it has no checks. On a Cluster all keys are in its
    /// slot.
    pub(in crate::store::redis) fn key(&self) -> Option<&[u8]> {
        self.keys.first().map(|key| &**key)
    }

    pub(in crate::store::redis) fn size(&self) -> usize {
        self.checks.len()
    }

    /// Returns the key and the rule of a decision over one check; `None` of more checks, and of an
    /// adjustment or a reset.
    pub(super) fn single(&self) -> Option<(&[u8], &RuleBytes)> {
        match (&*self.keys, &*self.rules, &*self.checks) {
            ([key], [rule], [_]) if rule[1] < REFUNDS => Some((key, rule)),
            _ => None,
        }
    }

    /// Returns for each check how its state is laid out in Redis, and what the script returns of
    /// it.
    pub(super) fn views(&self) -> impl Iterator<Item = (Layout, View)> {
        let rules = self.checks.iter().map(|[_, rule]| &self.rules[usize::from(*rule)]);
        rules.map(|rule| (algorithm_of(rule[0] % WIDE).facts().layout, View::of(rule[1])))
    }
}

/// Returns whether the script must return the whole log of a check: where another check of the
/// request changes the same state, a digest does not suffice to work out what remains.
pub(super) fn returns_whole(checks: &[Check], index: usize) -> bool {
    let counter = &checks[index].counter;
    let others = || checks.iter().enumerate().filter(|(other, _)| *other != index);
    counter.quota().facts().layout == Layout::Log && others().any(|(_, other)| other.counter.shares_state(counter))
}

/// Returns whether the script must return the whole log after a change: a digest does not contain when
/// the units beyond a floor return.
pub(super) fn returns_whole_after(taken: &ReceiptItem) -> bool {
    taken.floor > 0 && taken.counter.quota().facts().layout == Layout::Log
}

/// Returns the place of an item among few, from 0, and adds it if it is new.
fn place_of<T: PartialEq>(items: &mut SmallVec<[T; 1]>, item: T) -> u8 {
    let found = items.iter().position(|other| *other == item);
    let place = found.unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    });
    u8::try_from(place).expect("a request has at most 255 checks")
}

fn needs_of(quota: &Quota) -> Needs {
    match quota.calendar() {
        Some(_) => Needs::of_calendars(),
        None if quota.is_wide() => Needs::of_wide(quota.algorithm()),
        None => Needs::of(quota.algorithm()),
    }
}

/// Returns the window and the capacity of a rule. Of a calendar these are the start of the window that it is now, and
/// how many minutes it has, the one before it and the one after it.
fn windows(quota: &Quota, now_ms: impl Fn() -> u64) -> [u64; 2] {
    let Some(calendar) = quota.calendar() else { return [quota.window_ticks(), quota.capacity()] };
    let around = calendar.around(now_ms()).0;
    let minutes = |index: usize| ((around[index + 1] - around[index]) / MINUTE_MS).min(u16::MAX.into());
    [around[1], minutes(0) << 32 | minutes(1) << 16 | minutes(2)]
}

/// Writes a rule: see the table at the top of this module. `windows` are its window and its capacity, and `numbers` its
/// last two.
fn rule(quota: &Quota, flags: u8, windows: [u64; 2], numbers: [u64; 2]) -> RuleBytes {
    let variant = if quota.calendar().is_some() {
        CALENDAR
    } else if quota.is_wide() {
        WIDE
    } else {
        0
    };
    let flags = flags | if quota.tick() == Tick::Milli { MILLIS } else { 0 };
    let numbers = [windows[0], quota.limit(), windows[1], numbers[0], numbers[1]];
    let mut rule = [0; 2 + 5 * NUMBER];
    rule[..2].copy_from_slice(&[quota.facts().number + variant, flags]);
    for (place, number) in rule[2..].chunks_exact_mut(NUMBER).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes()[8 - NUMBER..]);
    }
    rule
}

/// The name of a key in Redis, mostly without an allocation.
type RedisKey = SmallVec<[u8; 80]>;

/// Returns the name of the key that has a counter's state: `<prefix>:{<key>}:<policy>:<shape>`.
///
/// The prefix has no braces, so the tag begins at the first one; all policies over one key share a
/// slot of a Cluster.
pub(in crate::store::redis) fn redis_key(prefix: &str, counter: &Counter) -> RedisKey {
    let mut key = RedisKey::new();
    key.extend_from_slice(prefix.as_bytes());
    key.push(b':');
    for part in name(counter) {
        key.extend_from_slice(part);
    }
    key
}
