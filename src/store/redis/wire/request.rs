//! A request to the script: counters and the rules to check or change them by, in the format of `lua/wire.lua`.
//!
//! A `Request` owns its bytes because another task sends it. A rule contains everything the script needs besides the
//! key. So requests of the same policy and cost have equal rules, which a call contains once.
//!
//! | index in a rule | bytes | content |
//! | --- | --- | --- |
//! | 0 | 1 | the number of the algorithm, from 1; plus [`WIDE`] for levels that may reach 2^52, or [`CALENDAR`] |
//! | 1 | 1 | flags: the constants below |
//! | 2 | 7 | the window, in ticks; the start of a calendar's, in ms |
//! | 9 | 7 | the limit, in units per window |
//! | 16 | 7 | the capacity: the most units at once; of a calendar, lengths of three windows |
//! | 23 | 7 | the cost of a check, or the units of a change |
//! | 30 | 7 | the floor of a check, or the stamp of a refund |
//!
//! A key's name is the store's prefix and the name of the counter's state (`store/evaluate.rs`). The client's key is in
//! braces, as a hash tag: on a Cluster all policies over one key are in one slot, so that one script can decide them.
//!
//! The ban of a check precedes it: see `lua/ban.lua` for the numbers of its rule.

use std::mem::take;

use smallvec::SmallVec;

use super::source::{Needs, algorithm_of};
use crate::core::algorithm::{Adjustment, Layout, MAX_UNITS};
use crate::core::quota::{Quota, Tick};
use crate::store::evaluate::adjustment;
use crate::store::evaluate::name;
use crate::store::{Change, Check, Counter, Mode, ReceiptItem};

/// The indexes of keys and rules are one byte.
pub(in crate::store::redis) const MAX_CHECKS: usize = 255;

/// Added to the number of an algorithm whose levels are stored as units and parts: see `lua/wide.lua`.
const WIDE: u8 = 16;

/// Added to the number of an algorithm with windows of a calendar.
const CALENDAR: u8 = 32;

/// Bytes of a number in a rule, which is below 2^52.
const NUMBER: usize = 7;

const MINUTE_MS: u64 = 60_000;

/// Flag: the request is denied if this check does not fit.
const ENFORCED: u8 = 1;
/// Flag: a tick is 1 ms, not 1 µs.
const MILLIS: u8 = 2;
/// Flag: the script returns a log as a whole, not as a digest.
const WHOLE: u8 = 4;
/// Flag: a refund. A rule with this flag, or a higher one, is never a [single](Request::single) decision.
const REFUNDS: u8 = 8;
/// Flag: a charge. With `REFUNDS`, a renewal.
const CHARGES: u8 = 16;
/// Flag: the counter's state is deleted.
const RESETS: u8 = 32;
/// Flag: another check of the request has the same key, and their costs add up.
const REPEATS: u8 = 64;

/// Algorithm, flags, and five numbers.
pub(super) type RuleBytes = [u8; 2 + 5 * NUMBER];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// The units of a change (7 bytes) precede the state after it.
    pub(super) is_change: bool,
    /// A log is returned as a whole, not as a digest.
    pub(super) is_whole: bool,
}

impl View {
    fn from_flags(flags: u8) -> Self {
        Self { is_change: flags & (REFUNDS | CHARGES) != 0, is_whole: flags & WHOLE != 0 }
    }
}

/// Checks of one decision, adjustment or reset, decided all or nothing, in the order of the reply.
#[derive(Clone, Debug, Default)]
pub(in crate::store::redis) struct Request {
    pub(super) keys: SmallVec<[RedisKey; 1]>,
    pub(super) rules: SmallVec<[RuleBytes; 1]>,
    /// Indexes of each check's key and rule, from 0.
    pub(super) checks: SmallVec<[[u8; 2]; 4]>,
    pub(super) needs: Needs,
}

