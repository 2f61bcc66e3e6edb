//! What may use what: crates of the workspace, the modules of the root crate and their files, and its dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemUse, Macro, UseTree, Visibility};

/// Modules in the order in which they may use one another: each uses only those before it.
const ORDERS: [(&str, &[&str]); 3] = [
    ("", &["core", "telemetry", "store", "limiter", "http", "test_util", "guide"]),
    (
        "http",
        &[
            "key",
            "grpc",
            "policy",
            "headers",
            "response",
            "events",
            "gate",
            "account",
            "admission",
            "service",
            "layer",
            "status",
        ],
    ),
    ("store::redis", &["wire", "connections", "pipeline", "cluster", "servers", "engine", "apart", "store", "builder"]),
];

/// What no module but `http` uses of other crates, and what `core` does not use either.
const OF_HTTP: [&str; 6] = ["axum", "http", "http_body", "hyper", "tonic", "tower"];
const NOT_IN_CORE: [&str; 6] = ["bytes", "deadpool_redis", "metrics", "moka", "tokio", "tracing"];

type Names = Vec<String>;

/// A file of the root crate, without what only tests see.
struct File {
    /// Its module, from the root of the crate.
    module: Names,
    /// Whether other files of its folder are modules of it.
    is_front: bool,
    /// The paths that it uses, from the root of the crate or from another crate.
    paths: BTreeSet<Names>,
}

impl File {
    fn new(path: &str, text: &str) -> Self {
        let mut module: Names = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        let is_front = module.pop_if(|name| name == "mod" || name == "lib").is_some();
        let mut file = Self { module, is_front, paths: BTreeSet::new() };
        file.visit_file(&syn::parse_file(text).expect("it is Rust"));
        file
    }

    fn name(&self) -> String {
        self.module.join("::")
    }

    /// Adds a path as it is written here.
    fn add(&mut self, path: &[String]) {
        let start = match path.first().map(String::as_str) {
            Some("crate") => Names::new(),
            Some("self" | "super") => self.module.clone(),
            _ => {
                self.paths.insert(path.to_vec());
                return;
            }
        };
        let add = |mut path: Names, name: &String| {
            match name.as_str() {
                "crate" | "self" => {}
                "super" => drop(path.pop()),
                _ => path.push(name.clone()),
            }
            path
        };
        let path = path.iter().fold(start, add);
        self.paths.insert([vec!["crate".to_owned()], path].concat());
    }

    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &dyn ToString| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree)),
            UseTree::Name(name) => self.add(&with(&name.ident)),
            UseTree::Rename(renamed) => self.add(&with(&renamed.ident)),
            UseTree::Glob(_) => self.add(before),
        }
    }

    /// Adds the paths in the tokens of a macro, which have not been parsed.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (Names::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(name) if colons == 2 || path.is_empty() => {
                    path.push(name.to_string());
                    colons = 0;
                }
                token => {
                    self.add_long(&std::mem::take(&mut path));
                    colons = 0;
                    match token {
                        TokenTree::Group(group) => self.add_tokens(group.stream()),
                        TokenTree::Ident(name) => path.push(name.to_string()),
                        _ => {}
                    }
                }
            }
        }
        self.add_long(&path);
    }

    /// Adds a path in code: one name alone is a local one, or comes by a `use`.
    fn add_long(&mut self, path: &[String]) {
        if path.len() > 1 {
            self.add(path);
        }
    }
}

/// Whether an item is only there in tests.
fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        attribute.path().is_ident("cfg") && (text == "test" || text.starts_with("all (test"))
    })
}

