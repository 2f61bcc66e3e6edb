//! Paths that are written in another way.

use axum::Router;
use axum::extract::Path;
use axum::routing::get as on_get;
use http_body_util::BodyExt;
use proptest::prelude::*;
use tollgate::policy::{AccessList, MissingKey};
use tollgate::{Policy, key};
use tower::ServiceExt;

use super::rig::{ONE, app, expect, get, layer, list};
use crate::support::slow::many;

fn by_path() -> Policy {
    Policy::new("path", ONE).key(key::path())
}

#[test]
fn a_path_in_another_encoding_is_the_same_path() {
    for (one, other) in [
        ("/abc", "/a%62c"),
        ("/abc", "/%61%62%63"),
        ("/ada@example.com", "/ada%40example.com"),
        ("/caf%C3%A9", "/caf%c3%a9"),
        ("/a%20b", "/%61%20b"),
    ] {
        let app = app(by_path());
        expect(&app, get(one), 200);
        expect(&app, get(other), 429);
    }
}

#[test]
fn a_path_that_some_servers_read_as_another_one_starts_no_counter_of_its_own() {
    for paths in [
        ["//abc", "///abc"],
        ["/x/../abc", "/y/../abc"],
        ["/./abc", "/%2e/abc"],
        ["/a%2Fb", "/a%2fb%2f"],
        ["/%ff", "/%fe"],
    ] {
        let app = app(by_path());
        expect(&app, get(paths[0]), 200);
        expect(&app, get(paths[1]), 429);
        expect(&app, get("/abc"), 200);
    }
}

#[test]
fn such_a_path_is_refused_where_a_key_is_needed() {
    let app = app(by_path().missing_key(MissingKey::Deny));
    expect(&app, get("//abc"), 400);
    expect(&app, get("/abc"), 200);
}

#[test]
fn a_denied_path_is_refused_however_it_is_written() {
    let app = app(by_path().deny(list(["/admin", "/a/b"])));
    for path in ["/admin", "/%61dmin", "/a/b"] {
        expect(&app, get(path), 403);
    }
    for path in ["//admin", "/x/../admin", "/./admin", "/a//b", "/a%2Fb", "/a\\b", "/a/x/..//b"] {
        expect(&app, get(path), 400);
    }
    expect(&app, get("/other"), 200);
}

#[test]
fn an_allowed_path_is_not_one_that_only_some_servers_read_as_it() {
    let app = app(by_path().allow(list(["/health"])));
    for path in ["/health", "/%68ealth", "/health"] {
        expect(&app, get(path), 200);
    }
    expect(&app, get("//health"), 200);
    expect(&app, get("/x/../health"), 429);
}

#[test]
fn a_path_on_a_list_is_given_in_its_normal_form() {
    let listed = |path: &str| super::rig::refusal(by_path().deny(AccessList::default().key(path)));
    for path in ["/a%62c", "//abc", "/a/../b", "/caf%c3%a9"] {
        assert!(listed(path).expect(path).contains("can never match"), "{path}");
    }
    for path in ["/abc", "/abc/", "/a%20b", "/caf%C3%A9", "*"] {
        assert_eq!(listed(path), None, "{path}");
    }
}

/// Whether the second of two requests finds the counter of the first used up.
fn shares(one: &str, other: &str) -> bool {
    let app = app(by_path());
    let status = |path: &str| {
        let response = futures::executor::block_on(app.clone().oneshot(get(path)));
        response.expect("a response").status().as_u16()
    };
    (status(one), status(other)) == (200, 429)
}

/// Whether a path is counted with all that are ambiguous.
fn is_shared(path: &str) -> bool {
    shares("//", path)
}

/// What a handler of axum sees of a path.
fn seen(path: &str) -> Option<String> {
    let app = Router::new()
        .route("/{a}", on_get(|Path(a): Path<String>| async move { format!("1 {a:?}") }))
        .route("/{a}/{*b}", on_get(|Path(both): Path<(String, String)>| async move { format!("2 {both:?}") }))
        .layer(layer(Policy::new("all", tollgate::Quota::per_hour(9))));
    let response = futures::executor::block_on(app.oneshot(get(path))).expect("a response");
    let found = response.status() == 200;
    let body = futures::executor::block_on(response.into_body().collect()).expect("a body").to_bytes();
    found.then(|| String::from_utf8(body.into()).expect("text"))
}

/// A path, written in two ways.
fn spellings() -> impl Strategy<Value = [String; 2]> {
    let spell = |byte: u8, way: u8| match way {
        0 if byte.is_ascii_graphic() => char::from(byte).to_string(),
        1 => format!("%{byte:02x}"),
        _ => format!("%{byte:02X}"),
    };
    let part = (prop::sample::select("aab./@ %+A\u{e9}".as_bytes().to_vec()), 0..3_u8, 0..3_u8);
    prop::collection::vec(part, 1..6).prop_map(move |parts| {
        let one = parts.iter().map(|(byte, way, _)| spell(*byte, *way)).collect::<String>();
        let other = parts.iter().map(|(byte, _, way)| spell(*byte, *way)).collect::<String>();
        [format!("/{one}"), format!("/{other}")]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: many([500, 4_000]), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn paths_of_which_axum_sees_the_same_share_a_counter_or_that_of_all_uncertain_ones(
        [one, other] in spellings(),
    ) {
        let same = seen(&one).is_some_and(|one| seen(&other).as_ref() == Some(&one));
        if one != other && same {
            prop_assert!(shares(&one, &other) || is_shared(&one) || is_shared(&other), "{one} {other}");
        }
    }
}
