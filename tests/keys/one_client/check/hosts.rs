//! The host.
#![allow(deprecated, reason = "applications use the extractor of axum-extra until it is gone")]

use axum::extract::FromRequestParts;
use axum_extra::extract::Host;
use axum_extra::headers::{self, HeaderMapExt};
use futures::FutureExt;
use http::header::HOST;
use http::request::Parts;
use tollgate::key;

use super::{Choices, Kind, Spelling, app};

pub(super) fn kind() -> Kind {
    let app = |name, sees| app(name, sees, plain, [key::host()]);
    let apps = vec![
        app("Host", host),
        app("the name in Host", |parts| host(parts).map(|host| name(&host))),
        app("TypedHeader<Host>", |parts| Some(parts.headers.typed_get::<headers::Host>()?.hostname().to_owned())),
        app("the name in TypedHeader<Host>", |parts| {
            Some(name(parts.headers.typed_get::<headers::Host>()?.hostname()))
        }),
        app("the URI, or else the header", |parts| parts.uri.host().map(name).or_else(|| first(parts))),
        app("the first line", first),
        app("the tenant", |parts| Some(first(parts)?.split('.').next()?.to_owned()).filter(|name| is_word(name))),
    ];
    Kind { name: "host", spell, is_routed: false, shared: None, apps }
}

fn spell(choices: &mut Choices<'_>) -> Spelling {
    let mut spelling = Spelling::get("/");
    if choices.one_in(3) {
        spelling.target = format!("http://{}/", authority(choices));
    }
    for _ in 0..choices.pick(&[0, 1, 1, 1, 1, 2]) {
        let line = authority(choices);
        spelling.lines.push(("host", choices.spaced(&line).into_bytes()));
    }
    spelling
}

fn authority(choices: &mut Choices<'_>) -> String {
    const NAMES: &[&str] = &["acme", "acme", "acme", "acme.", "acme..", "acme/", "ac%6De", "u@acme", "other", "", "."];
    const OTHERS: &[&str] = &["127.1", "[::1]", "[::1", "[0:0::1]", "u:p@acme", "127.0.0.1", "acme,a", "acme a"];
    const PORTS: &[&str] = &["", "", "", "", ":80", ":8080", ":", ":8x", ":080", ":99999", ":+1", ":80:80"];
    let names = if choices.one_in(3) { OTHERS } else { NAMES };
    let name = choices.pick(names);
    format!("{}{}", choices.cased(name), choices.pick(PORTS))
}

fn plain(client: &str) -> Spelling {
    Spelling::with("host", [client])
}

fn host(parts: &Parts) -> Option<String> {
    let found = Host::from_request_parts(&mut parts.clone(), &()).now_or_never()?;
    found.ok().map(|Host(host)| host)
}

fn lines(parts: &Parts) -> impl DoubleEndedIterator<Item = String> {
    parts.headers.get_all(HOST).iter().filter_map(|line| line.to_str().ok().map(name))
}

fn first(parts: &Parts) -> Option<String> {
    lines(parts).next()
}

/// The name in an authority, as a careful application reads it.
fn name(authority: &str) -> String {
    let authority = authority.trim();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let end = authority.find(']').map(|at| at + 1).or_else(|| authority.find(':')).unwrap_or(authority.len());
    authority[..end].trim_end_matches('.').to_ascii_lowercase()
}

fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase())
}
