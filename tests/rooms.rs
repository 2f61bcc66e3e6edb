//! Arrows between the rooms of the crate point down: a room is a module with all that is in it, and an arrow a path
//! in one that leads to another.
//!
//! A room may have rooms within it. A module that only holds rooms, as the root of the crate, is a face: it shows what
//! is theirs, and paths through it are followed, as are those through the front page of a room with rooms within. Files
//! name what they use by its room, and no files know each other in a circle.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, from the ground up: each knows those before it only.
const ROOMS: [&str; 18] = [
    "core",
    "random",
    "telemetry",
    "store",
    "lookup",
    "limiter",
    "http::key",
    "http::grpc",
    "http::policy",
    "http::headers",
    "http::response",
    "http::gate",
    "http::account",
    "http::admission",
    "http::service",
    "http::layer",
    "http::status",
    "test_util",
];

/// The rooms within a room, likewise.
const WITHIN: [Order<'static>; 1] = [Order {
    within: "store::redis",
    rooms: &["wire", "connections", "pipeline", "cluster", "servers", "engine", "apart", "store", "builder"],
}];

/// What no room below HTTP knows.
const OF_HTTP: [&str; 8] =
    ["axum", "http", "http_body", "http_body_util", "hyper", "tower", "tower_layer", "tower_service"];

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
    /// Whether it is the front page of a folder.
    is_front: bool,
    text: String,
}

impl Source {
    fn new(path: &Path, text: &str) -> Self {
        let mut modules: Vec<String> =
            path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        modules.retain(|module| module != "mod" && module != "lib");
        let is_front = path.ends_with("mod.rs") || path.ends_with("lib.rs");
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
        // Who may see an item is no arrow.
        let kept = kept.join("\n");
        let (before, scoped) = kept.split_once("pub(in ").unwrap_or((&kept, ""));
        let behind = scoped.split("pub(in ").filter_map(|part| part.split_once(')'));
        let text = behind.fold(before.to_owned(), |text, (_, after)| text + after);
        Self { modules, is_front, text }
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

/// Rooms from the ground up, of the crate or of a room.
#[derive(Clone, Copy)]
struct Order<'a> {
    /// The room that they are in; nothing for the crate.
    within: &'a str,
    rooms: &'a [&'a str],
}

impl Order<'_> {
    /// All there are, the crate's first.
    fn all() -> impl Iterator<Item = Order<'static>> {
        [Order { within: "", rooms: &ROOMS }].into_iter().chain(WITHIN)
    }

    /// A room's modules from the root of the crate.
    fn modules<'b>(&'b self, room: &'b str) -> impl Iterator<Item = &'b str> {
        self.within.split("::").chain(room.split("::")).filter(|module| !module.is_empty())
    }

    /// Whether modules are the ones that these rooms are in, or below.
    fn is_around(&self, modules: &[String]) -> bool {
        let mut modules = modules.iter();
        self.modules("").all(|part| modules.next().is_some_and(|module| module == part))
    }

    /// The floor of the room that a path is in.
    fn floor_of(&self, path: &[String]) -> Option<usize> {
        self.rooms.iter().position(|room| {
            let mut modules = path.iter();
            self.modules(room).all(|part| modules.next().is_some_and(|module| module == part))
        })
    }

    /// Whether a file is the way to some of these rooms, and in none of them.
    fn is_face(&self, file: &Source) -> bool {
        let leads = |room: &&str| self.modules(room).take(file.modules.len()).eq(file.modules.iter());
        self.floor_of(&file.modules).is_none() && self.rooms.iter().any(leads)
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

/// What faces show under a path of theirs, and whose it is.
type Shown = BTreeMap<Vec<String>, Vec<String>>;

fn shown_by<'a>(faces: impl Iterator<Item = &'a Source>) -> Shown {
    let mut shown = Shown::new();
    for face in faces {
        for path in face.paths() {
            let is_own = |first: &String| first == "self" || first == "crate" || first == "super";
            let target = if path.first().is_some_and(is_own) {
                face.resolve(&path).unwrap_or_default()
            } else {
                [&face.modules[..], &path].concat()
            };
            if let (Some(name), true) = (target.last(), target.len() > 1) {
                shown.insert([&face.modules[..], std::slice::from_ref(name)].concat(), target.clone());
            }
        }
    }
    shown
}

/// Where a path leads that may go through faces.
fn followed(mut path: Vec<String>, shown: &Shown) -> Vec<String> {
    for _ in 0..4 {
        let known = (1..=path.len()).find_map(|length| Some((length, shown.get(&path[..length])?)));
        let Some((length, target)) = known.filter(|(length, target)| path[..*length] != target[..]) else { break };
        path = [&target[..], &path[length..]].concat();
    }
    path
}

