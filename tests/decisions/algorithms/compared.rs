//! What is true of an algorithm is said in one place.

use std::fs;
use std::path::{Path, PathBuf};

/// Where algorithms may be named: in their table, and by the constructors of `Quota`.
const MAY_NAME: [&str; 2] = ["core/algorithm/mod.rs", "core/quota/build.rs"];

/// The files below a folder, but for those of tests.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// Whether a line names a variant of `Algorithm`.
fn names_one(line: &str) -> bool {
    let mut variants = line.match_indices("Algorithm::").map(|(place, path)| &line.as_bytes()[place + path.len()..]);
    variants
        .any(|name| matches!(name, [first, second, ..] if first.is_ascii_uppercase() && second.is_ascii_lowercase()))
}

#[test]
fn nothing_compares_algorithms_rather_than_to_consult_their_facts() {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("src"));
    let source = folders.find(|source| source.join("core/algorithm").is_dir()).expect("the crate is around its tests");
    let mut compared = Vec::new();
    for path in files(&source) {
        let place = path.strip_prefix(&source).expect("it is below").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("it is text");
        let code = text.split("\nmod tests {").next().unwrap_or_default();
        let is_code = |line: &str| !line.trim_start().starts_with("//");
        let names = |line: &str| is_code(line) && names_one(line);
        let lines = code.lines().enumerate().filter(|(_, line)| !MAY_NAME.contains(&&*place) && names(line));
        compared.extend(lines.map(|(number, line)| format!("src/{place}:{}: {}", number + 1, line.trim())));
    }
    assert_eq!(compared, [""; 0], "give `Facts` a field that says what is meant");
}
