//! Clients that are never limited, or always refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Response};
use tollgate::policy::AccessList;
use tollgate::{Policy, Quota, RateLimitLayer, key};

use super::rig::{Rig, Service, Text, and, body, expect, from, get, hello, line, method, now, over, with};

const ONE: Quota = Quota::per_hour(1);
const TOKEN: &str = "a-secret-token";

fn list<const N: usize>(entries: [&str; N]) -> AccessList {
    AccessList::parse(entries).expect("the entries are right")
}

fn per_ip() -> Policy {
    Policy::new("ip", ONE).key(key::client_ip())
}

fn per_user() -> Policy {
    Policy::new("user", ONE).key(key::header("x-user"))
}

fn service(policy: Policy) -> Service {
    Rig::memory().service([policy])
}

/// A policy by another key than an address, behind a proxy at 192.0.2.1.
fn proxied(policy: Policy) -> RateLimitLayer {
    Rig::memory().layer([policy]).client(key::client_ip().trusted_proxies(["192.0.2.1"]))
}

/// The second request from a peer whose first used up what it has.
#[track_caller]
fn second(allowed: &[&str], peer: &str, status: u16) {
    let service = service(per_ip().allow(AccessList::parse(allowed.iter().copied()).expect("a list")));
    expect(&service, from(peer), 200);
    expect(&service, from(peer), status);
}

#[track_caller]
fn denied(entries: &[&str], peer: &str, status: u16) {
    let service = service(per_ip().deny(AccessList::parse(entries.iter().copied()).expect("a list")));
    expect(&service, from(peer), status);
}

#[track_caller]
fn bad(entry: &str) {
    let error = AccessList::parse(["10.0.0.1", entry]).expect_err("it is no CIDR");
    assert!(error.is_invalid(), "{error}");
    let start = format!("{entry:?} looks like an address but is not a valid one: give an address such as 203.0.113.7");
    assert!(error.to_string().starts_with(&start), "{error}");
}

#[test]
fn clients_of_an_allowed_network_are_never_limited() {
    second(&["10.0.0.0/8"], "10.200.0.1", 200);
    second(&["10.0.0.7/8"], "10.200.0.1", 200);
    second(&["10.0.0.0/8"], "11.0.0.1", 429);
    second(&["10.0.0.7"], "10.0.0.7", 200);
    second(&["10.0.0.7"], "10.0.0.8", 429);
    second(&["2001:db8::/32"], "2001:db8:1::9", 200);
    second(&["2001:db8::/32"], "2001:db9::9", 429);
    second(&["2001:db8::9"], "2001:db8::9", 200);
    second(&["2001:db8::9"], "2001:db8::a", 429);
    second(&["192.0.2.0/24", "10.0.0.0/8"], "10.0.0.1", 200);
    second(&[], "10.0.0.1", 429);
}

#[test]
fn mapped_addresses_are_ipv4_on_lists_too() {
    second(&["10.0.0.0/8"], "::ffff:10.0.0.1", 200);
    second(&["::ffff:10.0.0.7"], "10.0.0.7", 200);
    second(&["::ffff:10.0.0.7"], "::ffff:10.0.0.7", 200);
    second(&["::/0"], "::ffff:10.0.0.1", 429);
}

#[test]
fn a_denied_network_written_as_mapped_ipv4_refused_nobody() {
    denied(&["::ffff:10.0.0.0/104"], "10.9.9.9", 403);
    denied(&["::ffff:10.0.0.0/104"], "::ffff:10.9.9.9", 403);
    denied(&["::ffff:10.0.0.0/104"], "11.0.0.0", 200);
}

#[test]
fn clients_of_a_denied_network_are_always_refused() {
    denied(&["10.0.0.0/8"], "10.0.0.1", 403);
    denied(&["10.0.0.0/8"], "::ffff:10.0.0.1", 403);
    denied(&["10.0.0.0/8"], "11.0.0.1", 200);
    denied(&["0.0.0.0/0"], "2001:db8::9", 200);
    denied(&["2001:db8::/32"], "2001:db8::9", 403);
}

