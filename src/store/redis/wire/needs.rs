//! What a call to Redis needs of the Lua files: the algorithms of its checks, and the entry that
//! decides them.
//!
//! It comes from requests, and becomes the number of a script (`script.rs`) and the choice of its
//! statements (`source.rs`). It is a set of bits, so that joining the needs of many requests costs
//! nothing, and the number of different scripts is bounded.
//!
//! | bits | what |
//! | --- | --- |
//! | 0 to 6 | an algorithm, by its number less 1; with that of bans the entry is `lua/bans.lua` |
//! | 7 | the call is one decision over one check: `lua/single.lua` |
//! | 8 | the call is decisions over one check each, of different keys: `lua/singles.lua` |
//! | 9 | the algorithms decide levels that may reach 2^52, too: `lua/wide.lua` |
//! | 10 | windows of a calendar, in place of those of an algorithm |

use crate::core::algorithm::{Algorithm, Layout};

/// The algorithms in the order of their numbers in the tables of `lua/wire.lua`, which begin with
/// 1.
const ALGORITHMS: [Algorithm; Algorithm::WITH_BAN.len()] = {
    let (mut numbered, mut place) = ([Algorithm::WITH_BAN[0]; Algorithm::WITH_BAN.len()], 0);
    while place < numbered.len() {
        let algorithm = Algorithm::WITH_BAN[place];
        // One whose number leaves some out does not compile.
        numbered[algorithm.facts().number as usize - 1] = algorithm;
        place += 1;
    }
    place = 0;
    while place < numbered.len() {
        assert!(numbered[place].facts().number as usize == place + 1, "two algorithms have the same number");
        place += 1;
    }
    numbered
};

/// The bit of a call that is a single decision over one check, which has a script of its own.
const SINGLE: u16 = 1 << ALGORITHMS.len();

/// The bit of a call that is decisions over one check each, whose keys are all different.
const SINGLES: u16 = 2 * SINGLE;

/// The bit of a call that decides levels which may reach 2^52.
const WIDE: u16 = 2 * SINGLES;

/// The bit of windows of a calendar, which have functions of their own.
const CALENDAR: u16 = 2 * WIDE;

/// The bit of a call in which there are bans, whose number is the last; it has neither of those of decisions over one
/// check.
const BAN: u16 = SINGLE / 2;

/// What those functions are named after.
const CALENDAR_WINDOW: &str = "calendar_window";

/// A set of algorithms, and the entry that is called: with none of their bits, `batch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs(u16);

impl Needs {
    /// How many sets there are, and so how many scripts there can be.
    pub(super) const SETS: usize = 2 * CALENDAR as usize;

    /// Returns the needs of any call over one algorithm whose levels may reach 2^52.
    pub(super) fn of_wide(algorithm: Algorithm) -> Self {
        Self(Self::of(algorithm).0 | WIDE)
    }

    /// Returns the needs of any call over windows of a calendar, as a batch.
    pub(super) fn of_calendars() -> Self {
        Self(CALENDAR)
    }

    /// Returns whether calendars are needed.
    pub(super) fn has_calendars(self) -> bool {
        self.0 & CALENDAR != 0
    }

    /// Returns the needs of any call over one algorithm, with aligned windows.
    pub(super) fn of(algorithm: Algorithm) -> Self {
        Self(1 << (algorithm.facts().number - 1))
    }

    /// Returns the needs of any batch without bans, whatever its algorithms.
    pub(super) fn all() -> Self {
        Self((SINGLE - 1) & !BAN | WIDE | CALENDAR)
    }

    /// Returns the needs of the same calls with bans.
    pub(super) fn bans(self) -> Self {
        Self(self.0 | BAN)
    }

    /// Returns the same algorithms with each of the entries but that for bans: batch, single, singles.
    pub(super) fn entries(self) -> [Self; 3] {
        [self, self.singles(1), self.singles(2)]
    }

    /// Returns the needs of `count` decisions over one check each, whose keys are all different.
    pub(super) fn singles(self, count: usize) -> Self {
        Self(self.0 | if count == 1 { SINGLE } else { SINGLES })
    }

    /// Returns what both sets need together.
    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the set as a number below [`SETS`](Self::SETS).
    pub(super) fn set(self) -> usize {
        self.0.into()
    }

    /// Returns the function that decides the call: the name of an entry in `lua/`.
    pub(super) fn entry(self) -> &'static str {
        match self.0 & (SINGLE | SINGLES | BAN) {
            0 => "batch",
            BAN => "bans",
            SINGLE => "single",
            _ => "singles",
        }
    }

    /// Returns the function that decides a usual call before its entry is asked, if there is one: it is
    /// of a decision over one check, whose algorithm is the only one here.
    pub(super) fn lone(self) -> Option<&'static str> {
        let algorithm = ALGORITHMS.into_iter().find(|algorithm| self.0 == Self::of(*algorithm).0 | SINGLE)?;
        match algorithm.facts().layout {
            Layout::Falling => Some("lone_level"),
            Layout::Count => Some("lone_count"),
            _ => None,
        }
    }

    /// Returns whether a function in a table of `lua/wire.lua` may be called: one that is not an
    /// algorithm's, or whose algorithm is in the set; one for large levels only if those are, too.
    pub(super) fn call(self, function: &str) -> bool {
        let (function, bit) = function.strip_prefix("wide_").map_or((function, 0), |narrow| (narrow, WIDE));
        let suffix = ["_adjust", "_room"].into_iter().find(|suffix| function.ends_with(suffix));
        let algorithm = function.strip_suffix(suffix.unwrap_or_default()).unwrap_or(function);
        if algorithm == CALENDAR_WINDOW {
            return self.has_calendars();
        }
        let named = ALGORITHMS.into_iter().find(|named| named.name() == algorithm);
        named.is_none_or(|named| self.0 & Self::of(named).0 != 0 && self.0 & bit == bit)
    }
}

/// Returns the algorithm that has this number, from 1.
///
/// # Panics
///
/// If there is none: numbers come from rules that this process wrote.
pub(super) fn algorithm_of(number: u8) -> Algorithm {
    ALGORITHMS[usize::from(number) - 1]
}
