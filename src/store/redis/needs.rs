//! What a call to Redis needs of the Lua files.

use crate::quota::Algorithm;

/// The algorithms by their numbers in the tables of `lua/batch.lua`, from 1.
const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::TokenBucket,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::LeakyBucket,
];

const SEVERAL: u8 = 1 << ALGORITHMS.len();
const ADJUSTS: u8 = SEVERAL << 1;

/// A set of algorithms, and what is done with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs(u8);

impl Needs {
    /// How many sets there are.
    pub(super) const SETS: usize = 2 * ADJUSTS as usize;

    /// Decides requests of one check of this algorithm.
    pub(super) fn of(algorithm: Algorithm) -> Self {
        Self(1 << (number_of(algorithm) - 1))
    }

    pub(super) fn all() -> Self {
        Self(ADJUSTS | (ADJUSTS - 1))
    }

    /// One check of each algorithm.
    pub(super) fn each() -> impl Iterator<Item = Self> {
        ALGORITHMS.into_iter().map(Self::of)
    }

    /// Requests of several checks too.
    pub(super) fn several(self) -> Self {
        Self(self.0 | SEVERAL)
    }

    /// Adjustments too.
    pub(super) fn adjustments(self) -> Self {
        Self(self.0 | ADJUSTS)
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set as a number.
    pub(super) fn set(self) -> usize {
        self.0.into()
    }

    /// Whether a function of a table in `lua/batch.lua` is called.
    pub(super) fn call(self, function: &str) -> bool {
        match function {
            "decide_checks" => self.0 & SEVERAL != 0,
            "adjust_key" => self.0 & ADJUSTS != 0,
            _ => {
                let adjusts = function.strip_suffix("_adjust");
                let algorithm = ALGORITHMS.iter().find(|algorithm| algorithm.name() == adjusts.unwrap_or(function));
                let adjusted = adjusts.is_none() || self.0 & ADJUSTS != 0;
                algorithm.is_none_or(|algorithm| adjusted && self.0 & Self::of(*algorithm).0 != 0)
            }
        }
    }
}

pub(super) fn algorithm_of(number: u8) -> Algorithm {
    ALGORITHMS[usize::from(number) - 1]
}

/// The number an algorithm has in the tables of `lua/batch.lua`.
pub(super) fn number_of(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::FixedWindow => 1,
        Algorithm::TokenBucket => 2,
        Algorithm::SlidingWindow => 3,
        Algorithm::SlidingLog => 4,
        Algorithm::LeakyBucket => 5,
    }
}