#[test]
fn a_client_behind_a_trusted_proxy_is_known_to_the_lists_of_any_policy() {
    let service = hello(&proxied(per_user().deny(list(["203.0.113.0/24"]))));
    for (peer, client, status) in [
        ("192.0.2.1", "203.0.113.9", 403),
        ("192.0.2.1", "203.0.113.9, 198.51.100.1", 200),
        ("192.0.2.1", "198.51.100.1, 203.0.113.9", 403),
        ("198.51.100.1", "203.0.113.9", 200),
        ("203.0.113.9", "198.51.100.1", 403),
    ] {
        expect(&service, and(from(peer), "x-forwarded-for", client), status);
    }
}

#[test]
fn a_client_behind_a_trusted_proxy_is_denied_also_where_the_proxys_address_is_counted() {
    let service = hello(&proxied(Policy::new("peer", ONE).key(key::peer_ip()).deny(list(["203.0.113.9"]))));
    expect(&service, and(from("192.0.2.1"), "x-forwarded-for", "203.0.113.9"), 403);
    expect(&service, and(from("192.0.2.1"), "x-forwarded-for", "203.0.113.8"), 200);
}

#[test]
fn a_client_cannot_write_itself_onto_the_list_of_those_allowed() {
    let layer = Rig::memory().layer([Policy::new("all", ONE).allow(list(["10.0.0.0/8"]))]);
    let service = hello(&layer);
    let forged = || and(from("203.0.113.9"), "x-forwarded-for", "10.0.0.1");
    expect(&service, forged(), 200);
    expect(&service, forged(), 429);
}

#[test]
fn a_policy_by_address_lists_by_that_address() {
    let counted = key::client_ip().trusted_proxies(["192.0.2.1"]);
    let service = service(Policy::new("ip", ONE).key(counted).deny(list(["203.0.113.9"])));
    expect(&service, and(from("192.0.2.1"), "x-forwarded-for", "203.0.113.9"), 403);
    expect(&service, and(from("192.0.2.2"), "x-forwarded-for", "203.0.113.9"), 200);
}

#[test]
fn a_client_without_a_known_address_may_be_on_any_list_to_deny_and_is_on_none_to_allow() {
    expect(&service(per_ip().deny(list(["10.0.0.1"]))), get(), 403);
    let allowing = service(per_ip().allow(list(["0.0.0.0/0", "::/0"])));
    expect(&allowing, get(), 200);
    expect(&allowing, get(), 429);
}

#[test]
fn keys_are_listed_by_their_value_hashed_or_not() {
    let by_header = || key::header("x-user");
    for policy in [Policy::new("user", ONE).key(by_header()), Policy::new("user", ONE).key(by_header().plain())] {
        let service = service(policy.allow(list([TOKEN, "a user {1}"])));
        for (user, second) in [(TOKEN, 200), ("a user {1}", 200), ("a-secret-toke", 429), ("A-SECRET-TOKEN", 429)] {
            expect(&service, with("x-user", user), 200);
            expect(&service, with("x-user", user), second);
        }
    }
}

#[test]
fn a_denied_key_is_refused_whoever_brings_it() {
    let service = service(Policy::new("token", ONE).key(key::bearer()).deny(AccessList::default().key(TOKEN)));
    expect(&service, with("authorization", "Bearer a-secret-token"), 403);
    expect(&service, with("authorization", "Bearer another"), 200);
}

#[test]
fn the_hash_of_a_listed_key_is_not_the_key() {
    let hash = tollgate::Key::hashed("", TOKEN).as_str()[1..].to_owned();
    let service = service(Policy::new("user", ONE).key(key::header("x-user").plain()).allow(list([TOKEN])));
    expect(&service, with("x-user", &hash), 200);
    expect(&service, with("x-user", &hash), 429);
}

#[test]
fn who_is_allowed_and_denied_is_refused() {
    let (inside, office) = (list(["10.0.0.9", TOKEN]), list(["10.0.0.0/8", TOKEN]));
    let service = service(per_user().allow(office.clone()).deny(inside.clone()));
    expect(&service, from("10.0.0.9"), 403);
    expect(&service, from("10.0.0.8"), 200);
    expect(&service, with("x-user", TOKEN), 403);
    let swapped = Rig::memory().service([per_user().deny(inside).allow(office)]);
    expect(&swapped, from("10.0.0.9"), 403);
}

