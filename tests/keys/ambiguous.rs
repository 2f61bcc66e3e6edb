//! What becomes of requests that do not say for certain whom to count.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, Version};
use tollgate::key::{self, Ambiguous, Extracted};
use tollgate::policy::{AccessList, MissingKey, TierLookup};
use tollgate::{Ban, Key, Quota};

use super::rig::{Text, body, by, expect, get, list, policy, send, service, with};

fn header() -> key::ValueKey {
    key::header("x-user")
}

fn one(user: &str) -> Request<Text> {
    with("x-user", &[user])
}

/// Two users in one request.
fn two(first: &str, second: &str) -> Request<Text> {
    with("x-user", &[first, second])
}

#[test]
fn they_share_one_counter_which_is_nobody_elses_by_default_and_where_missing_ones_do() {
    for rule in [MissingKey::Skip, MissingKey::Share] {
        let service = service(policy(header().plain()).missing_key(rule));
        expect(&service, [(two("a", "b"), 200), (two("c", "d"), 429), (two("a", "b"), 429)]);
        let users = ["a", "", "ambiguous:", "anonymous", "anonymous:"].map(|user| (one(user), 200));
        expect(&service, users.into_iter().chain([(get("/"), 200)]));
    }
}

#[test]
fn those_of_one_address_use_up_nothing_of_another() {
    let service = service(policy((key::client_ip(), key::path())));
    for (peer, path, status) in [
        ("192.0.2.1", "//", 200),
        ("192.0.2.1", "/@scope%2fpackage", 429),
        ("192.0.2.2", "/@scope%2fpackage", 200),
        // A site has a /56.
        ("2001:db8::1", "//", 200),
        ("2001:db8:0:ff::2", "//", 429),
        ("2001:db8:0:100::2", "//", 200),
    ] {
        expect(&service, [(by(peer, get(path)), status)]);
    }
}

#[test]
fn those_of_one_address_use_up_nothing_of_another_where_a_part_of_the_key_is_looked_up() {
    let found = key::lookup(key::query("k"), |_| ready(Ok::<_, Infallible>("found")));
    let service = service(policy((key::client_ip(), header(), found)));
    let from = |peer, uri: &str| {
        let mut request = two("a", "b");
        *request.uri_mut() = uri.parse().expect("a URI");
        by(peer, request)
    };
    expect(&service, [(from("192.0.2.1", "/?k=1"), 200), (from("192.0.2.1", "/?k=2"), 429)]);
    expect(&service, [(from("192.0.2.2", "/?k=3"), 200)]);
}

#[test]
fn none_escapes_a_ban() {
    let ban = Ban::new(1, Duration::from_secs(60), Duration::from_secs(600)).of_verified_keys();
    expect(&service(policy(header()).ban(ban)), [(one("a"), 200), (two("b", "c"), 400)]);
    let logins = || policy(header()).methods([Method::POST]).ban(ban.whole_layer());
    expect(&service(logins()), [(one("a"), 200), (two("a", "b"), 400), (get("/"), 200)]);
    expect(&service(logins().shadow()), [(two("a", "b"), 200)]);
    let found = key::lookup(key::global(), |_| ready(Ok::<_, Infallible>("found")));
    let joined = logins().key((header(), found));
    expect(&service(joined.clone()), [(one("a"), 200), (two("a", "b"), 400), (get("/"), 200)]);
    expect(&service(joined.shadow()), [(two("a", "b"), 200)]);
}