impl<'ast> Visit<'ast> for File {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_of_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !matches!(item, ImplItem::Fn(item) if is_of_tests(&item.attrs)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add_long(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.add_tokens(call.tokens.clone());
    }

    /// Who may see an item is no use.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    /// What documentation links to is no use.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// What front pages show under a path of theirs, and where it is.
type Shown = BTreeMap<Names, Names>;

fn shown_by(files: &[File]) -> Shown {
    let fronts = files.iter().filter(|file| file.is_front && !file.module.is_empty());
    let of = |file: &File| {
        let own = file.paths.iter().filter(|path| path[0] == "crate");
        own.map(|path| ([&file.module, &path[path.len() - 1..]].concat(), path[1..].to_vec())).collect::<Vec<_>>()
    };
    fronts.flat_map(of).filter(|(path, target)| path != target).collect()
}

/// Where a path leads that may go through front pages.
fn followed(path: &[String], shown: &Shown) -> Names {
    let mut path = path.to_vec();
    for _ in 0..4 {
        let Some((length, target)) = (1..=path.len()).find_map(|length| Some((length, shown.get(&path[..length])?)))
        else {
            break;
        };
        path = [target, &path[length..]].concat();
    }
    path
}

/// The uses that no order allows.
fn wrong(files: &[File]) -> Vec<String> {
    let shown = shown_by(files);
    ORDERS.iter().flat_map(|(within, modules)| wrong_within(within, modules, files, &shown)).collect()
}

fn wrong_within(within: &str, modules: &[&str], files: &[File], shown: &Shown) -> Vec<String> {
    let within: Names = within.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let place_of = |path: &[String]| {
        let next = path.strip_prefix(&within[..])?.first()?;
        modules.iter().position(|module| module == next)
    };
    let is_within = |path: &[String]| path.len() > within.len() && path.starts_with(&within);
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| is_within(&file.module)) {
        let Some(own) = place_of(&file.module) else {
            wrong.push(format!("{} is in no module of the order", file.name()));
            continue;
        };
        for path in &file.paths {
            let is_wrong = if path[0] != "crate" {
                let is_below_http = within.is_empty() && modules[own..].contains(&"http") && modules[own] != "http";
                let foreign = path[0].as_str();
                is_below_http && OF_HTTP.contains(&foreign)
                    || is_below_http && modules[own] == "core" && NOT_IN_CORE.contains(&foreign)
            } else if within.is_empty() && place_of(&path[1..]).is_none() {
                // It goes through the root of the crate.
                path.len() > 1
            } else {
                let target = followed(&path[1..], shown);
                is_within(&target) && place_of(&target).is_none_or(|other| other > own)
            };
            if is_wrong {
                wrong.push(format!("{} uses {}", file.name(), path.join("::")));
            }
        }
    }
    wrong
}

/// The files that lead back to themselves, by way of others. A file with a folder of its name is one with what is there.
fn circles(files: &[File]) -> Names {
    let shown = shown_by(files);
    let pages: Vec<&File> = files.iter().filter(|file| !file.is_front).collect();
    let is_part = |file: &File| {
        pages.iter().any(|page| file.module.len() > page.module.len() && file.module.starts_with(&page.module))
    };
    let wholes: Vec<&File> = pages.iter().copied().filter(|file| !is_part(file)).collect();
    let whole_of = |path: &Names| wholes.iter().position(|whole| path.starts_with(&whole.module));
    let uses = |whole: &&File| -> BTreeSet<usize> {
        let parts = pages.iter().filter(|page| page.module.starts_with(&whole.module));
        let paths = parts.flat_map(|page| page.paths.iter().filter(|path| path[0] == "crate"));
        paths.filter_map(|path| whole_of(&followed(&path[1..], &shown))).collect()
    };
    let uses: Vec<BTreeSet<usize>> = wholes.iter().map(uses).collect();
    let leads_back = |from: &usize| {
        let mut next: Vec<usize> = uses[*from].iter().copied().filter(|to| to != from).collect();
        let mut seen = BTreeSet::new();
        while let Some(file) = next.pop() {
            if seen.insert(file) {
                next.extend(&uses[file] - &BTreeSet::from([file]));
            }
        }
        seen.contains(from)
    };
    (0..wholes.len()).filter(leads_back).map(|place| wholes[place].name()).collect()
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files of the root crate, but for those of tests.
fn files() -> Vec<File> {
    let root = checkout().join("src");
    let (mut folders, mut found) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("it can be read").path();
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
            if name == "tests" || name == "models" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("it is text");
                let path = path.strip_prefix(&root).expect("it is below");
                found.push(File::new(path.to_str().expect("it is UTF-8"), &text));
            }
        }
    }
    found
}

#[test]
fn modules_use_only_those_before_them() {
    let files = files();
    assert_eq!(wrong(&files), [""; 0]);
    // Nothing was read as nothing.
    let paths: usize = files.iter().map(|file| file.paths.len()).sum();
    assert!(files.len() > 150 && paths > 2_000, "{} files and {paths} paths", files.len());
    for (within, modules) in ORDERS {
        let path = |module: &str| if within.is_empty() { module.to_owned() } else { format!("{within}::{module}") };
        let is_there = |module: &&str| files.iter().any(|file| file.name().starts_with(&path(module)));
        assert!(modules.iter().all(is_there), "{within}");
    }
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    assert_eq!(circles(&files()), [""; 0]);
}