#[test]
fn an_allowed_client_is_still_counted_by_the_other_policies() {
    let all = Policy::new("all", Quota::per_hour(2));
    let service = Rig::memory().service([per_ip().allow(list(["10.0.0.0/8"])), all]);
    for (left, status) in [(1, 200), (0, 200), (0, 429)] {
        let response = now(&service, from("10.0.0.1"));
        assert_eq!(response.status(), status);
        assert_eq!(line(&response, "x-ratelimit-remaining"), left.to_string());
        assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=2;w=3600"#);
    }
}

#[test]
fn a_denied_client_is_told_so_and_nothing_is_counted_nor_called() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let layer = Rig::memory().layer([Policy::new("all", ONE), per_ip().deny(list(["10.0.0.0/8"]))]);
    let service = over(&layer, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Response::new(Text::default())
    });
    let response = now(&service, from("10.0.0.1"));
    assert_eq!(response.status(), 403);
    assert_eq!(line(&response, "content-type"), "application/problem+json");
    assert_eq!(line(&response, "cache-control"), "no-store");
    assert_eq!(response.headers().len(), 2, "no limits, no wait: {:?}", response.headers());
    let expected = r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":"This client is not allowed."}"#;
    assert_eq!(body(response), expected);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    expect(&service, from("11.0.0.1"), 200);
}

#[test]
fn a_policy_refuses_nobody_where_it_does_not_apply() {
    let service = service(per_ip().methods([Method::POST]).deny(list(["10.0.0.0/8"])));
    expect(&service, from("10.0.0.1"), 200);
    let mut post = from("10.0.0.1");
    *post.method_mut() = Method::POST;
    expect(&service, post, 403);
    expect(&service, method(Method::GET), 200);
}

#[test]
fn what_is_made_like_a_network_and_is_none_is_an_error() {
    for entry in ["10.0.0.0/33", "10.0.0.256", "10.0.0.0/x", "10.0.0.0/", "2001:db8::/129", "::1/", "::1::"] {
        bad(entry);
    }
}

#[test]
fn a_network_that_lacks_a_number_was_taken_for_a_key() {
    bad("10.0.0/8");
    bad("10.1/16");
    bad("1.2.3.4.5/8");
}

/// A policy whose list was given in two parts.
fn in_two(first: AccessList, second: AccessList, set: fn(Policy, AccessList) -> Policy) -> Service {
    service(set(set(per_ip(), first), second))
}

#[test]
fn a_second_list_dropped_the_first() {
    for (peer, status) in [("10.0.0.1", 403), ("192.0.2.1", 403), ("198.51.100.1", 200)] {
        expect(&in_two(list(["10.0.0.0/8"]), list(["192.0.2.0/24"]), Policy::deny), from(peer), status);
    }
    for (peer, status) in [("10.0.0.1", 200), ("192.0.2.1", 200), ("198.51.100.1", 429)] {
        let service = in_two(list(["10.0.0.0/8"]), list(["192.0.2.0/24"]), Policy::allow);
        expect(&service, from(peer), 200);
        expect(&service, from(peer), status);
    }
    let service = service(
        per_user()
            .deny(AccessList::default().key("eve"))
            .deny(AccessList::default().key_of("header x-user", "mallory")),
    );
    for (user, status) in [("eve", 403), ("mallory", 403), ("ada", 200)] {
        expect(&service, and(from("10.0.0.1"), "x-user", user), status);
    }
}

#[test]
fn of_two_lists_each_with_addresses_has_to_serve_unknown_ones() {
    let (strict, serving) = (|| list(["10.0.0.1"]), || list(["192.0.2.1"]).serve_unknown_addresses());
    for (first, second, status) in [
        (strict(), serving(), 403),
        (serving(), strict(), 403),
        (serving(), serving(), 200),
        (AccessList::default(), serving(), 200),
        (serving(), AccessList::default(), 200),
        (AccessList::default(), strict(), 403),
    ] {
        expect(&in_two(first, second, Policy::deny), get(), status);
    }
}