/// All that is wrong with the arrows between files.
fn wrong(sources: &[Source]) -> Vec<String> {
    let shown = shown_by(sources.iter().filter(|source| Order::all().any(|order| order.is_face(source))));
    let mut wrong: Vec<String> = Order::all().flat_map(|order| wrong_by(order, sources, &shown)).collect();
    wrong.sort();
    wrong.dedup();
    wrong
}

fn wrong_by(order: Order<'_>, sources: &[Source], shown: &Shown) -> Vec<String> {
    let mut wrong = Vec::new();
    let own = sources.iter().filter(|source| order.is_around(&source.modules));
    for source in own.filter(|source| !order.is_face(source)) {
        let file = source.modules.join("/");
        let Some(own) = order.floor_of(&source.modules) else {
            wrong.push(format!("{file}: it is in no known room"));
            continue;
        };
        let room = order.rooms[own];
        for path in source.paths() {
            let Some(target) = source.resolve(&path) else {
                let first = path[0].as_str();
                let is_below = ROOMS.iter().position(|room| room.starts_with("http::")).is_some_and(|http| own < http);
                let is_foreign = own == 0 && FOREIGN.contains(&first) || is_below && OF_HTTP.contains(&first);
                if order.within.is_empty() && is_foreign {
                    wrong.push(format!("{file}: {room} knows {}", path.join("::")));
                }
                continue;
            };
            let is_through_root = path[0] == "crate" && shown.contains_key(&target[..target.len().min(1)]);
            if order.within.is_empty() && is_through_root {
                wrong.push(format!("{file}: {} goes through the root of the crate, not to its room", path.join("::")));
                continue;
            }
            let target = followed(target, shown);
            match order.floor_of(&target) {
                Some(other) if other > own => {
                    wrong.push(format!("{file}: {room} knows {} of {}", path.join("::"), order.rooms[other]));
                }
                None if order.is_around(&target) => {
                    wrong.push(format!("{file}: {} is in no known room", path.join("::")));
                }
                _ => {}
            }
        }
    }
    wrong
}

/// The files that lead back to themselves, by way of others. A file with a folder of its name is one with what is there.
fn circles(sources: &[Source]) -> Vec<String> {
    let shown = shown_by(sources.iter().filter(|file| file.is_front));
    let pages = || sources.iter().filter(|file| !file.is_front);
    let is_of_another = |file: &Source| {
        pages().any(|other| other.modules.len() < file.modules.len() && file.modules.starts_with(&other.modules))
    };
    let files: Vec<&Source> = pages().filter(|file| !is_of_another(file)).collect();
    let known_by = |file: &&Source| {
        let own = pages().filter(|page| page.modules.starts_with(&file.modules));
        let paths = own.flat_map(|page| page.paths().into_iter().filter_map(|path| page.resolve(&path)));
        let targets = paths.map(|path| followed(path, &shown));
        let place = |target: Vec<String>| files.iter().position(|other| target.starts_with(&other.modules));
        targets.filter_map(place).collect::<Vec<usize>>()
    };
    let arrows: Vec<Vec<usize>> = files.iter().map(known_by).collect();
    let leads_back = |file: &usize| {
        let others = |from: usize| arrows[from].iter().copied().filter(move |to| *to != from);
        let (mut reached, mut next) = (vec![false; files.len()], others(*file).collect::<Vec<_>>());
        while let Some(other) = next.pop() {
            if !std::mem::replace(&mut reached[other], true) {
                next.extend(others(other));
            }
        }
        reached[*file]
    };
    (0..files.len()).filter(leads_back).map(|file| files[file].modules.join("/")).collect()
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
    assert!(sources.len() > 150 && arrows > 1_000, "{} files and {arrows} paths", sources.len());
}

#[test]
fn no_files_know_each_other_in_a_circle() {
    assert_eq!(circles(&sources()), [""; 0]);
}

#[test]
fn no_room_uses_what_is_for_tests() {
    for source in sources().iter().filter(|source| source.modules.first().is_some_and(|room| room != "test_util")) {
        let uses =
            |path: &Vec<String>| source.resolve(path).is_some_and(|to| to.starts_with(&["test_util".to_owned()]));
        assert!(!source.paths().iter().any(uses), "{}", source.modules.join("/"));
    }
}

#[test]
fn each_room_is_there() {
    let sources = sources();
    for order in Order::all() {
        for (floor, room) in order.rooms.iter().enumerate() {
            let is_there = sources.iter().any(|source| order.floor_of(&source.modules) == Some(floor));
            assert!(is_there, "there is no room {room} within {:?}", order.within);
        }
    }
}

