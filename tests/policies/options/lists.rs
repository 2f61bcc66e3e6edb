//! Clients that are never limited, or always refused.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response};
use tollgate::key::{self, KeyExtractor};
use tollgate::policy::{AccessList, MissingKey};
use tollgate::{Key, Policy, Quota};
use tracing::Level;

use crate::rig::{Rig, Service, Text, and, body, expect, from, get, hello, line, method, now, over, send, with};
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

fn service(policy: Policy) -> Service {
    Rig::memory().service([policy])
}

/// The statuses of the first two requests of a client.
#[track_caller]
fn twice(policy: Policy, request: &Request<Text>) -> [u16; 2] {
    let service = service(policy);
    [(), ()].map(|()| now(&service, request.clone()).status().as_u16())
}

#[test]
fn clients_of_an_allowed_network_are_never_limited() {
    for (entry, peer, expected) in [
        ("10.0.0.0/8", "10.200.0.1", SPARED),
        ("10.0.0.7/8", "10.200.0.1", SPARED),
        ("10.0.0.0/8", "11.0.0.1", LIMITED),
        ("10.0.0.7", "10.0.0.7", SPARED),
        ("10.0.0.7", "10.0.0.8", LIMITED),
        ("2001:db8::/32", "2001:db8:1::9", SPARED),
        ("2001:db8::/32", "2001:db9::9", LIMITED),
        ("2001:db8::9", "2001:db8::a", LIMITED),
        ("10.0.0.0/8", "::ffff:10.0.0.1", SPARED),
        ("::ffff:10.0.0.7", "10.0.0.7", SPARED),
        ("::/0", "::ffff:10.0.0.1", LIMITED),
    ] {
        let policy = by(key::client_ip()).allow(list([entry, "192.0.2.0/24"]));
        assert_eq!(twice(policy, &from(peer)), expected, "{entry}, {peer}");
    }
    assert_eq!(twice(by(key::client_ip()).allow(list([])), &from("10.0.0.1")), LIMITED);
}

#[test]
fn clients_of_a_denied_network_are_always_refused() {
    for (entry, peer, expected) in [
        ("10.0.0.0/8", "10.0.0.1", DENIED),
        ("10.0.0.0/8", "::ffff:10.0.0.1", DENIED),
        ("10.0.0.0/8", "64:ff9b::10.0.0.7", DENIED),
        ("10.0.0.0/8", "2002:a00:7107:1::1", DENIED),
        ("10.0.0.0/8", "11.0.0.1", LIMITED),
        ("10.0.0.0/8", "64:ff9b::11.0.0.1", LIMITED),
        ("::ffff:10.0.0.0/104", "10.9.9.9", DENIED),
        ("::ffff:10.0.0.0/104", "11.0.0.0", LIMITED),
        ("0.0.0.0/0", "2001:db8::9", LIMITED),
        ("2001:db8::/32", "2001:db8::9", DENIED),
        // The network of IPv6 through which clients of IPv4 come.
        ("64:ff9b::/96", "64:ff9b::203.0.113.7", DENIED),
        ("64:ff9b::203.0.113.7", "64:ff9b::203.0.113.7", DENIED),
        ("2000::/3", "2002:cb00:7107::1", DENIED),
    ] {
        // Whatever the key of the policy.
        for policy in [by(key::client_ip()), by(key::global())] {
            assert_eq!(twice(policy.deny(list([entry])), &from(peer)), expected, "{entry}, {peer}");
        }
    }
}

#[test]
fn lists_see_behind_the_trusted_proxies_of_the_layer_or_of_the_key() {
    let networks = || key::client_ip().trusted_proxies(["192.0.2.1"]);
    let denied = || list(["203.0.113.0/24"]);
    let behind = |policy: Policy| hello(&Rig::memory().layer([policy]).client(networks()));
    for service in [
        behind(by(header()).deny(denied())),
        behind(by(key::peer_ip()).deny(denied())),
        service(by(networks()).deny(denied())),
    ] {
        for (peer, chain, status) in [
            ("192.0.2.1", "203.0.113.9", 403),
            ("192.0.2.1", "203.0.113.9, 198.51.100.1", 200),
            ("198.51.100.1", "203.0.113.9", 200),
            ("203.0.113.9", "198.51.100.1", 403),
        ] {
            let response = now(&service, and(from(peer), "x-forwarded-for", chain));
            assert_eq!(response.status() == 403, status == 403, "{peer}, {chain}");
        }
    }
    let forged = and(from("203.0.113.9"), "x-forwarded-for", "10.0.0.1");
    assert_eq!(twice(Policy::new("all", ONE).allow(list(["10.0.0.0/8"])), &forged), LIMITED);
    // What is no address is the proxy's, whatever else is written.
    for chain in ["203.0.113.9, junk", "203.0.113.9x", "\"203.0.113.9\"", "203.0.113.9 ,;"] {
        let garbled = and(and(from("192.0.2.1"), "x-forwarded-for", chain), "x-user", "203.0.113.9");
        assert_eq!(twice(by(networks()).allow(denied()), &garbled), LIMITED, "{chain}");
    }
}

