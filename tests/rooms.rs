//! Arrows between the rooms of the crate point down: a room is a file or folder of `src`, and an arrow a path in
//! one that leads to another.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, from the ground up: each knows those before it only.
const ROOMS: [&str; 18] = [
    "core",
    "metrics",
    "store",
    "lookup",
    "key",
    "grpc",
    "policy",
    "headers",
    "gate",
    "account",
    "admission",
    "response",
    "status",
    "future",
    "service",
    "limiter",
    "layer",
    "config",
];

/// What the ground floor knows nothing of.
const FOREIGN: [&str; 16] = [
    "axum",
    "bytes",
    "deadpool",
    "deadpool_redis",
    "http",
    "http_body",
    "http_body_util",
    "hyper",
    "metrics",
    "moka",
    "tokio",
    "tokio_rustls",
    "tower",
    "tower_layer",
    "tower_service",
    "tracing",
];

/// A file of the crate, without what only tests see.
struct Source {
    /// Its modules from the root of the crate: the first is the room.
    modules: Vec<String>,
    text: String,
}

impl Source {
    fn new(path: &Path, text: &str) -> Self {
        let mut modules: Vec<String> =
            path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        modules.retain(|module| module != "mod" && module != "lib");
        let text = without_texts(text);
        let mut lines = text.lines();
        let mut kept = Vec::new();
        while let Some(line) = lines.next() {
            if !line.starts_with("#[cfg(test)]") && !line.starts_with("#[cfg(all(test") {
                kept.push(line);
            } else if !line.ends_with(']') {
                // It is on the same line.
            } else if lines.next().is_some_and(|item| item.ends_with('{')) {
                // It ends where it began.
                lines.by_ref().find(|line| line.starts_with('}'));
            }
        }
        Self { modules, text: kept.join("\n") }
    }

    fn room(&self) -> &str {
        self.modules.first().map_or("lib", String::as_str)
    }

    /// All paths that it uses, as they are written.
    fn paths(&self) -> Vec<Vec<String>> {
        let (mut paths, mut others) = (Vec::new(), String::new());
        let mut rest = &self.text[..];
        while let Some((before, after)) = split_use(rest) {
            let (tree, next) = after.split_once(';').unwrap_or((after, ""));
            expand(tree, &[], &mut paths);
            others.push_str(before);
            rest = next;
        }
        others.push_str(rest);
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for path in others.split(|c| !is_path(c)).filter(|path| path.contains("::")) {
            paths.push(path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect());
        }
        paths
    }

    /// The modules, and perhaps a name, that a path leads to from here; `None` for another crate's.
    fn resolve(&self, path: &[String]) -> Option<Vec<String>> {
        let mut from = match path.first()?.as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" | "super" => self.modules.clone(),
            _ => return None,
        };
        let mut rest = path;
        while let [first, others @ ..] = rest {
            match first.as_str() {
                "self" => {}
                "super" => drop(from.pop()),
                _ => break,
            }
            rest = others;
        }
        from.extend_from_slice(rest);
        Some(from)
    }
}

/// Rust without its comments, and with nothing in its strings.
fn without_texts(text: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let raw =
            rest.strip_prefix('r').map(|after| after.trim_start_matches('#')).filter(|after| after.starts_with('"'));
        let is_word = kept.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let (Some(after), false) = (raw, is_word) {
            let end = format!("\"{}", "#".repeat(rest.len() - after.len() - 1));
            rest.len() - after.len() + 1 + after[1..].find(&end).map_or(after.len() - 1, |place| place + end.len())
        } else if c == '"' {
            let mut is_escaped = false;
            let is_end = |c: char| {
                let ends = c == '"' && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                ends
            };
            rest[1..].find(is_end).map_or(rest.len(), |place| place + 2)
        } else if ["'\"'", "'\\\"'", "b'\"'"].iter().any(|quote| rest.starts_with(quote)) {
            rest.find('"').map_or(1, |place| place + 2)
        } else {
            kept.push(c);
            c.len_utf8()
        };
        rest = &rest[length..];
    }
    kept
}

/// What is before the next `use`, and what is after it.
fn split_use(text: &str) -> Option<(&str, &str)> {
    let is_start = |place: &usize| text[..*place].chars().next_back().is_none_or(char::is_whitespace);
    let place = text.match_indices("use ").map(|(place, _)| place).find(is_start)?;
    Some((&text[..place], &text[place + 4..]))
}

/// Adds the paths of a tree, such as `a::{b, c::d as e}`.
fn expand(tree: &str, before: &[String], paths: &mut Vec<Vec<String>>) {
    let parts = |text: &str| {
        let parts = text.split("::").map(str::trim).filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect::<Vec<_>>()
    };
    let Some((start, group)) = tree.trim().split_once('{') else {
        let name = tree.trim().split(" as ").next().unwrap_or_default();
        return paths.push([before, &parts(name)].concat());
    };
    let start = start.trim().trim_end_matches("::");
    let before = if start.is_empty() { before.to_vec() } else { [before, &parts(start)].concat() };
    let (mut depth, mut from) = (0, 0);
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    for (place, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&group[from..place], &before, paths);
                from = place + 1;
            }
            _ => {}
        }
    }
    if !group[from..].trim().is_empty() {
        expand(&group[from..], &before, paths);
    }
}

