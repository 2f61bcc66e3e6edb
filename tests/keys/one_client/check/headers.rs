//! A header.

use http::HeaderValue;
use http::request::Parts;
use tollgate::key::{self, ValueKey};
use tonic::metadata::MetadataMap;

use super::{Choices, Kind, Spelling, app};

const NAME: &str = "x-client";

pub(super) fn kind() -> Kind {
    let header = || key::header(NAME).plain();
    let (first, last) = ([header(), header().first()], [header(), header().last()]);
    let lower = first.clone().map(ValueKey::ignore_case);
    let apps = vec![
        app("the first line", |parts| parts.headers.get(NAME).map(text), plain, first.clone()),
        app("the last line", last_line, plain, last),
        app("the first line, as it is", as_it_is, plain, [header(), header().first(), key::header(NAME)]),
        app("tonic's metadata", metadata, plain, first.clone()),
        app("lines joined by a proxy", joined, plain, first),
        app(
            "the first line in lower case",
            |parts| Some(text(parts.headers.get(NAME)?).to_ascii_lowercase()),
            plain,
            lower,
        ),
    ];
    Kind { name: "header", spell, is_routed: false, shared: None, apps }
}

fn spell(choices: &mut Choices<'_>) -> Spelling {
    let lines = choices.lines(|choices| {
        if choices.one_in(8) {
            return choices.text(&["REAL", " ", "\t", ",", ";", "\"", "x", "="], 6).into_bytes();
        }
        let value = choices.pick(&["REAL", "REAL", "Other", "RE AL", "a,b", "\"REAL\"", "", "caf\u{e9}", "%52EAL"]);
        let value = choices.cased(value);
        choices.spaced(&value).into_bytes()
    });
    Spelling::with(NAME, lines)
}

fn plain(client: &str) -> Spelling {
    Spelling::with(NAME, [client])
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes().trim_ascii()).into_owned()
}

fn as_it_is(parts: &Parts) -> Option<String> {
    Some(parts.headers.get(NAME)?.to_str().ok()?.to_owned())
}

fn last_line(parts: &Parts) -> Option<String> {
    parts.headers.get_all(NAME).iter().next_back().map(text)
}

fn metadata(parts: &Parts) -> Option<String> {
    let metadata = MetadataMap::from_headers(parts.headers.clone());
    Some(metadata.get(NAME)?.to_str().ok()?.to_owned())
}

/// Lists are no clients: what is one already cannot be told from what was joined.
fn joined(parts: &Parts) -> Option<String> {
    let lines: Vec<_> = parts.headers.get_all(NAME).iter().map(text).collect();
    Some(lines.join(", ")).filter(|joined| !lines.is_empty() && !joined.contains(','))
}
