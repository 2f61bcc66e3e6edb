//! Entries of lists that could never match anybody, or are nearly addresses.

use http::request::Parts;
use tollgate::key::{self, Extracted, KeyExtractor, KeyInfo};
use tollgate::policy::AccessList;
use tollgate::store::MaybeFuture;
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer};

use crate::rig::{expect, service, with};

fn policy(key: impl KeyExtractor) -> Policy {
    Policy::new("listed", Quota::per_hour(1)).key(key)
}

fn value(value: &str) -> AccessList {
    AccessList::default().key(value)
}

fn of(kind: &str, value: &str) -> AccessList {
    AccessList::default().key_of(kind, value)
}

/// Keys of one kind, by values of three letters.
#[derive(Clone)]
struct Airport;

impl KeyExtractor for Airport {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        let code = parts.headers.get("x-airport");
        MaybeFuture::Ready(code.and_then(|code| self.key_of(code.as_bytes())).into())
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::new("airport")
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        (value.len() == 3).then(|| Key::hashed("airport", value.to_ascii_uppercase()))
    }
}

#[test]
fn a_value_that_no_key_of_the_policy_has_as_it_is_written_is_an_error() {
    let user = || key::header("x-user");
    for (policy, list) in [
        (policy(key::global()), value("friend")),
        (policy(key::client_ip()), value("10.0.0.0/8")),
        (policy(key::method()), value("HEAD")),
        (policy(key::path()), value("/a%62c")),
        (policy(key::route()), value("/users/:id")),
        (policy(key::host()), value("example.com:443")),
        (policy(user()), value("read from a file\n")),
        (policy(user().ignore_case()), value("Ada")),
        (policy(key::cookie("session")), value("\"a\"")),
        (policy((key::method(), key::client_ip())), value("friend")),
        (policy(user()), of("header x-usr", "ada")),
        (policy((key::bearer(), key::query("q"))), of("query p", "ada")),
        (policy(Airport), value("fra")),
        (policy(Airport), of("port", "FRA")),
    ] {
        let error = RateLimitLayer::try_new(MemoryStore::new(), policy.deny(list)).expect_err("it never matches");
        assert!(error.is_invalid(), "{error}");
        let error = error.to_string();
        assert!(error.starts_with("entry 1 of the deny list of policy \"listed\" can never match: "), "{error}");
        assert!(error.contains("use it as requests carry it"), "{error}");
    }
    let live = RateLimitLayer::new(MemoryStore::new(), policy(key::host())).live();
    let second = policy(key::host()).allow(AccessList::parse(["10.0.0.0/8", "Example.com"]).expect("a list"));
    let error = live.replace_policies([second]).expect_err("it is checked").to_string();
    assert!(error.contains("entry 2 of the allow list") && !error.contains("xample"), "it may be a secret: {error}");
}

#[test]
fn a_value_that_some_request_may_have_is_an_entry() {
    let user = || key::header("x-user");
    let address = |entry| AccessList::parse([entry]).expect("it is an address");
    for (policy, list) in [
        (policy(key::client_ip().v6_prefix(64)), value("2001:db8::/64")),
        (policy(key::method()), value("<other>")),
        (policy(key::path()), value("/a%20b")),
        (policy(key::route()), value("<unmatched>")),
        (policy(key::host()), value("[2001:db8::1]")),
        (policy(user()), value("Zoë")),
        (policy(|_: &Parts| "x"), value("anything")),
        (policy((key::method(), user())), value("friend")),
        (policy((user(), key::method())), of("header x-user", "ada")),
        (policy(key::from_fn(|_| Some(Key::new("user", "ada")))), of("user", "ada")),
        // Addresses are matched whatever the key.
        (policy(key::global()), address("10.0.0.0/8")),
        (policy(user()), address("2001:db8::1")),
    ] {
        let built = RateLimitLayer::try_new(MemoryStore::new(), policy.deny(list));
        assert!(built.is_ok(), "{built:?}");
    }
    let denying = service(policy(Airport).deny(value("FRA")));
    expect(&denying, [(with("x-airport", "fra"), 403), (with("x-airport", "MUC"), 200)]);
}

#[test]
fn what_is_nearly_an_address_is_an_error() {
    let spaced = [" 203.0.113.7", "\t203.0.113.7", "10.0.0.0 / 8", "10.0.0.1\u{a0}", "10.0.0.1 # office"];
    let enclosed = ["[2001:db8::1]", "<203.0.113.7>", "'203.0.113.7'", "203.0.113.7:80", "[2001:db8::1]:443"];
    let several = ["203.0.113.*", "10.*", "2001:db8::*", "10.0.0.1-10.0.0.9", "10.0.0.1-9", "10.0.0.1,10.0.0.2"];
    let numbers = ["010.0.0.1", "10.0.0.0/08", "0x7f.0.0.1", "10.0.0.256", "1.2.3.4.5", "fe80::1%eth0", "1::2::3"];
    let networks =
        ["10.0.0.0/33", "10.0.0.0/", "10.1/16", "10.0.0.0/255.0.0.0", "::1/129", "10.0.0.0/8;", "!10.0.0.0/8"];
    for entry in spaced.iter().chain(&enclosed).chain(&several).chain(&numbers).chain(&networks) {
        let error = AccessList::parse(["10.0.0.1", entry]).expect_err(entry);
        let told = error.to_string();
        assert!(error.is_invalid() && told.contains("looks like an address but is not a valid one: use"), "{told}");
        assert!(told.contains("key_of"), "{told}");
    }
}

#[test]
fn a_value_that_has_dots_dashes_and_colons_is_a_value() {
    let versions = ["tenant-1.2", "1.2.3", "v1.2.3.4", "1.2.3.4-beta", "a.b.c.d", "10", "10-20", "2001-db8"];
    let others = ["a:b", "-", "[", "*", "550e8400-e29b-41d4-a716-446655440000", "ada@10.0.0.1", "ip=10.0.0.1"];
    let parsed = versions.iter().chain(&others).map(|entry| (*entry, AccessList::parse([entry]).expect(entry)));
    // What looks like an address can be said to be a value.
    let said = ["203.0.113.*"; 2].into_iter().zip([value("203.0.113.*"), of("header x-user", "203.0.113.*")]);
    for (entry, list) in parsed.chain(said) {
        let denying = service(policy(key::header("x-user")).deny(list));
        expect(&denying, [(with("x-user", entry), 403), (with("x-user", "203.0.113.7"), 200)]);
    }
}
