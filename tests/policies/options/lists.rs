//! Clients that are never limited, or always refused.

use http::{Method, Request};
use tollgate::key::{self, KeyExtractor};
use tollgate::policy::AccessList;
use tollgate::{Key, Policy, Quota};
use tracing::Level;

use crate::rig::{Rig, Text, and, body, expect, from, get, line, method, send, service, statuses, with};
use crate::support::log::Log;

const ONE: Quota = Quota::per_hour(1);
const TOKEN: &str = "a-secret-token";

const SPARED: [u16; 2] = [200, 200];
const LIMITED: [u16; 2] = [200, 429];
const DENIED: [u16; 2] = [403, 403];

fn list<const N: usize>(entries: [&str; N]) -> AccessList {
    AccessList::parse(entries).expect("the entries are right")
}

fn of_kind(kind: &str, value: &str) -> AccessList {
    AccessList::default().key_of(kind, value)
}

fn by(key: impl KeyExtractor) -> Policy {
    Policy::new("listed", ONE).key(key)
}

fn header() -> key::ValueKey {
    key::header("x-user")
}

fn user(name: &str) -> Request<Text> {
    with("x-user", name)
}

/// The statuses of the first two requests of a client.
#[track_caller]
fn twice(policy: Policy, request: &Request<Text>) -> [u16; 2] {
    statuses(&service(policy), [request.clone(), request.clone()])
}

#[test]
fn clients_of_a_listed_network_are_never_limited_or_always_refused() {
    for (entry, peer, is_listed) in [
        ("10.0.0.0/8", "10.200.0.1", true),
        ("10.0.0.7/8", "10.200.0.1", true),
        ("10.0.0.0/8", "11.0.0.1", false),
        ("10.0.0.7", "10.0.0.7", true),
        ("10.0.0.7", "10.0.0.8", false),
        ("2001:db8::/32", "2001:db8:1::9", true),
        ("2001:db8::9", "2001:db8::a", false),
        ("10.0.0.0/8", "::ffff:10.0.0.1", true),
        ("10.0.0.0/8", "64:ff9b::10.0.0.7", true),
        ("10.0.0.0/8", "2002:a00:7107:1::1", true),
        ("10.0.0.0/8", "64:ff9b::11.0.0.1", false),
        ("::ffff:10.0.0.7", "10.0.0.7", true),
        ("::ffff:10.0.0.0/104", "11.0.0.0", false),
        ("0.0.0.0/0", "2001:db8::9", false),
        ("::/0", "::ffff:10.0.0.1", false),
        // The network of IPv6 through which clients of IPv4 come.
        ("64:ff9b::/96", "64:ff9b::203.0.113.7", true),
    ] {
        // Whatever the key of the policy.
        for policy in [by(key::client_ip()), by(key::global())] {
            let (allowed, denied) = if is_listed { (SPARED, DENIED) } else { (LIMITED, LIMITED) };
            let list = || list([entry, "192.0.2.0/24"]);
            assert_eq!(twice(policy.clone().allow(list()), &from(peer)), allowed, "{entry} is allowed, {peer}");
            assert_eq!(twice(policy.deny(list()), &from(peer)), denied, "{entry} is denied, {peer}");
        }
    }
}

#[test]
fn a_client_without_a_known_address_may_be_on_any_list_to_deny_and_is_on_none_to_allow() {
    let (strict, serving) = (|| list(["10.0.0.1", "stolen"]), || list(["192.0.2.1"]).serve_unknown_addresses());
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    for (policy, request, expected) in [
        (by(key::client_ip()).deny(list(["10.0.0.1"])), get(), DENIED),
        (by(header()).deny(strict()), get(), DENIED),
        (by(header()).deny(strict()), user("ada"), DENIED),
        (by(header()).deny(list(["stolen"])), get(), SPARED),
        (by(key::client_ip()).allow(list(["0.0.0.0/0", "::/0"])), get(), LIMITED),
        // Of two lists each with addresses has to serve unknown ones.
        (by(header()).deny(strict()).deny(serving()), user("ada"), DENIED),
        (by(header()).deny(serving()).deny(strict()), user("ada"), DENIED),
        (by(header()).deny(serving()).deny(serving()), user("ada"), LIMITED),
        (by(header()).deny(AccessList::default()).deny(serving()), user("ada"), LIMITED),
        (by(header()).deny(serving()), from("192.0.2.1"), DENIED),
    ] {
        let (what, before) = (format!("{policy:?}"), log.count("list_without_address"));
        assert_eq!(twice(policy, &request), expected, "{what}");
        assert!(log.count("list_without_address") <= before + 1, "a list says so once: {}", log.text());
    }
    assert!(log.count("policy=\"listed\"") > 0, "{}", log.text());
}