#[test]
fn they_are_refused_with_400_where_missing_ones_are_refused() {
    let service = service(policy(header()).missing_key(MissingKey::Deny));
    let response = send(&service, two("a", "b"));
    assert_eq!(response.status(), 400);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers()["cache-control"], "no-store");
    let text = body(response);
    assert!(text.contains(r#""status":400,"detail":"The request does not identify its client or its cost"#), "{text}");
    expect(&service, [(get("/"), 403), (one("a"), 200), (two("b", " b"), 200)]);
    let mut call = two("a", "b");
    (*call.method_mut(), *call.version_mut()) = (Method::POST, Version::HTTP_2);
    call.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    call.headers_mut().insert("te", HeaderValue::from_static("trailers"));
    let response = send(&service, call);
    assert_eq!((response.status().as_u16(), &response.headers()["grpc-status"]), (200, &HeaderValue::from_static("3")));
}

#[test]
fn a_closure_or_a_lookup_may_say_so_and_one_that_is_not_certain_is_not_looked_up() {
    let by_result = |parts: &Parts| match parts.uri.path() {
        "/a" => Ok(Some("a")),
        "/none" => Ok(None),
        _ => Err(Ambiguous),
    };
    let requests = ["/x", "/y", "/a", "/a", "/none", "/none"].map(get);
    expect(&service(policy(by_result)), requests.into_iter().zip([200, 429, 200, 429, 200, 200]));
    let found = key::lookup(header(), |wanted| {
        assert_ne!(wanted.text(), None, "only what is certain is looked up");
        ready(Ok::<_, Infallible>(if wanted.text() == Some("several") { Err(Ambiguous) } else { Ok("found") }))
    });
    let requests = [one("several"), one("several"), two("a", "b"), one("a"), one("b")];
    expect(&service(policy(found)), requests.into_iter().zip([200, 429, 429, 200, 429]));
    let later = || policy(key::lookup(key::global(), |_| ready(Ok::<_, Infallible>(Extracted::Ambiguous))));
    expect(&service(later()), [(get("/"), 200), (get("/"), 429)]);
    expect(&service(later().missing_key(MissingKey::Deny)), [(get("/"), 400)]);
    expect(&service(later().deny(AccessList::default().key("stolen"))), [(get("/"), 400)]);
}

#[test]
fn a_join_is_ambiguous_if_a_part_is_even_where_the_other_is_missing() {
    for join in [policy((header(), key::query("k"))), policy((key::query("k"), header()))] {
        let requests = [two("a", "b"), two("c", "d"), one("a"), one("a")];
        expect(&service(join.clone()), requests.into_iter().zip([200, 429, 200, 200]));
        expect(&service(join.missing_key(MissingKey::Deny)), [(two("a", "b"), 400), (one("a"), 403)]);
    }
    // It fails or is rejected first.
    let failing = key::lookup(key::global(), |_| ready(Err::<Option<Key>, _>("away")));
    expect(&service(policy((header(), failing)).missing_key(MissingKey::Deny)), [(two("a", "b"), 503)]);
    let teapot = || Response::builder().status(418).body(Bytes::new()).expect("a status");
    let rejecting = key::from_fn(move |_| Err::<Key, _>(Box::new(teapot())));
    expect(&service(policy((header(), rejecting))), [(two("a", "b"), 418)]);
}

#[test]
fn a_list_to_deny_by_kind_matches_any_value_they_may_have() {
    let stolen = || policy(header()).deny(list(["stolen"]));
    for policy in [
        stolen(),
        stolen().allow(list(["friend"])),
        policy(header()).deny(AccessList::default().key_of("header x-user", "stolen")),
    ] {
        let service = service(policy);
        expect(&service, [two("stolen", "x"), two("x", "stolen"), two("friend", "x")].map(|request| (request, 400)));
        expect(&service, [(one("x"), 200)]);
    }
    let unsure = |parts: &Parts| if parts.uri.path() == "/x" { Err(Ambiguous) } else { Ok("a") };
    expect(&service(policy(unsure).deny(list(["stolen"]))), [(get("/x"), 400), (get("/"), 200)]);
    // The other part may be the one that is denied.
    let pair = policy((header(), |_: &Parts| "stolen")).deny(list(["stolen"]));
    expect(&service(pair), [(two("a", "b"), 400), (one("a"), 403)]);
    // They are on no list to allow, and a list of addresses says nothing of them.
    let allowing = policy(header()).allow(list(["friend"]));
    expect(&service(allowing), [(two("friend", "x"), 200), (two("friend", "x"), 429)]);
    let addresses = list(["10.0.0.0/8"]).serve_unknown_addresses();
    expect(&service(policy(unsure).deny(addresses)), [(get("/x"), 200), (get("/x"), 429)]);
    let shadow = service(policy(header()).missing_key(MissingKey::Deny).deny(list(["stolen"])).shadow());
    expect(&shadow, [two("a", "b"), two("a", "stolen"), two("a", "b")].map(|request| (request, 200)));
}

#[test]
fn a_denied_value_is_refused_in_whatever_way_it_is_written() {
    let hosts = service(policy(key::host()).deny(list(["stolen"])).allow(list(["status"])));
    let at = |uri: &str, host: &str| {
        let mut request = with("host", &[host]);
        *request.uri_mut() = uri.parse().expect("a URI");
        request
    };
    let denied = [(at("/", "STOLEN.:80"), 403), (at("/", "u@stolen"), 400), (at("http://other/", "stolen"), 400)];
    let others = [(at("http://status/", "acme"), 400), (at("/", "status"), 200), (at("/", "status"), 200)];
    expect(&hosts, denied.into_iter().chain(others));
    let paths = service(policy(key::path()).deny(list(["/stolen"])).allow(list(["/health"])));
    let requests = ["/%73tolen", "//stolen", "/x/../stolen", "/health", "/%68ealth", "//health"].map(get);
    expect(&paths, requests.into_iter().zip([403, 400, 400, 200, 200, 400]));
}

#[test]
fn their_quota_is_the_policys_own() {
    let more = TierLookup::new(|_| ready(Ok::<_, Infallible>(Some(Quota::per_hour(5)))));
    let by_request = policy(header()).tier(|_| Some(Quota::per_minute(5)));
    for policy in [policy(header()).tier_lookup(more), by_request] {
        expect(&service(policy), [(two("a", "b"), 200), (two("a", "b"), 429)]);
    }
}
