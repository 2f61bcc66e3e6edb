//! The source of scripts, put together from the files of `lua/`.
//!
//! What a call needs comes in; Lua source goes out. Redis runs a script as one function, and Lua
//! makes every function within it anew in each call, used or not, with a reference to each outer
//! name that it uses. So a script has only the statements that it needs, and constants are written
//! into it as their values.
//!
//! This takes little knowledge of Lua, and relies on how the files are written: every top-level
//! statement begins with `local` at the start of a line, a name is defined before it is used,
//! constants are in capitals on one line, and a table of functions has one entry a line.
//!
//! What a call needs are the algorithms of its checks, and the entry that decides them. It is a set of bits, so that
//! joining the needs of many requests costs nothing, and the number of different scripts is bounded:
//!
//! | bits | what |
//! | --- | --- |
//! | 0 to 6 | an algorithm, by its number less 1; with that of bans the entry is `lua/bans.lua` |
//! | 7 | the call is one decision over one check: `lua/single.lua` |
//! | 8 | the call is decisions over one check each, of different keys: `lua/singles.lua` |
//! | 9 | the algorithms decide levels that may reach 2^52, too: `lua/wide.lua` |
//! | 10 | windows of a calendar, in place of those of an algorithm |

use std::collections::{BTreeMap, BTreeSet};

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
    fn lone(self) -> Option<&'static str> {
        let algorithm = ALGORITHMS.into_iter().find(|algorithm| self.0 == Self::of(*algorithm).0 | SINGLE)?;
        match algorithm.facts().layout {
            Layout::Falling => Some("lone_level"),
            Layout::Count => Some("lone_count"),
            _ => None,
        }
    }

    /// Returns whether a function in a table of `lua/wire.lua` may be called: one that is not an
    /// algorithm's, or whose algorithm is in the set; one for large levels only if those are, too.
    fn call(self, function: &str) -> bool {
        let (function, bit) = function.strip_prefix("wide_").map_or((function, 0), |narrow| (narrow, WIDE));
        let suffix = ["_adjust", "_room"].into_iter().find(|suffix| function.ends_with(suffix));
        let algorithm = function.strip_suffix(suffix.unwrap_or_default()).unwrap_or(function);
        if algorithm == CALENDAR_WINDOW {
            return self.0 & CALENDAR != 0;
        }
        let named = ALGORITHMS.into_iter().find(|named| named.as_str() == algorithm);
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

/// Names and contents of files of `lua/`, which are compiled into the crate.
macro_rules! lua {
    ($($name:literal,)+) => {
        &[$(($name, include_str!(concat!("../../../../lua/", $name, ".lua")))),+]
    };
}

/// The files in the order in which a script has them; entries come last. A name is used only after
/// the statement that defines it.
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

/// Returns the script for some needs: the statements, and a line that calls the entry. What may decide the call without
/// them stands before them, as Lua then makes none of their functions.
pub(super) fn script_for(needs: Needs, entry: &str) -> String {
    let usual = needs.lone().map_or_else(String::new, |lone| {
        let statements = statements_for(needs, &[lone]);
        format!("{statements}local usual = {lone}(KEYS, ARGV)\nif usual then\n  return usual\nend\n")
    });
    format!("{usual}{}return {entry}(KEYS, ARGV)\n", statements_for(needs, &[entry]))
}

/// Returns the statements that some entries need, in the order of the files, without a line that
/// calls an entry.
///
/// It goes through the statements from the last to the first: one that defines a name needed by an
/// entry, or by a statement kept before, is kept. Entries of tables whose algorithm is not in
/// `needs` are left out, and with them the functions that only they use.
pub(super) fn statements_for(needs: Needs, entries: &[&str]) -> String {
    // Without hash maps, as scripts are made once in a process: see `crate::core::random`.
    let (constants, statements) = read();
    let mut needed: BTreeSet<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
    let mut kept = Vec::new();
    // A statement stands before all that use it.
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

/// Returns the constants of all files by name, and all other statements.
fn read() -> (BTreeMap<&'static str, String>, Vec<&'static str>) {
    let (constant, statements): (Vec<_>, Vec<_>) =
        FILES.iter().flat_map(|(_, file)| statements(file)).partition(|statement| is_constant(statement));
    (constant.into_iter().flat_map(values).collect(), statements)
}

/// Returns a statement without comments, and without the lines of its table that name functions of
/// algorithms that are not needed.
fn without_idle(statement: &str, needs: Needs) -> String {
    let code = statement.split_inclusive('\n').filter(|line| is_code(line));
    code.filter(|line| entry(line).is_none_or(|function| needs.call(function))).collect()
}

/// Returns whether a line is neither empty nor a comment.
fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("--")
}

/// Returns the function that a line of a table names: `  [1] = fixed_window,`.
fn entry(line: &str) -> Option<&str> {
    let (_, function) = line.strip_prefix("  ")?.strip_suffix(",\n")?.split_once(" = ")?;
    (words(function).next() == Some(function)).then_some(function)
}

/// The statements of a file: each begins with `local` at the start of a line.
fn statements(file: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = file.match_indices("\nlocal ").map(|(place, _)| place + 1).collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([file.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| &file[start..end])
}

/// Returns the names that a statement defines.
fn names(statement: &str) -> Vec<&str> {
    let line = statement.lines().next().unwrap_or_default().trim_start_matches("local ");
    match line.strip_prefix("function ") {
        Some(function) => words(function).take(1).collect(),
        None => words(line.split('=').next().unwrap_or_default()).collect(),
    }
}

/// Whether a statement gives names to numbers or strings: `local KEPT, FRESH = 0, 1`.
fn is_constant(statement: &str) -> bool {
    names(statement).iter().all(|name| *name == name.to_uppercase()) && !statement.contains('{')
}

/// Returns the constants that a statement defines, with their values.
fn values(statement: &str) -> impl Iterator<Item = (&str, String)> {
    let line = statement.lines().next().unwrap_or_default();
    let values = line.split(" = ").nth(1).unwrap_or_default().split(", ");
    names(statement).into_iter().zip(values.map(|value| {
        // A formula, which Lua works out while it compiles.
        if value.contains(' ') { format!("({value})") } else { value.to_owned() }
    }))
}

/// Returns code in which each name of a constant is replaced by its value.
fn with_constants(code: &str, constants: &BTreeMap<&str, String>) -> String {
    let pieces = code.split_inclusive(is_between);
    pieces.fold(String::with_capacity(code.len()), |text, piece| {
        let word = piece.trim_end_matches(is_between);
        text + constants.get(word).map_or(word, String::as_str) + &piece[word.len()..]
    })
}

/// Returns whether a character separates words of Lua.
fn is_between(c: char) -> bool {
    !c.is_ascii_alphanumeric() && c != '_'
}

/// Returns the words of a text: names, keywords and numbers.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_between).filter(|word| !word.is_empty())
}