#[test]
fn a_listed_key_is_spared_or_refused_by_its_whole_value_whoever_brings_it() {
    let joined = key::from_fn(|parts| {
        let token = parts.headers.get("x-user")?.as_bytes();
        Some(Key::hashed("token", token).join(&Key::new("all", "")))
    });
    let long = "k".repeat(200);
    let hash = Key::hashed("", TOKEN).as_str()[1..].to_owned();
    for policy in [
        by(header()),
        by(header().plain()),
        by((header(), key::method())),
        by((key::method(), header().plain(), key::path())),
        by((header(), key::client_ip())),
        by(joined),
    ] {
        for name in [TOKEN, "a user {1}|2", &long] {
            let (list, request) = (|| list([TOKEN, "a user {1}|2", &long]), and(from("10.0.0.1"), "x-user", name));
            assert_eq!(twice(policy.clone().allow(list()), &request), SPARED, "{name} is allowed");
            assert_eq!(twice(policy.clone().deny(list()), &request), DENIED, "{name} is denied");
        }
    }
    for name in ["another", "A-SECRET-TOKEN", "a-secret-toke", "a user {1}", &long[1..], &hash] {
        for policy in [by(header()), by(header().plain()), by((header(), key::path()))] {
            assert_eq!(twice(policy.clone().allow(list([TOKEN, &long])), &user(name)), LIMITED, "{name}");
            assert_eq!(twice(policy.deny(list([TOKEN, &long])), &user(name)), LIMITED, "{name}");
        }
    }
}

#[test]
fn parts_of_joined_keys_are_listed_each_for_itself() {
    let both = || by((key::header("x-a").plain(), key::header("x-b").plain()));
    let pair = |a: &str, b: &str| and(with("x-a", a), "x-b", b);
    let any = || both().deny(list(["one|two", "three"]));
    let of_a = || both().deny(of_kind("header x-a", "three"));
    let deleting = || by((header(), key::method())).deny(list(["DELETE"]));
    for (policy, request, expected) in [
        (any(), pair("one", "two"), LIMITED),
        (any(), pair("one|two", "x"), DENIED),
        (any(), pair("x", "one|two"), DENIED),
        (any(), pair("thre", "e"), LIMITED),
        (any(), pair("%74hree", "x"), LIMITED),
        // Also where the other part is missing.
        (any(), with("x-b", "three"), DENIED),
        (any(), with("x-b", "four"), SPARED),
        (of_a(), pair("three", "x"), DENIED),
        (of_a(), pair("x", "three"), LIMITED),
        (of_a(), with("x-b", "three"), SPARED),
        (both().allow(of_kind("header x-a", "three")), pair("x", "three"), LIMITED),
        (both().allow(of_kind("header x-a", "three")), pair("three", "x"), SPARED),
        (deleting(), and(method(Method::DELETE), "x-user", "a"), DENIED),
        (deleting(), user("a"), LIMITED),
    ] {
        assert_eq!(twice(policy, &request), expected, "{request:?}");
    }
}

#[test]
fn a_second_list_dropped_the_first() {
    let (first, second) = (|| list(["10.0.0.0/8"]), || list(["192.0.2.0/24", "eve"]));
    let denying = || by(header()).deny(first()).deny(second()).deny(of_kind("header x-user", "mallory"));
    let allowing = || by(key::peer_ip()).allow(first()).allow(list(["192.0.2.0/24"]));
    for (peer, allowed) in [("10.0.0.1", SPARED), ("192.0.2.1", SPARED), ("198.51.100.1", LIMITED)] {
        assert_eq!(twice(allowing(), &from(peer)), allowed, "{peer} is allowed");
        let denied = if allowed == SPARED { DENIED } else { LIMITED };
        assert_eq!(twice(denying(), &and(from(peer), "x-user", "ada")), denied, "{peer} is denied");
    }
    for name in ["eve", "mallory"] {
        assert_eq!(twice(denying(), &and(from("198.51.100.1"), "x-user", name)), DENIED, "{name}");
    }
}

#[test]
fn a_denied_client_is_told_so_and_nothing_is_counted_and_an_allowed_one_is_by_the_other_policies() {
    let service = Rig::new().service([Policy::new("all", ONE), by(key::client_ip()).deny(list(["10.0.0.0/8"]))]);
    let response = send(&service, from("10.0.0.1"));
    assert_eq!((response.status().as_u16(), line(&response, "content-type")), (403, "application/problem+json"));
    assert_eq!((line(&response, "cache-control"), response.headers().len()), ("no-store", 2), "no limits, no wait");
    let expected = r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":"This client is not allowed."}"#;
    assert_eq!(body(response), expected);
    expect(&service, [(from("11.0.0.1"), 200)]);
    let both = [Policy::new("all", ONE), by(key::client_ip()).allow(list(["10.0.0.0/8"]))];
    expect(&Rig::new().service(both), [(from("10.0.0.1"), 200), (from("10.0.0.1"), 429)]);
    let posts = by(key::client_ip()).methods([Method::POST]).deny(list(["10.0.0.0/8"]));
    assert_eq!(twice(posts, &from("10.0.0.1")), SPARED, "it refuses nobody where it does not apply");
}
