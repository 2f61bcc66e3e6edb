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

use crate::rig::{get, one, with};

fn extracted(key: &impl KeyExtractor, request: Request<()>) -> Extracted {
    key.extract(&request.into_parts().0).wait().now_or_never().expect("at once")
}

/// The key of a request, or `None` if it is not certain.
fn certain(key: &impl KeyExtractor, request: Request<()>) -> Option<String> {
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
        "\u{e9}", "=", "x", ",", "REAL",
    ];
    vec(text(PIECES), 1..4)
}

fn queries() -> impl Strategy<Value = String> {
    text(&["k=", "k=REAL", "%6b=", "k=%52EAL", "k=junk", "&", "&", ";", "+", "%20", "%", "%FF", "=", "x", "k", "REAL"])
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
