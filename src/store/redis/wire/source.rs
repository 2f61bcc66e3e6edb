//! Scripts, put together from `lua/`.
//!
//! Lua makes every function of a script anew in each call, used or not, and with it its hold on each
//! name it takes from around it. So a script has only the statements it needs, and constants stand in
//! it as what they are.

use std::collections::{HashMap, HashSet};

use super::needs::Needs;

/// Files of `lua/` by their names.
macro_rules! lua {
    ($($name:literal,)+) => {
        &[$(($name, include_str!(concat!("../../../../lua/", $name, ".lua")))),+]
    };
}

/// The files in the order in which a script has them; entries come last.
pub(super) const FILES: &[(&str, &str)] = lua! {
    "prelude",
    "falling",
    "fixed_window",
    "token_bucket",
    "sliding_window",
    "sliding_log",
    "leaky_bucket",
    "wire",
    "decide",
    "adjust",
    "batch",
    "single",
    "singles",
};

/// The statements that some entries need for what is asked, without the lines that call them.
pub(super) fn statements_for(needs: Needs, entries: &[&str]) -> String {
    let (constants, statements) = read();
    let mut needed: HashSet<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
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

/// What the files say: constants by name, and all other statements.
fn read() -> (HashMap<&'static str, String>, Vec<&'static str>) {
    let (constant, statements): (Vec<_>, Vec<_>) =
        FILES.iter().flat_map(|(_, file)| statements(file)).partition(|statement| is_constant(statement));
    (constant.into_iter().flat_map(values).collect(), statements)
}

/// A statement without comments, and without the lines of its table that name what is not needed.
fn without_idle(statement: &str, needs: Needs) -> String {
    let code = statement.split_inclusive('\n').filter(|line| is_code(line));
    code.filter(|line| entry(line).is_none_or(|function| needs.call(function))).collect()
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("--")
}

/// The function that a line of a table names: `  [1] = fixed_window,`.
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

/// What a statement defines.
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

/// Names and what they stand for.
fn values(statement: &str) -> impl Iterator<Item = (&str, String)> {
    let line = statement.lines().next().unwrap_or_default();
    let values = line.split(" = ").nth(1).unwrap_or_default().split(", ");
    names(statement).into_iter().zip(values.map(|value| {
        // A formula, which Lua works out while it compiles.
        if value.contains(' ') { format!("({value})") } else { value.to_owned() }
    }))
}

fn with_constants(code: &str, constants: &HashMap<&str, String>) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::algorithm::Algorithm;

    #[test]
    fn a_script_has_what_it_needs_and_no_more() {
        let script = statements_for(Needs::of(Algorithm::TokenBucket), &["single"]);
        let needed = ["local function token_bucket(", "local function read_falling(", "[2] = token_bucket,"];
        for needed in needed {
            assert!(script.contains(needed), "{needed}");
        }
        for idle in ["fixed_window", "token_bucket_adjust", "sliding", "leaky", "decide_check", "function batch"] {
            assert!(!script.contains(idle), "{idle}");
        }
        assert_eq!(script.matches("\nlocal function single(").count(), 1);
    }

    #[test]
    fn no_statement_of_any_file_is_lost_where_all_is_needed() {
        let script = statements_for(Needs::all(), &["batch", "single", "singles"]);
        let (constants, statements) = read();
        for line in statements.iter().flat_map(|statement| statement.lines()).filter(|line| is_code(line)) {
            assert!(script.contains(&with_constants(line, &constants)), "{line}");
        }
    }

    #[test]
    fn constants_stand_as_what_they_are() {
        let script = statements_for(Needs::all(), &["batch", "single", "singles"]);
        let (constants, _) = read();
        assert_eq!((&*constants["FRESH"], &*constants["NEVER"]), ("1", "(2 ^ 52)"));
        assert!(words(&script).all(|word| !constants.contains_key(word)));
        assert!(script.contains("if level >= (2 ^ 52) then\n    return now, 0, 3, 0\n"));
        assert!(script.contains("local ALGORITHMS = {"));
    }
}
