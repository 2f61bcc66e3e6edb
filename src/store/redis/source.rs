//! Scripts, put together from `lua/`.
//!
//! Lua makes every function of a script anew in each call, used or not. So a script has only the
//! statements it needs.

use std::collections::HashSet;

/// The files in the order in which a script has them; an entry comes last.
const FILES: [&str; 6] = [
    include_str!("../../../lua/prelude.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/sliding_window.lua"),
    include_str!("../../../lua/sliding_log.lua"),
    include_str!("../../../lua/leaky_bucket.lua"),
];

/// The script that calls `function` of `entry`. Its table of algorithms, the statement that defines
/// `table`, is replaced by `algorithms`.
pub(super) fn script(entry: &str, function: &str, table: &str, algorithms: &str) -> String {
    let statements: Vec<&str> = FILES.iter().flat_map(|file| statements(file)).chain(statements(entry)).collect();
    let call = format!("return {function}(KEYS, ARGV)\n");
    let mut needed: HashSet<&str> = words(&call).collect();
    let mut kept = Vec::new();
    // A statement stands before all that use it.
    for statement in statements.into_iter().rev() {
        let names = names(statement);
        if names.iter().any(|name| needed.contains(name)) {
            let statement = if names.contains(&table) { algorithms } else { statement };
            needed.extend(words(statement));
            kept.push(statement);
        }
    }
    kept.reverse();
    kept.concat() + &call
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

    const ENTRY: &str = "-- An entry.\n\nlocal TABLE = { fixed_window, token_bucket }\n\nlocal function go(keys)\n  \
                         return TABLE[1](keys)\nend\n";

    #[test]
    fn a_script_has_what_it_needs_and_no_more() {
        let script = script(ENTRY, "go", "TABLE", "local TABLE = { token_bucket }\n");
        for needed in ["local function token_bucket(", "local function read_falling(", "local NEVER", "return go("] {
            assert!(script.contains(needed), "{needed}");
        }
        for idle in ["function fixed_window", "token_bucket_adjust", "sliding", "leaky", "read_clock"] {
            assert!(!script.contains(idle), "{idle}");
        }
    }

    #[test]
    fn no_statement_of_any_file_is_lost() {
        for file in FILES {
            let code = file.lines().filter(|line| !line.starts_with("--") && !line.is_empty()).count();
            let kept = statements(file).flat_map(str::lines).filter(|line| !line.starts_with("--") && !line.is_empty());
            assert_eq!(kept.count(), code);
        }
    }
}
