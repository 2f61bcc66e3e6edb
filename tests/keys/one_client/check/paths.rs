//! The path.

use std::borrow::Cow;

use axum::extract::{FromRequestParts, Path};
use futures::FutureExt;
use http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tollgate::key;

use super::routed::AtHandler;
use super::{Choices, Kind, Spelling, app};

pub(super) fn kind() -> Kind {
    let app = |name, sees| app(name, sees, plain, [key::path()]);
    let apps = vec![
        app("the path as it is", |parts| Some(parts.uri.path().to_owned())),
        app("the decoded path", decoded),
        app("the decoded path, or what is left of it", |parts| {
            Some(percent_decode_str(parts.uri.path()).decode_utf8_lossy().into_owned())
        }),
        app("an upstream behind a proxy that merges slashes", |parts| Some(joined(&decoded(parts)?, true, false))),
        app("an upstream behind a proxy that resolves dots", |parts| Some(joined(&decoded(parts)?, false, true))),
        app("an upstream behind nginx", |parts| Some(joined(&decoded(parts)?, true, true))),
        app("an upstream that knows a backslash", |parts| {
            Some(joined(&decoded(parts)?.replace('\\', "/"), true, true))
        }),
        app("dots resolved, then decoded", |parts| {
            let path = joined(parts.uri.path(), true, true);
            percent_decode_str(&path).decode_utf8().ok().map(Cow::into_owned)
        }),
        app("Path of a wildcard", wildcard),
    ];
    Kind { name: "path", spell, is_routed: true, shared: None, apps }
}

fn spell(choices: &mut Choices<'_>) -> Spelling {
    const SEGMENTS: &[&str] = &["abc", "abc", "a", "f", "..", ".", "", "a.b", "a~b", "a b", "caf\u{e9}", "ABC", "100%"];
    const ODD: &[&str] =
        &["%2f", "%5C", "\\", "%00", "%", "%zz", "%FF", "+", ";x=1", "{", "|", "%2e", "%25", "\u{e9}", ":"];
    let mut path = choices.pick(&["", "", "", "/f", "http://acme", "http://acme", "/f"]).to_owned();
    for _ in 0..choices.pick(&[1, 1, 2, 2, 3]) {
        let segment = choices.pick(SEGMENTS);
        path += "/";
        path += &choices.encoded(segment).replace(' ', "%20");
        if choices.one_in(6) {
            path += choices.pick(ODD);
        }
    }
    path += choices.pick(&["", "", "", "/", "//", "?", "?q=1"]);
    Spelling::get(path)
}

fn plain(client: &str) -> Spelling {
    const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');
    Spelling::get(utf8_percent_encode(client, ENCODED).to_string())
}

fn decoded(parts: &Parts) -> Option<String> {
    percent_decode_str(parts.uri.path()).decode_utf8().ok().map(Cow::into_owned)
}

/// A path whose slashes are merged, and whose dot segments are resolved.
fn joined(path: &str, merges: bool, resolves: bool) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut rest = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = rest.next() {
        let is_last = rest.peek().is_none();
        match segment {
            "" if merges && !is_last => {}
            "." | ".." if resolves => {
                if segment == ".." {
                    segments.pop();
                }
                if is_last {
                    segments.push("");
                }
            }
            _ => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

/// What follows `/f/`.
fn wildcard(parts: &Parts) -> Option<String> {
    let AtHandler(parts, name) = parts.extensions.get()?;
    let rest = Path::<String>::from_request_parts(&mut parts.clone(), &()).now_or_never()?;
    if *name == "file" && parts.uri.path().starts_with("/f/") { rest.ok().map(|Path(rest)| rest) } else { None }
}
