//! Lists of clients whose keys are joined of several.

use std::convert::Infallible;

use http::Method;
use tollgate::key::{self, KeyExtractor};
use tollgate::policy::{AccessList, MissingKey};
use tollgate::{Key, Policy, Quota};

use super::rig::{Rig, Service, and, expect, from, get, method, statuses, with};

const ONE: Quota = Quota::per_hour(1);
const STOLEN: &str = "stolen";

fn list<const N: usize>(entries: [&str; N]) -> AccessList {
    AccessList::parse(entries).expect("the entries are right")
}

fn pairs(key: impl KeyExtractor) -> Policy {
    Policy::new("pairs", ONE).key(key)
}

fn service(policy: Policy) -> Service {
    Rig::memory().service([policy])
}

fn header() -> key::ValueKey {
    key::header("x-api-key")
}

#[tokio::test]
async fn a_denied_key_is_refused_whatever_it_is_joined_with() {
    for policy in [
        pairs((header(), key::method())),
        pairs((key::method(), header())),
        pairs((header().plain(), key::method())),
        pairs((key::method(), header(), key::path())),
        pairs((header(), key::client_ip())),
        pairs((header(), key::lookup(key::global(), |_| async { Ok::<_, Infallible>(Key::new("tenant", "t")) }))),
        pairs(key::from_fn(|parts| {
            let token = parts.headers.get("x-api-key")?.as_bytes();
            Some(Key::hashed("token", token).join(&Key::new("all", "")))
        })),
    ] {
        let service = Rig::memory().service([policy.missing_key(MissingKey::Share).deny(list([STOLEN]))]);
        let request = |value| and(from("10.0.0.1"), "x-api-key", value);
        assert_eq!(statuses(&service, [request(STOLEN), request("another")]).await, [403, 200]);
    }
}

#[test]
fn an_allowed_part_is_never_limited() {
    let service = service(pairs((header(), key::path())).allow(list(["monitoring", "a key {1}|2"])));
    for (value, second) in [("monitoring", 200), ("a key {1}|2", 200), ("monitorin", 429), ("a key {1}", 429)] {
        expect(&service, with("x-api-key", value), 200);
        expect(&service, with("x-api-key", value), second);
    }
}

#[test]
fn parts_are_compared_whole_and_never_with_what_separates_them() {
    let both = || (key::header("x-a").plain(), key::header("x-b").plain());
    let service = service(pairs(both()).deny(list(["one|two", "three"])));
    for (a, b, status) in [
        ("one", "two", 200),
        ("one|two", "x", 403),
        ("x", "one|two", 403),
        ("three", "x", 403),
        ("x", "three", 403),
        ("thre", "e", 200),
        ("%74hree", "x", 200),
    ] {
        expect(&service, and(with("x-a", a), "x-b", b), status);
    }
}

#[test]
fn a_long_part_is_listed_as_it_is_sent() {
    let long = "k".repeat(200);
    let service = service(pairs((header().plain(), key::method())).deny(list([&long])));
    expect(&service, with("x-api-key", &long), 403);
    expect(&service, with("x-api-key", &long[1..]), 200);
}

#[test]
fn an_entry_of_a_kind_is_not_matched_by_what_clients_write_into_another_part() {
    let both = || (header(), key::header("x-tenant").plain());
    let only = AccessList::default().key_of("header x-api-key", "monitoring");
    let service = service(pairs(both()).allow(only));
    let forged = || and(with("x-api-key", "mine"), "x-tenant", "monitoring");
    expect(&service, forged(), 200);
    expect(&service, forged(), 429);
    let named = || and(with("x-api-key", "monitoring"), "x-tenant", "any");
    expect(&service, named(), 200);
    expect(&service, named(), 200);
}

#[test]
fn an_entry_of_a_kind_matches_keys_that_are_not_joined() {
    let service = service(pairs(header()).deny(AccessList::default().key_of("header x-api-key", STOLEN)));
    expect(&service, with("x-api-key", STOLEN), 403);
    expect(&service, with("x-api-key", "another"), 200);
    expect(&service, get(), 200);
}

#[test]
fn a_method_on_a_list_is_one_of_the_parts() {
    let service = service(pairs((header(), key::method())).deny(list(["DELETE"])));
    expect(&service, and(method(Method::DELETE), "x-api-key", "a"), 403);
    expect(&service, and(method(Method::GET), "x-api-key", "a"), 200);
}