/// The crates of ours that a manifest names in a table of dependencies.
fn siblings<'a>(manifest: &'a str, table: &str) -> Vec<&'a str> {
    let lines = manifest.lines().skip_while(|line| *line != table).skip(1).take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split_once([' ', '.']).map(|(name, _)| name))
        .filter(|name| name.starts_with("tollgate"))
        .collect()
}

#[test]
fn crates_beside_the_root_know_it_alone_and_in_tests_the_suite() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut seen = 0;
    for folder in fs::read_dir(crates).expect("there are crates") {
        let path = folder.expect("a folder").path().join("Cargo.toml");
        let manifest = fs::read_to_string(&path).expect("each has a manifest");
        assert_eq!(siblings(&manifest, "[dependencies]"), ["tollgate"], "{}", path.display());
        let for_tests = siblings(&manifest, "[dev-dependencies]");
        assert!(for_tests.iter().all(|name| ["tollgate", "tollgate-test"].contains(name)), "{}", path.display());
        seen += 1;
    }
    assert!(seen > 0, "no crate was read");
}

#[test]
fn the_root_knows_no_crate_beside_it() {
    let manifest =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml")).expect("it is there");
    assert_eq!(siblings(&manifest, "[dependencies]"), [""; 0]);
    assert_eq!(siblings("[dependencies]\ntollgate-config = \"1\"\n", "[dependencies]"), ["tollgate-config"]);
}

/// What is wrong if a file has this text.
fn planted(path: &str, text: &str) -> Vec<String> {
    planted_all(&[(path, text)])
}

/// What is wrong if files have these texts.
fn planted_all(files: &[(&str, &str)]) -> Vec<String> {
    let faces = [
        ("lib.rs", "pub use self::core::{Error, Key};\npub use self::http::{RateLimitLayer, policy};"),
        ("http/mod.rs", "pub mod policy;\npub use self::layer::RateLimitLayer;"),
        ("store/mod.rs", "pub use redis::{Credentials, RedisStore};\npub use traits::Store;"),
        ("store/redis/mod.rs", "pub use connections::Credentials;\npub use store::RedisStore;"),
    ];
    wrong(&sources_of(faces.iter().chain(files)))
}

fn sources_of<'a>(files: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> Vec<Source> {
    files.into_iter().map(|(path, text)| Source::new(Path::new(path), text)).collect()
}