#[test]
fn a_client_without_a_known_address_may_be_on_any_list_to_deny_and_is_on_none_to_allow() {
    let (strict, serving) = (|| list(["10.0.0.1", "stolen"]), || list(["192.0.2.1"]).serve_unknown_addresses());
    let ada = || user("ada");
    for (policy, request, expected) in [
        (by(key::client_ip()).deny(list(["10.0.0.1"])), get(), DENIED),
        (by(header()).deny(strict()), get(), DENIED),
        (by(header()).deny(strict()), ada(), DENIED),
        (by(header()).deny(list(["stolen"])), get(), SPARED),
        (by(key::client_ip()).allow(list(["0.0.0.0/0", "::/0"])), get(), LIMITED),
        // Of two lists each with addresses has to serve unknown ones.
        (by(header()).deny(strict()).deny(serving()), ada(), DENIED),
        (by(header()).deny(serving()).deny(strict()), ada(), DENIED),
        (by(header()).deny(serving()).deny(serving()), ada(), LIMITED),
        (by(header()).deny(AccessList::default()).deny(serving()), ada(), LIMITED),
        (by(header()).deny(serving()).deny(AccessList::default()), ada(), LIMITED),
        (by(header()).deny(serving()), from("192.0.2.1"), DENIED),
    ] {
        let what = format!("{policy:?}");
        assert_eq!(twice(policy, &request), expected, "{what}");
    }
}

#[test]
fn a_list_that_meets_clients_of_unknown_address_says_so_once() {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let service = service(by(key::global()).deny(list(["10.0.0.0/8"])));
    expect(&service, [(from("11.0.0.1"), 200)]);
    assert_eq!(log.count("list_without_address"), 0, "the address is known");
    expect(&service, [(get(), 403), (get(), 403)]);
    assert_eq!(log.count("list_without_address"), 1);
    assert_eq!(log.count("policy=\"listed\""), 1);
}

#[test]
fn a_denied_key_is_refused_whoever_brings_it() {
    let looked_up = || key::lookup(key::global(), |_| async { Ok::<_, Infallible>(Key::new("tenant", "t")) });
    let joined = key::from_fn(|parts| {
        let token = parts.headers.get("x-user")?.as_bytes();
        Some(Key::hashed("token", token).join(&Key::new("all", "")))
    });
    for policy in [
        by(header()),
        by(header().plain()),
        by((header(), key::method())),
        by((key::method(), header().plain())),
        by((key::method(), header(), key::path())),
        by((header(), key::client_ip())),
        by((header(), looked_up())),
        by(joined),
    ] {
        let policy = policy.missing_key(MissingKey::Share).deny(list([TOKEN]));
        for (name, status) in [(TOKEN, 403), ("another", 200), ("A-SECRET-TOKEN", 200)] {
            let request = and(from("10.0.0.1"), "x-user", name);
            let response = tokio_test::block_on(send(&service(policy.clone()), request));
            assert_eq!(response.status(), status, "{name}: {policy:?}");
        }
    }
    let bearer = by(key::bearer()).deny(AccessList::default().key(TOKEN));
    assert_eq!(twice(bearer, &with("authorization", "Bearer a-secret-token")), DENIED);
}

