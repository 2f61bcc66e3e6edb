//! Scripts, put together from `lua/`.
//!
//! Lua makes every function of a script anew in each call, used or not. So a script has only the
//! statements it needs.

use std::collections::HashSet;

use super::needs::Needs;

/// The files in the order in which a script has them; entries come last.
const FILES: [&str; 13] = [
    include_str!("../../../lua/prelude.lua"),
    include_str!("../../../lua/falling.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/sliding_window.lua"),
    include_str!("../../../lua/sliding_log.lua"),
    include_str!("../../../lua/leaky_bucket.lua"),
    include_str!("../../../lua/wire.lua"),
    include_str!("../../../lua/decide.lua"),
    include_str!("../../../lua/adjust.lua"),
    include_str!("../../../lua/batch.lua"),
    include_str!("../../../lua/single.lua"),
    include_str!("../../../lua/singles.lua"),
];

/// The statements that some entries need for what is asked, without the lines that call them.
pub(super) fn statements_for(needs: Needs, entries: &[&str]) -> String {
    let statements: Vec<&str> = FILES.iter().flat_map(|file| statements(file)).collect();
    let mut needed: HashSet<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
    let mut kept = Vec::new();
    // A statement stands before all that use it.
    for statement in statements.into_iter().rev() {
        if names(statement).iter().any(|name| needed.contains(*name)) {
            let statement = without_idle(statement, needs);
            needed.extend(words(&statement).map(str::to_owned));
            kept.push(statement);
        }
    }
    kept.reverse();
    kept.concat()
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

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Algorithm;

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
        for line in FILES.iter().flat_map(|file| file.lines()).filter(|line| is_code(line)) {
            assert!(script.contains(line), "{line}");
        }
    }
}
