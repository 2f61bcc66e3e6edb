//! A query parameter.

use std::borrow::Cow;
use std::collections::HashMap;

use axum::extract::Query;
use axum_extra::extract::Query as FormQuery;
use http::request::Parts;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tollgate::key::{self, ValueKey};

use super::{Choices, Kind, Spelling, app};

#[derive(Deserialize)]
struct One<T> {
    k: T,
}

#[derive(Deserialize)]
struct Many {
    #[serde(default)]
    k: Vec<String>,
}

pub(super) fn kind() -> Kind {
    let k = || key::query("k");
    let (first, last) = (|| [k(), k().first()], || [k(), k().last()]);
    let any = || [k(), k().first(), k().last()];
    let apps = vec![
        app("Query<HashMap>", map, plain, last()),
        app(
            "Query<HashMap> in lower case",
            |parts| Some(map(parts)?.to_ascii_lowercase()),
            plain,
            last().map(ValueKey::ignore_case),
        ),
        app("Query<struct>", one::<String>, plain, any()),
        app("Query<struct> of an option", |parts| one::<Option<String>>(parts)?, plain, any()),
        app(
            "Query<struct> of a number",
            |parts| Some(one::<u64>(parts)?.to_string()),
            plain,
            last().map(|key| key.normalize(as_number)),
        ),
        app("the first of axum-extra", |parts| many(parts).into_iter().next(), plain, first()),
        app("the last of axum-extra", |parts| many(parts).into_iter().next_back(), plain, last()),
        app("the first, `;` too", |parts| by_either(parts).into_iter().next(), plain, first()),
        app("the last, `;` too", |parts| by_either(parts).into_iter().next_back(), plain, last()),
    ];
    Kind { name: "query", spell, is_routed: false, shared: None, apps }
}

fn spell(choices: &mut Choices<'_>) -> Spelling {
    const PIECES: &[&str] =
        &["k=", "k=REAL", "%6b=", "&", "&", ";", "+", "%20", "%", "%FF", "=", "x", "k", "REAL", "?"];
    let query = if choices.one_in(4) {
        choices.text(PIECES, 9)
    } else {
        let many = choices.pick(&[1, 1, 1, 2, 2, 3]);
        let pairs: Vec<String> = (0..many).map(|_| pair(choices)).collect();
        pairs.join(choices.pick(&["&", "&", "&&", ";", "&;", "&amp;"]))
    };
    Spelling::get(format!("{}{query}", choices.pick(&["/?", "/?", "/?&", "http://acme/?", "http://acme?"])))
}

fn pair(choices: &mut Choices<'_>) -> String {
    let name = choices.pick(&["k", "k", "k", "k", "K", "x", "k[]", "k.x"]);
    let words = ["REAL", "REAL", "Other", "RE+AL", "", "a=b", "a;b", "%00", "7", "07", "%2B7"];
    let value = if choices.one_in(6) { choices.pick(&["caf%C3%A9", "%26k%3DREAL"]) } else { choices.pick(&words) };
    let value = if value.contains('%') { value.to_owned() } else { choices.encoded(value) };
    let (name, value) = (choices.encoded(name), choices.cased(&value));
    format!("{name}{}{value}", choices.pick(&["=", "=", "=", "==", "", "%3D", "=+"]))
}

/// The number that a text is parsed to.
pub(super) fn as_number(text: &[u8]) -> Cow<'_, [u8]> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
    number.map_or(Cow::Borrowed(text), |number| Cow::Owned(number.to_string().into_bytes()))
}

fn plain(client: &str) -> Spelling {
    Spelling::get(format!("/?k={}", utf8_percent_encode(client, NON_ALPHANUMERIC)))
}

fn one<T: DeserializeOwned>(parts: &Parts) -> Option<T> {
    Some(Query::<One<T>>::try_from_uri(&parts.uri).ok()?.0.k)
}

fn map(parts: &Parts) -> Option<String> {
    Query::<HashMap<String, String>>::try_from_uri(&parts.uri).ok()?.0.remove("k")
}

fn many(parts: &Parts) -> Vec<String> {
    FormQuery::<Many>::try_from_uri(&parts.uri).map_or_else(|_| Vec::new(), |FormQuery(many)| many.k)
}

fn by_either(parts: &Parts) -> Vec<String> {
    let pieces = parts.uri.query().unwrap_or_default().split(['&', ';']);
    let pairs = pieces.flat_map(|piece| form_urlencoded::parse(piece.as_bytes()));
    pairs.filter(|(name, _)| name == "k").map(|(_, value)| value.into_owned()).collect()
}
