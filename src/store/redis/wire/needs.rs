//! What a call to Redis needs of the Lua files.

use crate::core::algorithm::Algorithm;

/// The algorithms by their numbers in the tables of `lua/wire.lua`, from 1.
const ALGORITHMS: [Algorithm; Algorithm::EACH.len()] = {
    let (mut numbered, mut place) = ([Algorithm::EACH[0]; Algorithm::EACH.len()], 0);
    while place < numbered.len() {
        let algorithm = Algorithm::EACH[place];
        // One whose number leaves some out does not compile.
        numbered[algorithm.facts().number as usize - 1] = algorithm;
        place += 1;
    }
    numbered
};

/// What is asked is one check, which takes a script of its own.
const SINGLE: u16 = 1 << ALGORITHMS.len();

/// What is asked are requests of one check each, over keys that are all different.
const SINGLES: u16 = 2 * SINGLE;

/// A set of algorithms, and what is done with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs(u16);

impl Needs {
    /// How many sets there are.
    pub(super) const SETS: usize = 2 * SINGLES as usize;

    /// All that can be done with an algorithm.
    pub(super) fn of(algorithm: Algorithm) -> Self {
        Self(1 << (algorithm.facts().number - 1))
    }

    /// All that can be done with any.
    pub(super) fn all() -> Self {
        Self(SINGLE - 1)
    }

    /// Those of each algorithm alone.
    pub(super) fn each() -> impl Iterator<Item = Self> {
        ALGORITHMS.into_iter().map(Self::of).flat_map(Self::entries)
    }

    /// All that is called for the same algorithms.
    pub(super) fn entries(self) -> [Self; 3] {
        [self, self.singles(1), self.singles(2)]
    }

    /// So many decisions over one check each, of keys that are all different, and nothing else.
    pub(super) fn singles(self, count: usize) -> Self {
        Self(self.0 | if count == 1 { SINGLE } else { SINGLES })
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set as a number.
    pub(super) fn set(self) -> usize {
        self.0.into()
    }

    /// The function that does it: the name of an entry in `lua/`.
    pub(super) fn entry(self) -> &'static str {
        match self.0 & (SINGLE | SINGLES) {
            0 => "batch",
            SINGLE => "single",
            _ => "singles",
        }
    }

    /// Whether a function in a table of `lua/wire.lua` is called.
    pub(super) fn call(self, function: &str) -> bool {
        let suffix = ["_adjust", "_room"].into_iter().find(|suffix| function.ends_with(suffix));
        let algorithm = function.strip_suffix(suffix.unwrap_or_default()).unwrap_or(function);
        let named = ALGORITHMS.into_iter().find(|named| named.name() == algorithm);
        named.is_none_or(|named| self.0 & Self::of(named).0 != 0)
    }
}

/// The algorithm that has this number.
pub(super) fn algorithm_of(number: u8) -> Algorithm {
    ALGORITHMS[usize::from(number) - 1]
}
