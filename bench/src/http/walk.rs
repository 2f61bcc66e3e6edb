//! The files and functions of the crate that one request crosses, by callgrind.

use std::collections::{BTreeMap, BTreeSet};

use super::callgrind::Loads;
use super::options::Options;
use super::sides::{self, Side};

/// With a key, both header sets and a handle, as by default.
const SIDES: [&str; 2] = ["memory", "redis"];

/// The crate's source, of which this package is a folder.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/");

/// One after the other, after those that only the first requests of a layer cause.
const LOADS: Loads = Loads { connections: 1, first: 1_200, counted: 200 };

/// Prints the walk of each side.
pub(super) async fn run(options: Options) -> Result<(), String> {
    if !cfg!(debug_assertions) {
        return Err("functions are inlined in this build: without --release, please".to_owned());
    }
    let all = sides::all().into_iter().filter(|side| SIDES.contains(&side.name) || side.name == "none").collect();
    for side in options.choose(all)?.iter().filter(|side| side.name != "none") {
        print(side, &crossed(side).await?);
    }
    Ok(())
}

fn print(side: &Side, files: &BTreeMap<String, BTreeSet<String>>) {
    let functions: usize = files.values().map(BTreeSet::len).sum();
    println!("{}: a request crosses {} files and {functions} functions:\n", side.title, files.len());
    for (file, functions) in files {
        println!("- {file}: {}", functions.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
    }
    println!();
}

/// What is called for at least every other of the requests: not what timers do, nor what is done once.
async fn crossed(side: &Side) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let source = std::fs::canonicalize(SOURCE).map_err(|fault| format!("{SOURCE}: {fault}"))?;
    let source = format!("{}/", source.display());
    let [first, second] = LOADS.profiles(side).await?.map(|profile| profile.calls());
    let mut files = BTreeMap::<_, BTreeSet<_>>::new();
    for (function, calls) in second {
        let before = first.get(&function).copied().unwrap_or_default();
        if calls.saturating_sub(before) >= u64::from(LOADS.counted) / 2
            && let Some(file) = function.file.strip_prefix(&source)
        {
            files.entry(file.to_owned()).or_default().insert(short(&function.name));
        }
    }
    Ok(files)
}

/// The type and the method, or the function: without modules and parameters of types, closures as their function.
fn short(name: &str) -> String {
    let name = name.split('\'').next().unwrap_or(name);
    let parts: Vec<_> = split(name, "::").into_iter().filter(|part| *part != "{{closure}}").collect();
    let [.., owner, function] = parts[..] else { return name.to_owned() };
    let of_type = owner.strip_prefix('<').and_then(|owner| owner.strip_suffix('>'));
    let owner = of_type.map_or(owner, |owner| match owner.strip_prefix("impl ") {
        Some(implemented) => split(implemented, " for ").pop().unwrap_or_default(),
        None => split(owner, " as ")[0],
    });
    let owner = split(owner, "::").pop().unwrap_or_default();
    let owner = owner.split('<').next().unwrap_or_default();
    if owner.starts_with(char::is_uppercase) { format!("{owner}::{function}") } else { function.to_owned() }
}

/// Splits where no parameters of a type are open.
fn split<'a>(text: &'a str, at: &str) -> Vec<&'a str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0);
    for (place, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth == 0 && place >= begin && text[place..].starts_with(at) => {
                parts.push(&text[begin..place]);
                begin = place + at.len();
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn a_function_is_named_by_its_type_alone() {
        for (name, expected) in [
            ("tollgate::core::digits::small", "small"),
            ("tollgate::http::headers::write::HeaderWriter::limits::{{closure}}'2", "HeaderWriter::limits"),
            (
                "<tollgate::http::service::body::ResponseBody<B> as http_body::Body>::poll_frame",
                "ResponseBody::poll_frame",
            ),
            ("tollgate::core::quota::decide::<impl tollgate::core::quota::Quota>::rule", "Quota::rule"),
            (
                "tollgate::a::<impl core::convert::From<core::Result<T,E>> for tollgate::key::Extracted>::from",
                "Extracted::from",
            ),
            ("tollgate::http::State<S,<S as tower::Service<R>>::Future,A>::calling", "State::calling"),
        ] {
            assert_eq!(short(name), expected);
        }
    }
}