/// Where algorithms may be named: in their table, and by the constructors of `Quota`.
const NAME_ALGORITHMS: [&str; 2] = ["core::algorithm", "core::quota::build"];

#[test]
fn nothing_compares_algorithms_rather_than_to_consult_their_facts() {
    let is_variant = |name: &str| name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
    let is_one = |pair: &[String]| pair[0] == "Algorithm" && is_variant(&pair[1]);
    let files = files().into_iter().filter(|file| !NAME_ALGORITHMS.contains(&&*file.name()));
    let names = |file: File| {
        let paths = file.paths.iter().filter(|path| path.windows(2).any(is_one));
        paths.map(|path| format!("{} names {}", file.name(), path.join("::"))).collect::<Vec<_>>()
    };
    assert_eq!(files.flat_map(names).collect::<Vec<_>>(), [""; 0], "give `Facts` a field that says what is meant");
}

/// Front pages, beside which the files of a test stand.
const FRONTS: [(&str, &str); 3] = [
    ("http/mod.rs", "pub use self::layer::RateLimitLayer;"),
    ("store/mod.rs", "pub use self::redis::{Credentials, RedisStore};"),
    ("store/redis/mod.rs", "pub use self::store::RedisStore; pub use self::connections::Credentials;"),
];

fn read(files: &[(&str, &str)]) -> Vec<File> {
    FRONTS.iter().chain(files).map(|(path, text)| File::new(path, text)).collect()
}

#[test]
fn a_use_of_a_later_module_is_found_however_it_is_written() {
    let wrong_ones = [
        ("store/traits.rs", "use crate::http::policy::Policy;"),
        ("store/traits.rs", "use crate::{core::Error, http::{self, policy::Policy as Rule}};"),
        ("store/traits.rs", "use super::super::http::policy::Policy;"),
        ("store/traits.rs", "fn take(policy: &crate::http::policy::Policy) {}"),
        ("store/traits.rs", "fn take() { run!(a, { crate::http::policy::run() }); }"),
        ("store/traits.rs", "fn take() { use crate::http::policy; }"),
        ("store/traits.rs", "use crate::RateLimitLayer;"),
        ("store/traits.rs", "#[cfg(test)] mod tests;\nuse crate::http::policy::Policy;"),
        ("store/traits.rs", "use http::HeaderMap;"),
        ("store/traits.rs", "fn is_post(method: &http::Method) {}"),
        ("core/check.rs", "use tokio::time::Instant;"),
        ("core/check.rs", "fn now() -> ::tokio::time::Instant {}"),
        ("http/key/header.rs", "use super::super::policy::Policy;"),
        ("http/key/header.rs", "use crate::http::RateLimitLayer;"),
        ("cellar/one.rs", ""),
        ("http/cellar.rs", ""),
        ("store/redis/wire/reply.rs", "use super::super::connections::Link;"),
        ("store/redis/wire/reply.rs", "use crate::store::redis::{cluster::slot_of, wire};"),
        ("store/redis/wire/reply.rs", "fn of(store: &crate::store::RedisStore) {}"),
        ("store/redis/wire/reply.rs", "use crate::store::{Check, Credentials};"),
        ("store/redis/engine.rs", "use super::apart::Part;"),
        ("store/redis/other.rs", ""),
    ];
    for (path, text) in wrong_ones {
        assert!(!wrong(&read(&[(path, text)])).is_empty(), "{path}: {text}");
    }
    let right_ones = [
        ("store/traits.rs", "use crate::core::{Error, Key};\nuse super::{Answer, Check};\nuse std::sync::Arc;"),
        ("store/traits.rs", "/// [`Policy`](crate::http::Policy)\nfn text() { f(\"use crate::http::Policy;\") }"),
        ("store/traits.rs", "#[cfg(test)]\nmod tests {\n    use crate::http::Policy;\n}"),
        ("store/traits.rs", "use tokio::time::Instant;"),
        ("http/layer/mod.rs", "use http::HeaderMap;\nuse crate::http::policy::Policy;"),
        (
            "store/redis/engine.rs",
            "use super::{cluster, servers::Servers};\npub(in crate::store::redis) struct Engine;",
        ),
    ];
    for (path, text) in right_ones {
        assert_eq!(wrong(&read(&[(path, text)])), [""; 0], "{path}: {text}");
    }
}

