//! What becomes of requests that do not say for certain whom to count.

use std::convert::Infallible;
use std::future::ready;

use http::request::Parts;
use http::{HeaderValue, Method, Request, Version};
use tollgate::Key;
use tollgate::key::{self, Ambiguous, Extracted, KeyExtractor};
use tollgate::policy::{AccessList, MissingKey, TierLookup};
use tollgate::store::MaybeFuture;

use super::rig::{ONE, body, expect, get, one, policy, send, service, with};

const USER: &str = "x-user";

fn header() -> key::ValueKey {
    key::header(USER)
}

/// Two users in one request.
fn two(first: &'static str, second: &'static str) -> Request<String> {
    with([(USER, first), (USER, second)])
}

#[test]
fn they_share_one_counter_by_default_and_where_missing_ones_do() {
    for rule in [MissingKey::Skip, MissingKey::Share] {
        let service = service(policy(header()).missing_key(rule));
        expect(&service, [(two("a", "b"), 200), (two("c", "d"), 429), (two("a", "b"), 429)]);
    }
}

#[test]
fn their_counter_is_nobody_elses() {
    let service = service(policy(header().plain()).missing_key(MissingKey::Share));
    expect(&service, [(two("a", "b"), 200), (two("a", "c"), 429)]);
    expect(&service, [(get("/"), 200), (one(USER, "a"), 200), (one(USER, ""), 200), (one(USER, "ambiguous:"), 200)]);
}

#[test]
fn they_are_refused_with_400_where_missing_ones_are_refused() {
    let service = service(policy(header()).missing_key(MissingKey::Deny));
    let response = send(&service, two("a", "b"));
    assert_eq!(response.status(), 400);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers()["cache-control"], "no-store");
    let expected = concat!(
        r#"{"type":"about:blank","title":"Bad Request","status":400,"#,
        r#""detail":"The request does not identify its client or its cost unambiguously: what does must be present once and well-formed."}"#
    );
    assert_eq!(body(response), expected);
    expect(&service, [(get("/"), 403), (one(USER, "a"), 200), (two("b", " b"), 200)]);
}

#[test]
fn a_grpc_call_is_refused_as_an_invalid_argument() {
    let service = service(policy(header()).missing_key(MissingKey::Deny));
    let mut call = two("a", "b");
    (*call.method_mut(), *call.version_mut()) = (Method::POST, Version::HTTP_2);
    call.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    call.headers_mut().insert("te", HeaderValue::from_static("trailers"));
    let response = send(&service, call);
    assert_eq!((response.status().as_u16(), &response.headers()["grpc-status"]), (200, &HeaderValue::from_static("3")));
}

#[test]
fn a_closure_may_say_so() {
    let by_result = |parts: &Parts| match parts.uri.path() {
        "/a" => Ok(Some("a")),
        "/none" => Ok(None),
        _ => Err(Ambiguous),
    };
    let by_answer = |parts: &Parts| match parts.uri.path() {
        "/a" => Extracted::Key(Key::new("path", "a")),
        "/none" => Extracted::Missing,
        _ => Extracted::Ambiguous,
    };
    let rows = || [(get("/x"), 200), (get("/y"), 429), (get("/a"), 200), (get("/a"), 429), (get("/none"), 200)];
    expect(&service(policy(by_result)), rows());
    expect(&service(policy(key::from_fn(by_result))), rows());
    expect(&service(policy(by_answer)), rows());
}

#[test]
fn a_look_up_may_say_so_and_is_not_made_by_a_key_that_is_not_certain() {
    let found = key::lookup(header(), |wanted| {
        assert_ne!(wanted.text(), None, "only what is certain is looked up");
        ready(Ok::<_, Infallible>(if wanted.text() == Some("several") { Err(Ambiguous) } else { Ok("found") }))
    });
    let service = service(policy(found));
    expect(&service, [(one(USER, "several"), 200), (one(USER, "several"), 429), (two("a", "b"), 429)]);
    expect(&service, [(one(USER, "a"), 200), (one(USER, "b"), 429)]);
}