#[test]
fn an_arrow_upward_is_found_however_it_is_written() {
    for text in [
        "use crate::policy::Policy;",
        "    use crate::{policy::Policy};",
        "use crate::{\n    core::Error,\n    policy::{self, Policy as Rule},\n};",
        "use super::super::http::policy::Policy;",
        "use super::super::{core, http::policy};",
        "fn take(policy: &crate::policy::Policy) {}",
        "use crate::RateLimitLayer;",
        "use crate::{Error, Key};",
        "use crate::http::RateLimitLayer;",
        "use crate::http::policy::Policy;",
        "pub(crate) use crate::http::layer::RateLimitLayer;",
        "fn take(policy: &super::super::http::policy::Policy) {}",
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
    assert_eq!(planted("core.rs", "use crate::telemetry;").len(), 1);
    assert_eq!(planted("http/key/header.rs", "use super::super::policy::Policy;").len(), 1);
    assert_eq!(planted("http/key/header.rs", "use crate::http::layer;").len(), 1);
    assert_eq!(planted("cellar/one.rs", "").len(), 1);
    assert_eq!(planted("http/cellar.rs", "").len(), 1);
}

#[test]
fn an_arrow_upward_between_rooms_within_a_room_is_found() {
    for text in [
        "use crate::store::redis::connections::Link;",
        "use super::super::connections::Link;",
        "use crate::store::redis::{cluster::slot_of, pipeline};",
        "fn of(store: &crate::store::RedisStore) {}",
        "use crate::store::{Check, Credentials};",
        "use super::super::store;",
        "use super::super::other::X;",
        "pub(in crate::store::redis) use super::super::pipeline::Job;",
        "pub(in crate::store::redis) fn f() {}\npub(in crate::store) fn g(job: super::super::pipeline::Job) {}",
    ] {
        assert!(!planted("store/redis/wire/reply.rs", text).is_empty(), "{text}");
    }
    assert_eq!(planted("store/redis/engine.rs", "use super::apart::Part;").len(), 1);
    assert_eq!(planted("store/redis/other.rs", "").len(), 1, "it is in no known room");
    for text in [
        "use super::wire::Request;",
        "use super::{cluster, servers::Servers};",
        "use crate::store::Store;",
        "pub(in crate::store::redis) struct Engine;",
    ] {
        assert_eq!(planted("store/redis/engine.rs", text), [""; 0], "{text}");
    }
}

#[test]
fn a_circle_between_rooms_within_a_room_is_found() {
    let down = ("store/redis/pipeline/job.rs", "use crate::store::redis::wire::Request;");
    let up = ("store/redis/wire/packed.rs", "use crate::store::redis::pipeline::Job;");
    assert_eq!(planted_all(&[down]), [""; 0]);
    assert_eq!(
        planted_all(&[down, up]),
        ["store/redis/wire/packed: wire knows crate::store::redis::pipeline::Job of pipeline"]
    );
}

#[test]
fn a_circle_of_files_is_found_also_through_a_front_page() {
    let front = ("store/redis/pipeline/mod.rs", "mod job;\nmod pipe;\npub(super) use job::Job;");
    let job = ("store/redis/pipeline/job.rs", "use super::calls::Call;");
    let call = ("store/redis/pipeline/calls.rs", "use super::pipe::{self, Pipe};");
    let below = ("store/redis/pipeline/pipe.rs", "use super::timeout::Timeout;");
    let lane = ("store/redis/pipeline/pipe.rs", "use crate::store::redis::pipeline::Job;");
    assert_eq!(circles(&sources_of(&[front, job, call, below])), [""; 0]);
    let circle = ["job", "calls", "pipe"].map(|file| format!("store/redis/pipeline/{file}"));
    assert_eq!(circles(&sources_of(&[front, job, call, lane])), circle);
}

#[test]
fn a_circle_through_a_file_with_a_folder_is_found() {
    let pool = ("limiter/flow/pool.rs", "mod tasks;\nuse super::pools::Home;");
    let tasks = ("limiter/flow/pool/tasks.rs", "use super::Pool;\nuse super::super::line::Out;");
    let pools = ("limiter/flow/pools.rs", "use super::checks::Each;");
    let circle = ("limiter/flow/pools.rs", "use super::pool::Pool;");
    let line = ("limiter/flow/line.rs", "use super::pools::Pools;");
    assert_eq!(circles(&sources_of(&[pool, tasks, pools, line])), [""; 0]);
    let names = ["pool", "pools"].map(|file| format!("limiter/flow/{file}"));
    assert_eq!(circles(&sources_of(&[pool, tasks, circle])), names);
    let below = ["pool", "line", "pools"].map(|file| format!("limiter/flow/{file}"));
    let pool = ("limiter/flow/pool.rs", "mod tasks;");
    assert_eq!(circles(&sources_of(&[pool, tasks, line, circle])), below);
}

#[test]
fn other_arrows_are_right() {
    for text in [
        "use crate::core::{Error, Key};",
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

/// A section of the crate's manifest, line by line.
fn section(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let text = fs::read_to_string(path).expect("it is text");
    let behind = text.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
    let lines = behind.take_while(|line| !line.starts_with('[')).map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn no_more_than_16_dependencies_are_mandatory() {
    let all = section("dependencies");
    assert!(all.iter().all(|line| line.contains(" = ") && line.matches('"').count() >= 2), "one a line: {all:#?}");
    let mandatory: Vec<_> = all.iter().filter(|line| !line.contains("optional = true")).collect();
    assert!((1..=16).contains(&mandatory.len()), "{}: {mandatory:#?}", mandatory.len());
}

#[test]
fn each_feature_is_linted_alone_and_documented() {
    let read = |file: &str| {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)).expect("it is text")
    };
    let (ci, readme, docs) = (read(".ci/run"), read("README.md"), read("src/lib.rs"));
    let linted = ci.lines().find_map(|line| line.strip_prefix("for features in ")).expect("features are linted alone");
    let features = section("features");
    let default = features.iter().find(|line| line.starts_with("default = ")).expect("some are the default");
    for feature in features.iter().filter_map(|line| line.split_once(" = ").map(|(name, _)| name)) {
        if feature != "default" {
            let is_linted = linted.split([' ', ';']).any(|name| name == feature);
            assert!(is_linted, "{feature} is not linted alone");
            let is_default = if default.contains(&format!("\"{feature}\"")) { "yes" } else { "no" };
            let row = format!("| `{feature}` | {is_default} |");
            assert!(readme.contains(&row) && docs.contains(&row), "{feature} is not documented");
        }
    }
    assert!(features.len() > 8, "{features:#?}");
}
