//! A header.

use http::HeaderValue;
use http::request::Parts;
use tollgate::key;
use tonic::metadata::MetadataMap;

use super::kind::keys;
use super::{App, Choices, Kind, Spelling};

const NAME: &str = "x-client";

pub(super) fn kind() -> Kind {
    let (plain, header) = (plain as fn(&str) -> Spelling, || key::header(NAME).plain());
    let apps = vec![
        App {
            name: "the first line",
            sees: |parts| parts.headers.get(NAME).map(text),
            plain,
            keys: keys([header(), header().first()]),
        },
        App { name: "the last line", sees: last, plain, keys: keys([header(), header().last()]) },
        App {
            name: "the first line, as it is",
            sees: |parts| Some(parts.headers.get(NAME)?.to_str().ok()?.to_owned()),
            plain,
            keys: keys([header(), header().first(), key::header(NAME)]),
        },
        App { name: "tonic's metadata", sees: metadata, plain, keys: keys([header(), header().first()]) },
        App { name: "lines joined by a proxy", sees: joined, plain, keys: keys([header(), header().first()]) },
        App {
            name: "the first line in lower case",
            sees: |parts| parts.headers.get(NAME).map(|value| text(value).to_ascii_lowercase()),
            plain,
            keys: keys([header().ignore_case(), header().first().ignore_case()]),
        },
        App {
            name: "the last line in lower case",
            sees: |parts| last(parts).map(|value| value.to_ascii_lowercase()),
            plain,
            keys: keys([header().ignore_case(), header().last().ignore_case()]),
        },
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

fn last(parts: &Parts) -> Option<String> {
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
