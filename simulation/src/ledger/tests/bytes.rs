//! How calls are written.

use crate::server::{Call, Entry};

/// In place of a stamp: any.
pub(super) const NEVER: u64 = 1 << 52;
pub(super) const S: u64 = 1_000_000;
/// A whole number of minutes after the epoch.
pub(super) const START: u64 = 1_699_999_980 * S;

/// A rule: algorithm, flags, window, limit, capacity, units, and the floor or stamp.
pub(super) type Rule = (u8, u8, [u64; 5]);

pub(super) fn number(size: usize, number: u64) -> Vec<u8> {
    number.to_be_bytes()[8 - size..].to_vec()
}

fn rule((algorithm, flags, numbers): Rule) -> Vec<u8> {
    let numbers = numbers.into_iter().flat_map(|n| number(7, n));
    [algorithm, flags].into_iter().chain(numbers).collect()
}

/// One request of one check.
pub(super) fn single(at_us: u64, key: &str, rule_of: Rule, flags: u8, view: &[u8]) -> Call {
    let args = vec![vec![], [vec![1], rule(rule_of), vec![1]].concat()];
    let reply = [number(7, at_us), vec![flags], view.to_vec()].concat();
    Call { at_us, entry: Entry::Single, keys: vec![key.into()], args, reply }
}

/// Any requests: `checks` as `lua/wire.lua` has them.
pub(super) fn batch(at_us: u64, keys: &[&str], rules: &[Rule], checks: &[u8], flags: &[u8], views: &[&[u8]]) -> Call {
    let rules_packed = rules.iter().flat_map(|of| rule(*of)).collect();
    let args = vec![vec![], [vec![u8::try_from(rules.len()).unwrap()], rules_packed, checks.to_vec()].concat()];
    let reply = [number(7, at_us), flags.to_vec(), views.concat()].concat();
    Call { at_us, entry: Entry::Batch, keys: keys.iter().map(|key| key.as_bytes().to_vec()).collect(), args, reply }
}

/// The state of a fixed window.
pub(super) fn fixed(start: u64, count: u64) -> Vec<u8> {
    [number(6, (start % (1 << 44)) << 4), number(6, count)].concat()
}

/// The state of a bucket.
pub(super) fn level(time: u64, level: u64) -> Vec<u8> {
    [number(7, time), number(7, level), number(7, time + 100 * S)].concat()
}

/// The state of a sliding window.
pub(super) fn sliding(time: u64, count: u64, previous: u64) -> Vec<u8> {
    [number(7, time), number(6, count), number(6, previous)].concat()
}

/// What is told of a log.
pub(super) fn digest(last: u64, live: u64, newest: u64, leaving: u64) -> Vec<u8> {
    [last % (1 << 44), live, newest % (1 << 44), leaving % (1 << 44)].into_iter().flat_map(|n| number(6, n)).collect()
}