#[test]
fn a_circle_is_found_through_front_pages_and_folders() {
    let front = ("store/redis/pipeline/mod.rs", "pub(super) use self::job::Job;");
    let job = ("store/redis/pipeline/job.rs", "use super::calls::Call;");
    let call = ("store/redis/pipeline/calls.rs", "mod part;");
    let part = ("store/redis/pipeline/calls/part.rs", "use super::super::pipe::Pipe;");
    let below = ("store/redis/pipeline/pipe.rs", "use super::timeout::Timeout;");
    assert_eq!(circles(&read(&[front, job, call, part, below])), [""; 0]);
    let back = ("store/redis/pipeline/pipe.rs", "use crate::store::redis::pipeline::Job;");
    let circle = ["job", "calls", "pipe"].map(|file| format!("store::redis::pipeline::{file}"));
    assert_eq!(circles(&read(&[front, job, call, part, back])), circle);
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
fn crates_beside_the_root_know_it_and_the_exact_code_for_tables_and_in_tests_the_suite() {
    let crates = checkout().join("crates");
    let mut seen = 0;
    for folder in fs::read_dir(crates).expect("there are crates") {
        let path = folder.expect("a folder").path().join("Cargo.toml");
        let manifest = fs::read_to_string(&path).expect("each has a manifest");
        let known = siblings(&manifest, "[dependencies]");
        // The command may use every crate.
        let is_command = manifest.contains("name = \"tollgate-cli\"");
        // The client is for callers of any server.
        let is_client = manifest.contains("name = \"tollgate-client\"") && known.is_empty();
        // A file has tables of three crates, which share the code for them.
        let is_exact = manifest.contains("\ntollgate-config = { version = \"=");
        let knows_tables = is_exact && known == ["tollgate", "tollgate-config"];
        let knows_root = known == ["tollgate"] || is_command && known.contains(&"tollgate");
        assert!(knows_root || knows_tables || is_client, "{}: {known:?}", path.display());
        let for_tests = siblings(&manifest, "[dev-dependencies]");
        assert!(for_tests.iter().all(|name| ["tollgate", "tollgate-test"].contains(name)), "{}", path.display());
        seen += 1;
    }
    assert!(seen > 0, "no crate was read");
}

#[test]
fn the_root_knows_no_crate_beside_it() {
    let manifest = fs::read_to_string(checkout().join("Cargo.toml")).expect("it is there");
    assert_eq!(siblings(&manifest, "[dependencies]"), [""; 0]);
    assert_eq!(siblings("[dependencies]\ntollgate-config = \"1\"\n", "[dependencies]"), ["tollgate-config"]);
}

/// A section of the crate's manifest, line by line.
fn section(name: &str) -> Vec<String> {
    let path = checkout().join("Cargo.toml");
    let text = fs::read_to_string(path).expect("it is text");
    let behind = text.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
    let lines = behind.take_while(|line| !line.starts_with('[')).map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn no_more_than_15_dependencies_are_mandatory() {
    let all = section("dependencies");
    assert!(all.iter().all(|line| line.contains(" = ") && line.matches('"').count() >= 2), "one a line: {all:#?}");
    let mandatory: Vec<_> = all.iter().filter(|line| !line.contains("optional = true")).collect();
    assert!((1..=15).contains(&mandatory.len()), "{}: {mandatory:#?}", mandatory.len());
}

#[test]
fn each_feature_is_linted_alone_and_documented() {
    let read = |file: &str| fs::read_to_string(checkout().join(file)).expect("it is text");
    let (compat, docs) = (read("scripts/compat"), read("src/lib.rs"));
    let linted =
        compat.lines().find_map(|line| line.trim().strip_prefix("local all=(")).expect("features are linted alone");
    assert!(read(".ci/run").contains("scripts/compat --minutes"), "a share each time");
    let features = section("features");
    let default = features.iter().find(|line| line.starts_with("default = ")).expect("some are the default");
    for feature in features.iter().filter_map(|line| line.split_once(" = ").map(|(name, _)| name)) {
        if feature != "default" {
            let is_linted = linted.split([' ', ')']).any(|name| name == feature);
            assert!(is_linted, "{feature} is not linted alone");
            let is_default = if default.contains(&format!("\"{feature}\"")) { "yes" } else { "no" };
            let row = format!("| `{feature}` | {is_default} |");
            assert!(docs.contains(&row), "{feature} is not documented");
        }
    }
    assert!(features.len() > 8, "{features:#?}");
}
