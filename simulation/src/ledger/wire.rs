//! What was asked, read byte by byte as `lua/wire.lua` does.

use crate::server::{Call, Entry};

use super::event::{Algorithm, Rule};

/// Bytes of a rule: algorithm, flags, and five numbers.
const RULE: usize = 2 + 5 * NUMBER;
pub(super) const NUMBER: usize = 7;
/// In place of a stamp: any.
const NEVER: u64 = 1 << 52;

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
    Check { enforced: bool, floor: u64 },
    Refund { stamp: Option<u64> },
    Charge,
    Renew { stamp: Option<u64> },
    Reset,
}

impl Asked {
    pub(super) fn is_check(&self) -> bool {
        matches!(self.kind, Kind::Check { .. })
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
}

/// What a call asks of each key, if it is one of tollgate's.
pub fn wishes<'a>(keys: &'a [impl AsRef<[u8]>], packed: &[u8]) -> Vec<(&'a [u8], Wish)> {
    let mut bytes = Bytes(packed);
    let read = match Entry::of(packed) {
        Entry::Batch => batch(&mut bytes, keys.len()),
        Entry::Single | Entry::Singles => singles(&mut bytes, keys.len()),
    };
    let wish = |asked: &Asked| match asked.kind {
        Kind::Check { .. } => Wish::Take(asked.units),
        Kind::Refund { .. } => Wish::Refund(asked.units),
        Kind::Charge => Wish::Charge(asked.units),
        Kind::Renew { .. } => Wish::Renew(asked.units),
        Kind::Reset => Wish::Reset,
    };
    read.unwrap_or_default().iter().map(|asked| (keys[asked.key].as_ref(), wish(asked))).collect()
}

/// Reads what a call asks.
pub(super) fn asked(call: &Call) -> Result<Vec<Asked>, String> {
    let [_, packed] = &*call.args else {
        return Err(format!("a call has two arguments, and this has {}", call.args.len()));
    };
    let read = match call.entry {
        Entry::Batch => batch(&mut Bytes(packed), call.keys.len()),
        Entry::Single | Entry::Singles => singles(&mut Bytes(packed), call.keys.len()),
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
        let (first, checks) = (asked.len(), bytes.byte()?);
        for left in (0..checks).rev() {
            let (key, place) = (usize::from(bytes.byte()?), usize::from(bytes.byte()?));
            let (check, repeats) = *place.checked_sub(1).and_then(|place| rules.get(place)).ok_or("no such rule")?;
            if key == 0 || key > keys {
                return Err(format!("{key} is the place of no key"));
            }
            if repeats != asked[first..].iter().any(|other| other.key == key - 1) {
                return Err(format!("whether key {key} repeats is said wrongly"));
            }
            if !check.is_check() && checks != 1 {
                return Err("a change stands alone".into());
            }
            asked.push(Asked { key: key - 1, is_last: left == 0, ..check });
        }
    }
    Ok(asked)
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
    let stamp = (last != NEVER).then_some(last);
    let kind = match flags & 0b11_1000 {
        0 => Kind::Check { enforced: flags & 1 == 1, floor: last },
        8 => Kind::Refund { stamp },
        16 => Kind::Charge,
        24 if algorithm == Algorithm::Concurrency => Kind::Renew { stamp },
        32 => Kind::Reset,
        _ => return Err(format!("no rule has flags {flags}")),
    };
    let rule = Rule { algorithm, window_us, tick_us, limit, capacity };
    Ok((Asked { key: 0, rule, kind, units, is_whole: flags & 4 != 0, is_last: true }, flags & 64 != 0))
}
