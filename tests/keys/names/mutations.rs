//! Whatever a client writes: what the application sees is counted as that, or as not certain.

use std::collections::HashMap;

use axum::extract::Query;
use axum_extra::extract::CookieJar;
use futures::FutureExt;
use http::Request;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::collection::vec;
use proptest::prelude::*;
use tollgate::key::{self, Extracted, KeyExtractor};

use super::rig::{get, one, with};

fn extracted(key: &impl KeyExtractor, request: Request<String>) -> Extracted {
    key.extract(&request.into_parts().0).wait().now_or_never().expect("at once")
}

/// The key of a request, or `None` if it is not certain.
fn certain(key: &impl KeyExtractor, request: Request<String>) -> Option<String> {
    match extracted(key, request) {
        Extracted::Key(key) => Some(key.to_string()),
        Extracted::Ambiguous => None,
        other => panic!("the application sees a client, and there is {other:?}"),
    }
}

fn encoded(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}

/// Pieces of a header or a query, of which most tell something.
fn text(pieces: &'static [&'static str]) -> impl Strategy<Value = String> {
    vec(prop::sample::select(pieces.to_vec()), 0..8).prop_map(|pieces| pieces.concat())
}

fn cookies() -> impl Strategy<Value = Vec<String>> {
    const PIECES: &[&str] = &[
        "s=", "s=REAL", "%73=", "s=%52EAL", "s=junk", "; ", ";", "; ", "\"", "\\", "%", "%FF", "%22", "%20", " ", "\t",
        "\u{e9}", "=", "x", ",", "REAL", "s", "s =", "s= ",
    ];
    vec(text(PIECES), 1..4)
}

fn queries() -> impl Strategy<Value = String> {
    text(&["k=", "k=REAL", "%6b=", "k=%52EAL", "k=junk", "&", "&", ";", "+", "%20", "%", "%FF", "=", "x", "k", "REAL"])
}

/// The names and values of cookies; those without a value have an empty one.
fn pairs(lines: &[String]) -> impl DoubleEndedIterator<Item = (&str, &str)> {
    let pairs = lines.iter().flat_map(|line| line.trim().split(';'));
    pairs.map(str::trim).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// The first value that has no byte which none may have: Go's rule, which trims names, and did not.
fn go(lines: &[String], trims: bool) -> Option<String> {
    let has_name = |name: &str| (if trims { name.trim() } else { name }) == "s";
    let may_stand = |byte| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte);
    let values = pairs(lines).filter(|(name, _)| has_name(name)).map(|(_, value)| unquoted(value));
    values.into_iter().find(|value| value.bytes().all(may_stand)).map(str::to_owned)
}

/// The first value, whatever it is, of the name as it stands: Rack's rule.
fn rack(lines: &[String]) -> Option<String> {
    let line = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("; ");
    let mut pairs = line.split(';').map(|pair| pair.trim_start_matches(' '));
    pairs.find_map(|pair| pair.strip_prefix("s=")).map(str::to_owned)
}

/// The last of whatever values: Starlette's rule.
fn starlette(lines: &[String]) -> Option<String> {
    let last = pairs(lines).rfind(|(name, _)| name.trim() == "s");
    last.map(|(_, value)| unquoted(value.trim()).to_owned())
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn the_cookie_of_a_jar_is_the_key_or_not_certain(lines in cookies()) {
        let request = || with(lines.iter().map(|line| ("cookie", line.trim())));
        let jar = CookieJar::from_headers(request().headers());
        if let Some(cookie) = jar.get("s") {
            for key in [key::cookie("s").plain(), key::cookie("s").plain().last()] {
                let alone = certain(&key, one("cookie", format!("s={}", encoded(cookie.value()))));
                let found = certain(&key, request());
                prop_assert!(found.is_none() || found == alone, "{found:?}, not {alone:?}");
            }
        }
    }

    #[test]
    fn the_cookie_of_a_server_that_decodes_nothing_is_the_key_or_not_certain(lines in cookies()) {
        let request = || with(lines.iter().map(|line| ("cookie", line.trim())));
        let session = || key::cookie("s").plain();
        for (seen, keys) in [
            (go(&lines, true), [session(), session().first()]),
            (go(&lines, false), [session(), session().first()]),
            (rack(&lines), [session(), session().first()]),
            (starlette(&lines), [session(), session().last()]),
        ] {
            let Some(value) = seen else { continue };
            for key in keys {
                let (alone, found) = (certain(&key, one("cookie", format!("s={value}"))), certain(&key, request()));
                // Not every value can be written as it is, with a quote on one side say.
                prop_assert!(found.is_none() || alone.is_none() || found == alone, "{found:?}, not {alone:?}");
            }
        }
    }

    #[test]
    fn the_parameter_of_a_map_is_the_key_or_not_certain(query in queries()) {
        let uri = format!("/?{query}");
        let Query(map) = Query::<HashMap<String, String>>::try_from_uri(get(&uri).uri()).expect("a map takes all");
        if let Some(value) = map.get("k") {
            for key in [key::query("k"), key::query("k").last()] {
                let alone = certain(&key, get(&format!("/?k={}", encoded(value))));
                let found = certain(&key, get(&uri));
                prop_assert!(found.is_none() || found == alone, "{found:?}, not {alone:?}");
            }
        }
    }
}
