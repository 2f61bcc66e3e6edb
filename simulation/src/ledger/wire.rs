//! What was asked, read byte by byte as `lua/wire.lua` does.

use crate::server::{Call, Entry};

use super::event::{Algorithm, BanTerms, Rule, Windows};

/// Bytes of a rule: algorithm, flags, and five numbers.
const RULE: usize = 2 + 5 * NUMBER;
pub(super) const NUMBER: usize = 7;
/// In place of a stamp: any.
const NEVER: u64 = 1 << 52;
/// In the limit of a ban's rule there are its strikes and, in multiples of this, the first ban.
const FIRST: u64 = 1 << 18;
/// In the capacity of a ban's rule there are the longest ban and, in multiples of this, its growth.
const GROWTH: u64 = 1 << 35;

/// A check or a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The place of its key, from 0.
    pub(super) key: usize,
    pub(super) rule: Rule,
    pub(super) kind: Kind,
    /// Units to take, or to change by.
    pub(super) units: u64,
    /// The whole of a log is told.
    pub(super) is_whole: bool,
    /// Whether its request ends with it.
    pub(super) is_last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Check {
        enforced: bool,
        floor: u64,
    },
    Refund {
        stamp: Option<u64>,
    },
    Charge,
    Renew {
        stamp: Option<u64>,
    },
    Reset,
    /// The ban of a check.
    Ban(Bar),
    Strike,
}

/// The ban of a check, which stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) enforced: bool,
    /// Whether it is a strike if the check does not fit, or if a unit would not where the check is a look.
    pub(super) counts: bool,
}

impl Asked {
    pub(super) fn is_check(&self) -> bool {
        matches!(self.kind, Kind::Check { .. })
    }

    fn is_change(&self) -> bool {
        !self.is_check() && !matches!(self.kind, Kind::Ban(_))
    }
}

/// Bytes that are read from the front.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, size: usize) -> Result<&'a [u8], String> {
        let (front, rest) = self.0.split_at_checked(size).ok_or("it ends too early")?;
        self.0 = rest;
        Ok(front)
    }

    /// A number of so many bytes.
    pub(super) fn number(&mut self, size: usize) -> Result<u64, String> {
        Ok(self.take(size)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(super) fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }
}

/// What a decision asks of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To take so many units.
    Take(u64),
    /// To give back so many.
    Refund(u64),
    /// To charge so many.
    Charge(u64),
    /// To renew so many.
    Renew(u64),
    /// To forget all.
    Reset,
    /// To look whether it is banned, or to count strikes.
    Ban,
}

/// What a call asks of each key, if it is one of tollgate's.
pub fn wishes<'a>(keys: &'a [impl AsRef<[u8]>], packed: &[u8]) -> Vec<(&'a [u8], Wish)> {
    let mut bytes = Bytes(packed);
    let read = match Entry::of(packed) {
        Entry::Batch | Entry::Bans => batch(&mut bytes, keys.len()),
        Entry::Single | Entry::Singles => singles(&mut bytes, keys.len()),
        Entry::Ratio => Ok(Vec::new()),
    };
    let wish = |asked: &Asked| match asked.kind {
        Kind::Check { .. } => Wish::Take(asked.units),
        Kind::Refund { .. } => Wish::Refund(asked.units),
        Kind::Charge => Wish::Charge(asked.units),
        Kind::Renew { .. } => Wish::Renew(asked.units),
        Kind::Reset => Wish::Reset,
        Kind::Ban(_) | Kind::Strike => Wish::Ban,
    };
    read.unwrap_or_default().iter().map(|asked| (keys[asked.key].as_ref(), wish(asked))).collect()
}

/// Reads what a call asks.
pub(super) fn asked(call: &Call) -> Result<Vec<Asked>, String> {
    let [_, packed] = &*call.args else {
        return Err(format!("a call has two arguments, and this has {}", call.args.len()));
    };
    let read = match call.entry {
        Entry::Batch | Entry::Bans => batch(&mut Bytes(packed), call.keys.len()),
        Entry::Single | Entry::Singles => singles(&mut Bytes(packed), call.keys.len()),
        Entry::Ratio => return Err("a report decides nothing".to_owned()),
    };
    let asked = read.map_err(|error| format!("what a call asks cannot be read: {error}: {packed:?}"))?;
    if call.entry == Entry::Single && asked.len() != 1 {
        return Err(format!("a script for one check is called for {}", asked.len()));
    }
    Ok(asked)
}

fn singles(bytes: &mut Bytes<'_>, keys: usize) -> Result<Vec<Asked>, String> {
    let mut asked = Vec::with_capacity(keys);
    for _ in 0..bytes.byte()? {
        let (check, repeats) = rule(bytes.take(RULE)?)?;
        let count = bytes.byte()?;
        if repeats || !check.is_check() || check.is_whole || count == 0 {
            return Err("only plain checks are decided so".into());
        }
        let first = asked.len();
        asked.extend((first..first + usize::from(count)).map(|key| Asked { key, is_last: true, ..check }));
    }
    if asked.len() != keys || !bytes.0.is_empty() {
        return Err(format!("{} checks of {keys} keys, and {} bytes more", asked.len(), bytes.0.len()));
    }
    Ok(asked)
}