#[test]
fn a_join_is_ambiguous_if_a_part_is_even_where_the_other_is_missing() {
    let joins: [fn() -> tollgate::Policy; 2] =
        [|| policy((header(), key::query("k"))), || policy((key::query("k"), header()))];
    for join in joins {
        let service = service(join());
        expect(&service, [(two("a", "b"), 200), (two("c", "d"), 429), (one(USER, "a"), 200), (one(USER, "a"), 200)]);
        let refusing = super::rig::service(join().missing_key(MissingKey::Deny));
        expect(&refusing, [(two("a", "b"), 400), (one(USER, "a"), 403)]);
    }
}

#[test]
fn a_join_fails_or_is_rejected_before_it_is_ambiguous() {
    let failing = || key::lookup(key::global(), |_| ready(Err::<Option<Key>, _>("away")));
    let service = service(policy((header(), failing())).missing_key(MissingKey::Deny));
    expect(&service, [(two("a", "b"), 503)]);
    let rejecting = |_: &Parts| {
        Err::<Key, _>(Box::new(http::Response::builder().status(418).body(bytes::Bytes::new()).expect("a status")))
    };
    expect(&super::rig::service(policy((header(), rejecting))), [(two("a", "b"), 418)]);
}

fn stolen() -> AccessList {
    AccessList::parse(["stolen"]).expect("a value")
}

#[test]
fn a_list_that_denies_values_refuses_them_and_one_to_allow_matches_none() {
    let service = service(policy(header()).deny(stolen()).allow(AccessList::parse(["friend"]).expect("a value")));
    expect(&service, [(two("stolen", "x"), 400), (two("x", "stolen"), 400), (two("friend", "x"), 400)]);
    let by_kind = super::rig::service(policy(header()).deny(AccessList::default().key_of("header x-user", "stolen")));
    expect(&by_kind, [(two("stolen", "x"), 400), (two("x", "y"), 400), (one(USER, "x"), 200)]);
    let allowing = super::rig::service(policy(header()).allow(AccessList::parse(["friend"]).expect("a value")));
    expect(&allowing, [(two("friend", "x"), 200), (two("friend", "x"), 429)]);
}

#[test]
fn where_a_list_denies_values_that_nobody_can_tell_they_are_refused() {
    let unsure = |parts: &Parts| if parts.uri.path() == "/x" { Err(Ambiguous) } else { Ok("a") };
    expect(&service(policy(unsure).deny(stolen())), [(get("/x"), 400), (get("/"), 200)]);
    // The other part may be the one that is denied.
    let by_two = policy((header(), |_: &Parts| "stolen")).deny(stolen());
    expect(&service(by_two), [(two("a", "b"), 400), (one(USER, "a"), 403)]);
    let addresses = AccessList::parse(["10.0.0.0/8"]).expect("a CIDR").serve_unknown_addresses();
    expect(&service(policy(unsure).deny(addresses)), [(get("/x"), 200), (get("/x"), 429)]);
}

#[test]
fn their_quota_is_the_policys_own() {
    let more = TierLookup::new(|_| ready(Ok::<_, Infallible>(Some(tollgate::Quota::per_hour(5)))));
    expect(&service(policy(header()).tier_lookup(more)), [(two("a", "b"), 200), (two("a", "b"), 429)]);
    let by_request =
        policy(header()).tier(|_| Some(tollgate::Quota::fixed_window(5, std::time::Duration::from_secs(60))));
    expect(&service(by_request), [(two("a", "b"), 200), (two("a", "b"), 429)]);
    assert_eq!(ONE.limit(), 1);
}

#[test]
fn in_shadow_they_are_never_refused() {
    let service = service(policy(header()).missing_key(MissingKey::Deny).deny(stolen()).shadow());
    expect(&service, [(two("a", "b"), 200), (two("a", "stolen"), 200), (two("a", "b"), 200)]);
}

/// An extractor that has to be waited for.
struct Later;

impl KeyExtractor for Later {
    fn extract(&self, _: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::pending(async { Extracted::Ambiguous })
    }
}

#[test]
fn it_may_turn_out_later() {
    expect(&service(policy(Later)), [(get("/"), 200), (get("/"), 429)]);
    expect(&service(policy(Later).missing_key(MissingKey::Deny)), [(get("/"), 400)]);
    expect(&service(policy(Later).deny(stolen())), [(get("/"), 400)]);
}