impl Request {
    /// At most [`MAX_CHECKS`], including bans. `now_ms` is called for windows of a calendar only.
    pub(in crate::store::redis) fn new(prefix: &str, checks: &[Check], now_ms: impl Fn() -> u64) -> Self {
        let mut request = Self::default();
        for (index, check) in checks.iter().enumerate() {
            let enforced = if check.mode == Mode::Enforce { ENFORCED } else { 0 };
            let whole = if returns_whole(checks, index) { WHOLE } else { 0 };
            let numbers = [check.cost.min(MAX_UNITS), check.floor.min(MAX_UNITS)];
            let windows = windows(check.counter.quota(), &now_ms);
            request.add(prefix, &check.counter, enforced | whole, windows, numbers);
        }
        if request.keys.len() < request.checks.len() {
            request.mark_repeats();
        }
        request
    }

    /// `before` is what the request took before `taken`, which matters for the refund of a bucket.
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

    /// `windows` are the window and the capacity of the rule, `numbers` its last two numbers.
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

    /// All keys are in one slot of a Cluster. `None` if there are no checks.
    pub(in crate::store::redis) fn key(&self) -> Option<&[u8]> {
        self.keys.first().map(|key| &**key)
    }

    pub(in crate::store::redis) fn size(&self) -> usize {
        self.checks.len()
    }

    pub(super) fn single(&self) -> Option<(&[u8], &RuleBytes)> {
        match (&*self.keys, &*self.rules, &*self.checks) {
            ([key], [rule], [_]) if rule[1] < REFUNDS => Some((key, rule)),
            _ => None,
        }
    }

    pub(super) fn views(&self) -> impl Iterator<Item = (Layout, View)> {
        let rules = self.checks.iter().map(|[_, rule]| &self.rules[usize::from(*rule)]);
        rules.map(|rule| (algorithm_of(rule[0] % WIDE).facts().layout, View::from_flags(rule[1])))
    }
}

/// A digest is not enough to compute what remains if another check changes the same log.
pub(super) fn returns_whole(checks: &[Check], index: usize) -> bool {
    let counter = &checks[index].counter;
    let others = || checks.iter().enumerate().filter(|(other, _)| *other != index);
    counter.quota().facts().layout == Layout::Log && others().any(|(_, other)| other.counter.shares_state(counter))
}

/// A digest lacks the time at which units beyond a floor are replenished.
pub(super) fn returns_whole_after(taken: &ReceiptItem) -> bool {
    taken.floor > 0 && taken.counter.quota().facts().layout == Layout::Log
}

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
        Some(_) => Needs::for_calendars(),
        None if quota.is_wide() => Needs::for_wide(quota.algorithm()),
        None => Needs::for_algorithm(quota.algorithm()),
    }
}

/// For a calendar: the start of the current window, and the minutes of it and of the windows before and after.
fn windows(quota: &Quota, now_ms: impl Fn() -> u64) -> [u64; 2] {
    let Some(calendar) = quota.calendar() else { return [quota.window_ticks(), quota.capacity()] };
    let around = calendar.around(now_ms()).0;
    let minutes = |index: usize| ((around[index + 1] - around[index]) / MINUTE_MS).min(u16::MAX.into());
    [around[1], minutes(0) << 32 | minutes(1) << 16 | minutes(2)]
}

/// `windows` are the window and the capacity, `numbers` the last two numbers.
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

type RedisKey = SmallVec<[u8; 80]>;

/// `<prefix>:{<key>}:<policy>:<shape>`. The prefix has no braces, so the hash tag begins at the first brace.
pub(in crate::store::redis) fn redis_key(prefix: &str, counter: &Counter) -> RedisKey {
    let [open, client, close, state] = name(counter);
    let parts = [prefix.as_bytes(), b":", open, client, close, state];
    let mut key = RedisKey::from_elem(0, parts.iter().map(|part| part.len()).sum());
    let mut rest = &mut *key;
    for part in parts {
        let (start, end) = rest.split_at_mut(part.len());
        start.copy_from_slice(part);
        rest = end;
    }
    key
}
