//! What is sent to the scripts and what they answer, byte by byte as `lua/decide.lua` has it.

use std::collections::HashMap;

use ahash::RandomState;

use crate::algorithm::{Adjustment, Found, MOST_UNITS};
use crate::decision::Measures;
use crate::quota::{Algorithm, Quota, Tick};
use crate::store::{Change, Check, Counter, Mode};

/// Bytes of a number.
const NUMBER: usize = 7;

/// Bytes of one check.
const CHECK: usize = 4 + 5 * NUMBER;

/// Bytes of one check's answer.
const ANSWER: usize = 1 + 5 * NUMBER;

/// The most checks of one request: their number is one byte.
pub(super) const MOST_CHECKS: usize = 255;

const ENFORCED: u8 = 1;
const MILLIS: u8 = 2;

/// The format of keys and states; a new one starts with fresh state.
const FORMAT: u8 = 1;

/// One request as the script reads it.
#[derive(Debug, Default)]
pub(super) struct Packed {
    pub(super) keys: Vec<String>,
    pub(super) bytes: Vec<u8>,
    pub(super) algorithms: Algorithms,
}

impl Packed {
    pub(super) fn request(prefix: &str, checks: &[Check]) -> Self {
        let mut packed = Packed::default();
        packed.bytes.push(u8::try_from(checks.len()).expect("the number of checks was tested"));
        for check in checks {
            let place = packed.place_of(redis_key(prefix, &check.counter));
            packed.bytes.extend(place.to_be_bytes());
            let enforced = if check.mode == Mode::Enforce { ENFORCED } else { 0 };
            packed.put_quota(&check.counter.quota, enforced);
            packed.put(check.cost.min(MOST_UNITS));
            packed.put(check.floor.min(MOST_UNITS));
        }
        packed
    }

    /// Many requests as one: a key that several ask for stands there once.
    pub(super) fn batch<'a>(requests: impl Iterator<Item = &'a Packed>) -> Self {
        let mut batch = Packed::default();
        let mut places: HashMap<&str, u16, RandomState> = HashMap::default();
        for request in requests {
            let from = batch.bytes.len();
            batch.bytes.extend(&request.bytes);
            batch.algorithms.0 |= request.algorithms.0;
            for check in batch.bytes[from + 1..].chunks_exact_mut(CHECK) {
                let key = &request.keys[usize::from(u16::from_be_bytes([check[0], check[1]])) - 1];
                let place = *places.entry(key).or_insert_with(|| {
                    batch.keys.push(key.clone());
                    u16::try_from(batch.keys.len()).expect("a batch has few keys")
                });
                check[..2].copy_from_slice(&place.to_be_bytes());
            }
        }
        batch
    }

    /// Bytes of the answer to a request.
    pub(super) fn answer_size(&self) -> usize {
        usize::from(self.bytes[0]) * ANSWER
    }

    pub(super) fn adjustment(prefix: &str, counter: &Counter, change: Change, stamp: Option<u64>) -> Self {
        let mut packed = Packed { keys: vec![redis_key(prefix, counter)], ..Packed::default() };
        packed.put_quota(&counter.quota, 0);
        let Adjustment { refund, charge, stamp } = Adjustment::new(change, stamp);
        packed.put(refund);
        packed.put(charge);
        packed.put(stamp);
        packed
    }

    /// The place of a key among the keys, from 1; a key stands there once.
    fn place_of(&mut self, key: String) -> u16 {
        let found = self.keys.iter().position(|other| *other == key);
        let place = found.unwrap_or_else(|| {
            self.keys.push(key);
            self.keys.len() - 1
        });
        u16::try_from(place + 1).expect("a request has at most 255 keys")
    }

    fn put_quota(&mut self, quota: &Quota, enforced: u8) {
        let millis = if quota.tick() == Tick::Milli { MILLIS } else { 0 };
        self.bytes.extend([number_of(quota.algorithm()), enforced | millis]);
        self.algorithms.0 |= Algorithms::of(quota.algorithm()).0;
        self.put(quota.window_ticks());
        self.put(quota.limit());
        self.put(quota.capacity());
    }

    fn put(&mut self, number: u64) {
        self.bytes.extend(&number.to_be_bytes()[8 - NUMBER..]);
    }
}

/// The answer to one check.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) measures: Measures,
    pub(super) stamp: u64,
    pub(super) found: Found,
}

/// Reads the answers to `count` checks; `None` if it is no such thing.
pub(super) fn read_answers(bytes: &[u8], count: usize) -> Option<impl Iterator<Item = Answered> + '_> {
    (bytes.len() == count * ANSWER).then(|| bytes.chunks_exact(ANSWER).map(read_answer))
}

fn read_answer(bytes: &[u8]) -> Answered {
    let number = |index: usize| {
        let from = 1 + index * NUMBER;
        bytes[from..from + NUMBER].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    };
    let measures =
        Measures { fits: bytes[0] & 1 == 1, remaining: number(0), wait: number(1), reset: number(2), delay: number(3) };
    let found = match bytes[0] >> 1 {
        0 => Found::Kept,
        1 => Found::Fresh,
        2 => Found::Ahead,
        _ => Found::Foreign,
    };
    Answered { measures, stamp: number(4), found }
}

/// `<prefix>:{<key>}:<policy>:<shape>`: all policies over one key share a slot of a Cluster.
pub(super) fn redis_key(prefix: &str, counter: &Counter) -> String {
    let Counter { policy, key, quota } = counter;
    let tick = match quota.tick() {
        Tick::Micro => 'u',
        Tick::Milli => 'm',
    };
    let (letter, window) = (letter_of(quota.algorithm()), quota.window_ticks());
    format!("{prefix}:{{{key}}}:{policy}:{FORMAT}{letter}{window}{tick}")
}

/// The algorithms in the order of the tables in `decide.lua` and `adjust.lua`, from 1.
pub(super) const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::TokenBucket,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::LeakyBucket,
];

/// A set of algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Algorithms(u8);

impl Algorithms {
    pub(super) fn of(algorithm: Algorithm) -> Self {
        Self(1 << (number_of(algorithm) - 1))
    }

    /// The set as a number.
    pub(super) fn set(self) -> usize {
        self.0.into()
    }

    /// A table's statement in Lua with the functions of these algorithms only.
    pub(super) fn table(self, name: &str, suffix: &str) -> String {
        let contained = ALGORITHMS.iter().zip(1..).filter(|(_, number)| self.0 >> (number - 1) & 1 == 1);
        let entries = contained.map(|(algorithm, number)| format!("[{number}] = {}{suffix}", algorithm.name()));
        format!("local {name} = {{ {} }}\n", entries.collect::<Vec<_>>().join(", "))
    }
}

fn number_of(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::FixedWindow => 1,
        Algorithm::TokenBucket => 2,
        Algorithm::SlidingWindow => 3,
        Algorithm::SlidingLog => 4,
        Algorithm::LeakyBucket => 5,
    }
}

fn letter_of(algorithm: Algorithm) -> char {
    match algorithm {
        Algorithm::FixedWindow => 'f',
        Algorithm::TokenBucket => 't',
        Algorithm::SlidingWindow => 's',
        Algorithm::SlidingLog => 'l',
        Algorithm::LeakyBucket => 'q',
    }
}
