//! Script sources, assembled from the files of `lua/`.
//!
//! Redis runs a script as one function, in which Lua creates each inner function on each call, used or not, with a
//! reference to each outer name that it uses. So a script has only the statements that it needs, and constants are
//! inlined.
//!
//! The parser does not parse all of Lua. It relies on the format of the files: every top-level statement begins with
//! `local` at the start of a line, a name is defined before it is used, constants are in capitals on one line, and a
//! table of functions has one entry per line.
//!
//! The needs of a call are its algorithms and its entry. They are a set of bits, so that the needs of many requests are
//! joined cheaply, and the number of scripts is bounded:
//!
//! | bits | need |
//! | --- | --- |
//! | 0 and on | an algorithm, by its number less 1; with the algorithm of bans the entry is `lua/bans.lua` |
//! | `SINGLE` | the call is one decision over one check: `lua/single.lua` |
//! | `SINGLES` | the call is decisions over one check each, of different keys: `lua/singles.lua` |
//! | `WIDE` | the levels may reach 2^52: `lua/wide.lua` |
//! | `CALENDAR` | windows of a calendar, in place of an algorithm |

use std::collections::{BTreeMap, BTreeSet};

use crate::core::algorithm::{Algorithm, Layout};

/// Ordered by number, as in the tables of `lua/wire.lua`, which begin with 1.
const ALGORITHMS: [Algorithm; Algorithm::WITH_BAN.len()] = {
    let (mut numbered, mut place) = ([Algorithm::WITH_BAN[0]; Algorithm::WITH_BAN.len()], 0);
    while place < numbered.len() {
        let algorithm = Algorithm::WITH_BAN[place];
        // A number beyond the end does not compile.
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

const SINGLE: u16 = 1 << ALGORITHMS.len();

const SINGLES: u16 = 2 * SINGLE;

const WIDE: u16 = 2 * SINGLES;

const CALENDAR: u16 = 2 * WIDE;

/// Bans. Excludes `SINGLE` and `SINGLES`.
const BAN: u16 = 1 << (Algorithm::WITH_BAN[Algorithm::WITH_BAN.len() - 1].facts().number - 1);

const CALENDAR_WINDOW: &str = "calendar_window";

/// Algorithms and the entry. Without an entry's bit, the entry is `batch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs(u16);

impl Needs {
    pub(super) const SETS: usize = 2 * CALENDAR as usize;

    pub(super) fn for_wide(algorithm: Algorithm) -> Self {
        Self(Self::for_algorithm(algorithm).0 | WIDE)
    }

    pub(super) fn for_calendars() -> Self {
        Self(CALENDAR)
    }

    pub(super) fn for_algorithm(algorithm: Algorithm) -> Self {
        Self(1 << (algorithm.facts().number - 1))
    }

    pub(super) fn all() -> Self {
        Self((SINGLE - 1) & !BAN | WIDE | CALENDAR)
    }

    pub(super) fn bans(self) -> Self {
        Self(self.0 | BAN)
    }

    pub(super) fn singles(self, count: usize) -> Self {
        Self(self.0 | if count == 1 { SINGLE } else { SINGLES })
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn set(self) -> usize {
        self.0.into()
    }

    pub(super) fn entry(self) -> &'static str {
        match self.0 & (SINGLE | SINGLES | BAN) {
            0 => "batch",
            BAN => "bans",
            SINGLE => "single",
            _ => "singles",
        }
    }

    /// Returns the fast path that runs before the entry: only for one check of one algorithm.
    fn lone(self) -> Option<&'static str> {
        let algorithm =
            ALGORITHMS.into_iter().find(|algorithm| self.0 == Self::for_algorithm(*algorithm).0 | SINGLE)?;
        match algorithm.facts().layout {
            Layout::Falling => Some("lone_level"),
            Layout::Count => Some("lone_count"),
            _ => None,
        }
    }

    /// Returns `true` if a table of `lua/wire.lua` keeps this function.
    fn call(self, function: &str) -> bool {
        let (function, bit) = function.strip_prefix("wide_").map_or((function, 0), |narrow| (narrow, WIDE));
        let suffix = ["_adjust", "_room"].into_iter().find(|suffix| function.ends_with(suffix));
        let algorithm = function.strip_suffix(suffix.unwrap_or_default()).unwrap_or(function);
        if algorithm == CALENDAR_WINDOW {
            return self.0 & CALENDAR != 0;
        }
        let named = ALGORITHMS.into_iter().find(|named| named.as_str() == algorithm);
        named.is_none_or(|named| self.0 & Self::for_algorithm(named).0 != 0 && self.0 & bit == bit)
    }
}

/// Panics without such an algorithm. Numbers are from rules that this process wrote.
pub(super) fn algorithm_of(number: u8) -> Algorithm {
    ALGORITHMS[usize::from(number) - 1]
}

macro_rules! lua {
    ($($name:literal,)+) => {
        &[$(($name, include_str!(concat!("../../../../lua/", $name, ".lua")))),+]
    };
}

/// In the order of a script, where names are defined before they are used. Entries are last.
pub(super) const FILES: &[(&str, &str)] = lua! {
    "prelude",
    "falling",
    "fixed_window",
    "calendar_window",
    "token_bucket",
    "sliding_window",
    "sliding_log",
    "leaky_bucket",
    "concurrency",
    "wide",
    "ban",
    "wire",
    "decide",
    "adjust",
    "batch",
    "bans",
    "lone_level",
    "lone_count",
    "single",
    "singles",
};

pub(super) fn script_for(needs: Needs, entry: &str) -> String {
    // The fast path is first because Lua then creates no later function if it returns.
    let usual = needs.lone().map_or_else(String::new, |lone| {
        let statements = statements_for(needs, &[lone]);
        format!("{statements}local usual = {lone}(KEYS, ARGV)\nif usual then\n  return usual\nend\n")
    });
    format!("{usual}{}return {entry}(KEYS, ARGV)\n", statements_for(needs, &[entry]))
}

/// Collects, from last to first, statements that an entry or a collected statement needs, without algorithms that are
/// not needed.
pub(super) fn statements_for(needs: Needs, entries: &[&str]) -> String {
    // No hash maps, because scripts are made once in a process: see `crate::core::random`.
    let (constants, statements) = read();
    let mut needed: BTreeSet<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
    let mut kept = Vec::new();
    // A statement precedes all its uses.
    for statement in statements.into_iter().rev() {
        if names(statement).iter().any(|name| needed.contains(*name)) {
            let statement = with_constants(&without_idle(statement, needs), &constants);
            needed.extend(words(&statement).map(str::to_owned));
            kept.push(statement);
        }
    }
    kept.reverse();
    kept.concat()
}

fn read() -> (BTreeMap<&'static str, String>, Vec<&'static str>) {
    let (constant, statements): (Vec<_>, Vec<_>) =
        FILES.iter().flat_map(|(_, file)| statements(file)).partition(|statement| is_constant(statement));
    (constant.into_iter().flat_map(values).collect(), statements)
}

fn without_idle(statement: &str, needs: Needs) -> String {
    let code = statement.split_inclusive('\n').filter(|line| is_code(line));
    code.filter(|line| entry(line).is_none_or(|function| needs.call(function))).collect()
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("--")
}

/// A line like `  [1] = fixed_window,`.
fn entry(line: &str) -> Option<&str> {
    let (_, function) = line.strip_prefix("  ")?.strip_suffix(",\n")?.split_once(" = ")?;
    (words(function).next() == Some(function)).then_some(function)
}

fn statements(file: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = file.match_indices("\nlocal ").map(|(place, _)| place + 1).collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([file.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| &file[start..end])
}

fn names(statement: &str) -> Vec<&str> {
    let line = statement.lines().next().unwrap_or_default().trim_start_matches("local ");
    match line.strip_prefix("function ") {
        Some(function) => words(function).take(1).collect(),
        None => words(line.split('=').next().unwrap_or_default()).collect(),
    }
}

/// A statement like `local KEPT, FRESH = 0, 1`.
fn is_constant(statement: &str) -> bool {
    names(statement).iter().all(|name| *name == name.to_uppercase()) && !statement.contains('{')
}

fn values(statement: &str) -> impl Iterator<Item = (&str, String)> {
    let line = statement.lines().next().unwrap_or_default();
    let values = line.split(" = ").nth(1).unwrap_or_default().split(", ");
    names(statement).into_iter().zip(values.map(|value| {
        // A formula, which Lua computes when it compiles.
        if value.contains(' ') { format!("({value})") } else { value.to_owned() }
    }))
}

fn with_constants(code: &str, constants: &BTreeMap<&str, String>) -> String {
    let pieces = code.split_inclusive(is_between);
    pieces.fold(String::with_capacity(code.len()), |text, piece| {
        let word = piece.trim_end_matches(is_between);
        text + constants.get(word).map_or(word, String::as_str) + &piece[word.len()..]
    })
}

fn is_between(c: char) -> bool {
    !c.is_ascii_alphanumeric() && c != '_'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_between).filter(|word| !word.is_empty())
}