fn batch(bytes: &mut Bytes<'_>, keys: usize) -> Result<Vec<Asked>, String> {
    let count = bytes.byte()?;
    let rules: Vec<_> = (0..count).map(|_| rule(bytes.take(RULE)?)).collect::<Result<_, _>>()?;
    let mut asked: Vec<Asked> = Vec::new();
    while !bytes.0.is_empty() {
        let (first, checks, mut repeating) = (asked.len(), bytes.byte()?, Vec::new());
        for left in (0..checks).rev() {
            let (key, place) = (usize::from(bytes.byte()?), usize::from(bytes.byte()?));
            let (check, repeats) = *place.checked_sub(1).and_then(|place| rules.get(place)).ok_or("no such rule")?;
            if key == 0 || key > keys {
                return Err(format!("{key} is the place of no key"));
            }
            repeating.push(repeats);
            if check.is_change() && checks != 1 {
                return Err("a change stands alone".into());
            }
            asked.push(Asked { key: key - 1, is_last: left == 0, ..check });
        }
        check_repeats(&asked[first..], &repeating)?;
        check_bans(&asked[first..])?;
    }
    Ok(asked)
}

/// Of the checks of a request, those are said to repeat whose key another one has.
fn check_repeats(request: &[Asked], repeating: &[bool]) -> Result<(), String> {
    for (asked, repeats) in request.iter().zip(repeating) {
        if *repeats != (request.iter().filter(|other| other.key == asked.key).count() > 1) {
            return Err(format!("whether key {} repeats is said wrongly", asked.key + 1));
        }
    }
    Ok(())
}

/// Each ban of a request stands before a check.
fn check_bans(request: &[Asked]) -> Result<(), String> {
    let mut bans = request.iter().enumerate().filter(|(_, asked)| matches!(asked.kind, Kind::Ban(_)));
    let are_of_checks = bans.all(|(place, _)| request.get(place + 1).is_some_and(Asked::is_check));
    if are_of_checks { Ok(()) } else { Err("a ban is that of no check".into()) }
}

/// Reads a rule, and whether an earlier check has the same key.
fn rule(bytes: &[u8]) -> Result<(Asked, bool), String> {
    let mut bytes = Bytes(bytes);
    let (number, flags) = (bytes.byte()?, bytes.byte()?);
    let algorithm = Algorithm::numbered(number).ok_or_else(|| format!("{number} is no algorithm"))?;
    let tick_us = if flags & 2 == 0 { 1 } else { 1_000 };
    let mut next = || bytes.number(NUMBER);
    let (window_us, limit, capacity) = (next()? * tick_us, next()?, next()?);
    let (units, last) = (next()?, next()?);
    if window_us == 0 || limit == 0 || capacity == 0 {
        return Err("a window, a limit or a capacity of 0".into());
    }
    if algorithm == Algorithm::Ban {
        let ban = Rule {
            algorithm,
            window_us,
            tick_us,
            limit,
            capacity,
            ban: BanTerms::default(),
            named: Windows::default(),
        };
        return Ok((ban_of(ban, flags, units, last)?, flags & 64 != 0));
    }
    let stamp = (last != NEVER).then_some(last);
    let kind = match flags & 0b11_1000 {
        0 => Kind::Check { enforced: flags & 1 == 1, floor: last },
        8 => Kind::Refund { stamp },
        16 => Kind::Charge,
        24 if algorithm == Algorithm::Concurrency => Kind::Renew { stamp },
        32 => Kind::Reset,
        _ => return Err(format!("no rule has flags {flags}")),
    };
    let rule =
        Rule { algorithm, window_us, tick_us, limit, capacity, ban: BanTerms::default(), named: Windows::default() };
    let rule = if algorithm == Algorithm::Calendar && kind != Kind::Reset { named(rule)? } else { rule };
    Ok((Asked { key: 0, rule, kind, units, is_whole: flags & 4 != 0, is_last: true }, flags & 64 != 0))
}

/// Reads which windows of a calendar a rule names: see `lua/calendar_window.lua`.
fn named(rule: Rule) -> Result<Rule, String> {
    let (second, lengths) = (rule.window_us / rule.tick_us, rule.capacity);
    let lengths = [lengths >> 32, lengths >> 16 & 0xffff, lengths & 0xffff].map(|minutes| minutes * 60_000);
    if rule.tick_us != 1_000 || lengths.contains(&0) || second <= lengths[0] {
        return Err(format!("no calendar has such windows: {rule:?}"));
    }
    let named = Windows { start: second - lengths[0], lengths };
    Ok(Rule { window_us: lengths[1] * 1_000, capacity: rule.limit, named, ..rule })
}

/// Reads what the numbers of a ban's rule say: see `lua/ban.lua` and `lua/bans.lua`.
fn ban_of(rule: Rule, flags: u8, units: u64, last: u64) -> Result<Asked, String> {
    let (code, growth) = (rule.limit % FIRST, rule.capacity / GROWTH);
    let ban = BanTerms { time: rule.limit / FIRST, growth, extends: code % 2 == 1 };
    let rule = Rule { limit: code / 2, capacity: rule.capacity % GROWTH, ban, ..rule };
    if rule.limit == 0 || ban.time == 0 || ban.growth < 1_000 || rule.capacity < ban.time || rule.tick_us != 1_000 {
        return Err(format!("there is no such ban: {rule:?}"));
    }
    let kind = match (flags & 0b11_1100, units) {
        (0, _) if last != 0 => return Err(format!("the last number of a ban is {last}: {rule:?}")),
        (0, 0 | 1) => Kind::Ban(Bar { enforced: flags & 1 == 1, counts: units == 1 }),
        (16, 1) => Kind::Strike,
        (32, 0) => Kind::Reset,
        _ => return Err(format!("no ban has flags {flags} and {units} units")),
    };
    Ok(Asked { key: 0, rule, kind, units, is_whole: false, is_last: true })
}