#[test]
fn keys_are_listed_by_their_whole_value_and_never_with_what_separates_parts() {
    let long = "k".repeat(200);
    let hash = Key::hashed("", TOKEN).as_str()[1..].to_owned();
    for policy in [by(header()), by(header().plain()), by((header(), key::path()))] {
        for (name, expected) in [
            (TOKEN, SPARED),
            ("a user {1}|2", SPARED),
            (&long, SPARED),
            (&long[1..], LIMITED),
            ("a-secret-toke", LIMITED),
            ("A-SECRET-TOKEN", LIMITED),
            ("a user {1}", LIMITED),
            (&hash, LIMITED),
        ] {
            let allowing = policy.clone().allow(list([TOKEN, "a user {1}|2", &long]));
            assert_eq!(twice(allowing, &user(name)), expected, "{name}");
        }
    }
}

#[test]
fn parts_of_joined_keys_are_listed_each_for_itself() {
    let both = || by((key::header("x-a").plain(), key::header("x-b").plain()));
    let pair = |a: &str, b: &str| and(with("x-a", a), "x-b", b);
    let any = || both().deny(list(["one|two", "three"]));
    let of_a = || both().deny(of_kind("header x-a", "three"));
    for (policy, request, expected) in [
        (any(), pair("one", "two"), LIMITED),
        (any(), pair("one|two", "x"), DENIED),
        (any(), pair("x", "one|two"), DENIED),
        (any(), pair("three", "x"), DENIED),
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
        (by((header(), key::method())).deny(list(["DELETE"])), and(method(Method::DELETE), "x-user", "a"), DENIED),
        (by((header(), key::method())).deny(list(["DELETE"])), user("a"), LIMITED),
    ] {
        let what = format!("{request:?}");
        assert_eq!(twice(policy, &request), expected, "{what}");
    }
}

#[test]
fn who_is_allowed_and_denied_is_refused() {
    let (inside, office) = (list(["10.0.0.9", TOKEN]), list(["10.0.0.0/8", TOKEN]));
    for policy in [by(header()).allow(office.clone()).deny(inside.clone()), by(header()).deny(inside).allow(office)] {
        let stolen = || and(from("10.0.0.8"), "x-user", TOKEN);
        let needing = service(policy.clone().missing_key(MissingKey::Deny));
        expect(&needing, [(from("10.0.0.9"), 403), (stolen(), 403), (from("10.0.0.8"), 200), (from("11.0.0.1"), 403)]);
        expect(&service(policy), [(from("10.0.0.9"), 403), (stolen(), 403), (from("10.0.0.8"), 200)]);
    }
}

#[test]
fn a_second_list_dropped_the_first() {
    let (first, second) = (|| list(["10.0.0.0/8"]), || list(["192.0.2.0/24"]));
    let values = || by(header()).deny(AccessList::default().key("eve")).deny(of_kind("header x-user", "mallory"));
    for (peer, denied, allowed) in
        [("10.0.0.1", DENIED, SPARED), ("192.0.2.1", DENIED, SPARED), ("198.51.100.1", LIMITED, LIMITED)]
    {
        assert_eq!(twice(by(key::client_ip()).deny(first()).deny(second()), &from(peer)), denied, "{peer}");
        assert_eq!(twice(by(key::client_ip()).allow(first()).allow(second()), &from(peer)), allowed, "{peer}");
    }
    for (name, expected) in [("eve", DENIED), ("mallory", DENIED), ("ada", LIMITED)] {
        assert_eq!(twice(values(), &user(name)), expected, "{name}");
    }
}

#[test]
fn an_allowed_client_is_still_counted_by_the_other_policies() {
    let all = Policy::new("all", Quota::per_hour(2));
    let service = Rig::memory().service([by(key::client_ip()).allow(list(["10.0.0.0/8"])), all]);
    for (left, status) in [("1", 200), ("0", 200), ("0", 429)] {
        let response = now(&service, from("10.0.0.1"));
        assert_eq!((response.status().as_u16(), line(&response, "x-ratelimit-remaining")), (status, left));
        assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=2;w=3600"#);
    }
}

#[test]
fn a_denied_client_is_told_so_and_nothing_is_counted_nor_called() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let layer = Rig::memory().layer([Policy::new("all", ONE), by(key::client_ip()).deny(list(["10.0.0.0/8"]))]);
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
    expect(&service, [(from("11.0.0.1"), 200)]);
    let posts = by(key::client_ip()).methods([Method::POST]).deny(list(["10.0.0.0/8"]));
    assert_eq!(twice(posts, &from("10.0.0.1")), SPARED, "it refuses nobody where it does not apply");
}