/// All that is wrong with the arrows between files.
fn wrong(sources: &[Source]) -> Vec<String> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for path in sources.iter().filter(|source| source.room() == "lib").flat_map(Source::paths) {
        // The root of the crate shows what is of a room.
        let path: Vec<_> = path.into_iter().filter(|part| part != "self" && part != "crate").collect();
        if let ([room, .., name], true) = (&path[..], path.len() > 1) {
            names.insert(name.clone(), room.clone());
        }
    }
    let floor = |room: &str| ROOMS.iter().position(|known| *known == room);
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.room() != "lib") {
        let (room, file) = (source.room(), source.modules.join("/"));
        let Some(own) = floor(room) else {
            wrong.push(format!("{file}: {room} is no known room"));
            continue;
        };
        for path in source.paths() {
            let Some(target) = source.resolve(&path) else {
                if own == 0 && FOREIGN.contains(&path[0].as_str()) {
                    wrong.push(format!("{file}: {room} knows {}", path.join("::")));
                }
                continue;
            };
            let Some(first) = target.first() else {
                wrong.push(format!("{file}: {} names all rooms", path.join("::")));
                continue;
            };
            let to = names.get(first).unwrap_or(first);
            match floor(to) {
                Some(other) if other > own => wrong.push(format!("{file}: {room} knows {} of {to}", path.join("::"))),
                Some(_) => {}
                None => wrong.push(format!("{file}: {} is in no known room", path.join("::"))),
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    wrong
}

/// The files below a folder, but for those of tests.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        let name = path.file_stem().unwrap_or_default();
        if name == "tests" || name == "models" {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("it is text");
        Source::new(path.strip_prefix(&root).expect("it is below"), &text)
    };
    files(&root).into_iter().map(read).collect()
}

#[test]
fn arrows_between_rooms_point_down() {
    let sources = sources();
    let wrong = wrong(&sources);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Nothing was read as nothing.
    let arrows: usize = sources.iter().map(|source| source.paths().len()).sum();
    assert!(sources.len() > 200 && arrows > 1_000, "{} files and {arrows} paths", sources.len());
}

#[test]
fn each_room_is_there() {
    let sources = sources();
    for room in ROOMS {
        assert!(sources.iter().any(|source| source.room() == room), "there is no room {room}");
    }
}

/// What is wrong if a file has this text.
fn planted(path: &str, text: &str) -> Vec<String> {
    let lib = Source::new(Path::new("lib.rs"), "pub use layer::RateLimitLayer;\npub use self::core::{Error, Key};");
    wrong(&[lib, Source::new(Path::new(path), text)])
}

#[test]
fn an_arrow_upward_is_found_however_it_is_written() {
    for text in [
        "use crate::policy::Policy;",
        "    use crate::{policy::Policy};",
        "use crate::{\n    core::Error,\n    policy::{self, Policy as Rule},\n};",
        "use super::super::policy::Policy;",
        "use super::super::{core, policy};",
        "fn take(policy: &crate::policy::Policy) {}",
        "use crate::RateLimitLayer;",
        "pub(crate) use crate::layer::RateLimitLayer;",
        "fn take(policy: &super::super::policy::Policy) {}",
        "use crate as all;",
        "fn text() { f(\"//\", crate::policy::X) }",
        "#[cfg(test)]\nuse crate::{\n    core::Key,\n};\nuse crate::policy::Policy;",
        "#[cfg(test)] mod t;\nuse crate::policy::Policy;",
        "const A: &str = r#\"\"#; use crate::policy::Policy;",
        "#[cfg(test)]\nmod models;\nuse crate::policy::Policy;",
        "#[cfg(test)]\nmod tests {\n}\nuse crate::policy::Policy;",
    ] {
        assert!(!planted("store/traits.rs", text).is_empty(), "{text}");
    }
    for text in [
        "use tokio::time::Instant;",
        "use ::tokio::time::Instant;",
        "fn now() -> tokio::time::Instant {}",
        "fn log() { tracing::warn!(\"//\"); }",
    ] {
        assert_eq!(planted("core/check.rs", text).len(), 1, "{text}");
    }
    assert_eq!(planted("core.rs", "use crate::metrics;").len(), 1);
    assert_eq!(planted("cellar/one.rs", "").len(), 1);
}

#[test]
fn other_arrows_are_right() {
    for text in [
        "use crate::core::{Error, Key};",
        "use crate::{Error, Key};",
        "use super::{Answer, Check};",
        "use std::sync::Arc;\nuse tokio::time::Instant;",
        "// use crate::policy::Policy;",
        "/// [`Policy`](crate::Policy)",
        "fn text() { f(\"use crate::policy::Policy;\") }",
        "fn text() { f(r#\"a \"crate::policy::Policy\"\"#) }",
        "#[cfg(test)]\nmod tests {\n    use crate::policy::Policy;\n}",
    ] {
        assert_eq!(planted("store/traits.rs", text), [""; 0], "{text}");
    }
}
