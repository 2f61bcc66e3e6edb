//! Entries of lists that could never match anybody, or are nearly addresses.

use http::request::Parts;
use tollgate::key::{self, Extracted, KeyExtractor, KeyInfo};
use tollgate::policy::AccessList;
use tollgate::store::MaybeFuture;
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer};

use crate::rig::{Rig, expect, with};

fn policy(key: impl KeyExtractor) -> Policy {
    Policy::new("listed", Quota::per_hour(1)).key(key)
}

fn value(value: &str) -> AccessList {
    AccessList::default().key(value)
}

fn of(kind: &str) -> AccessList {
    AccessList::default().key_of(kind, "ada")
}

/// Why a layer is not built with a list.
fn refusal(policy: Policy) -> Option<String> {
    let error = RateLimitLayer::try_new(MemoryStore::new(), policy).err()?;
    assert!(error.is_invalid(), "{error}");
    Some(error.to_string())
}

#[track_caller]
fn idle(key: impl KeyExtractor, list: AccessList) {
    let error = refusal(policy(key).deny(list)).expect("it can never match");
    assert!(error.starts_with("entry 1 of the deny list of policy \"listed\" can never match: "), "{error}");
    assert!(error.contains("give it as requests carry it"), "{error}");
}

#[track_caller]
fn fine(key: impl KeyExtractor, list: AccessList) {
    assert_eq!(refusal(policy(key).deny(list)), None);
}

#[test]
fn a_value_that_no_key_of_the_policy_has_is_an_error() {
    idle(key::global(), value("friend"));
    idle(key::global(), value(""));
    idle(key::client_ip(), value("friend"));
    idle(key::client_ip(), value("2001:db8::1"));
    idle(key::client_ip(), value("10.0.0.0/8"));
    idle(key::peer_ip(), value("friend"));
    idle(key::method(), value("get"));
    idle(key::method(), value("HEAD"));
    idle(key::path(), value("login"));
    idle(key::path(), value("/search?q=1"));
    idle(key::path(), value("/a%62c"));
    idle(key::path(), value("//abc"));
    idle(key::route(), value("users"));
    idle(key::route(), value("/users/:id"));
    idle(key::host(), value("Example.com"));
    idle(key::host(), value("example.com:443"));
    idle(key::header("x-user"), value("read from a file\n"));
    idle(key::header("x-user"), value(" ada"));
    idle(key::header("x-user").ignore_case(), value("Ada"));
    idle(key::header("x-user").normalize(|id| id.to_ascii_lowercase().into()), value("Ada"));
    idle(key::cookie("session"), value("\"a\""));
    idle(key::cookie("session").ignore_case(), value("A"));
    idle(key::bearer(), value("two tokens"));
    idle(key::basic_user(), value("ada:password"));
    idle(key::path_param("id"), AccessList::default().key([0xff]));
    idle(key::query("q"), AccessList::default().key([0xff]));
    idle((key::method(), key::client_ip()), value("friend"));
    idle(key::header("x-user"), of("header x-usr"));
    idle((key::bearer(), key::query("q")), of("query p"));
}

#[test]
fn a_value_that_some_request_may_have_is_fine() {
    fine(key::client_ip(), value("10.0.0.7"));
    fine(key::client_ip(), value("2001:db8::/56"));
    fine(key::client_ip().v6_prefix(64), value("2001:db8::/64"));
    fine(key::method(), value("GET"));
    fine(key::method(), value("<other>"));
    fine(key::path(), value("/a%20b"));
    fine(key::path(), value("*"));
    fine(key::route(), value("/users/{id}"));
    fine(key::route(), value("<unmatched>"));
    fine(key::host(), value("[2001:db8::1]"));
    fine(key::header("x-user"), value("Zoë"));
    fine(key::header("x-user"), value(""));
    fine(key::bearer(), value("token"));
    fine(key::cookie("session"), value("a;b"));
    fine(key::basic_user(), value("ada l"));
    fine(key::query("q"), value("a\n"));
    fine(key::path_param("id"), value("Zoë"));
    fine(|_: &Parts| "x", value("anything"));
    fine(key::extension(|_: &u8| Key::new("user", "x")), value("anything"));
    fine((key::method(), key::header("x-user")), value("friend"));
    fine((key::header("x-user"), key::method()), of("header x-user"));
    fine(key::path_param("id"), of("path_param id"));
    fine(key::from_fn(|_| Some(Key::new("user", "ada"))), of("user"));
    // Addresses are matched whatever the key.
    for entry in ["10.0.0.0/8", "10.0.0.1", "2001:db8::/32"] {
        fine(key::global(), AccessList::parse([entry]).expect("it is an address"));
        fine(key::header("x-user"), AccessList::parse([entry]).expect("it is an address"));
    }
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
fn an_extractor_of_the_application_knows_its_values_by_the_key_that_it_makes_of_each() {
    fine(Airport, value("FRA"));
    fine((key::method(), Airport), AccessList::default().key_of("airport", "FRA"));
    idle(Airport, value("fra"));
    idle(Airport, value("FRAN"));
    idle(Airport, AccessList::default().key_of("port", "FRA"));
    let service = Rig::memory().service([policy(Airport).deny(value("FRA"))]);
    expect(&service, [(with("x-airport", "fra"), 403), (with("x-airport", "MUC"), 200)]);
}

#[test]
fn the_error_tells_which_entry_of_which_list_and_not_what_it_is() {
    let list = AccessList::parse(["10.0.0.0/8", "Example.com"]).expect("a list");
    let error = refusal(policy(key::host()).allow(list.clone())).expect("it can never match");
    assert!(error.contains("entry 2 of the allow list of policy \"listed\""), "{error}");
    assert!(!error.contains("xample") && !format!("{list:?}").contains("xample"), "it may be a secret");
    let replaced = RateLimitLayer::new(MemoryStore::new(), policy(key::host())).live();
    let error = replaced.replace_policies([policy(key::global()).deny(value("friend"))]).expect_err("it is checked");
    assert!(error.to_string().contains("can never match"), "{error}");
}

#[test]
fn what_is_nearly_an_address_is_an_error() {
    const SPACED: [&str; 6] =
        [" 203.0.113.7", "\t203.0.113.7", "2001:db8::1 ", " 10.0.0.0/8", "10.0.0.0 / 8", "10.0.0.1\u{a0}"];
    const ENCLOSED: [&str; 4] = ["[2001:db8::1]", "[203.0.113.7]", "<203.0.113.7>", "'203.0.113.7'"];
    const WITH_PORTS: [&str; 3] = ["203.0.113.7:80", "[2001:db8::1]:443", "203.0.113.7:"];
    const STARS: [&str; 5] = ["203.0.113.*", "203.0.*.*", "10.*", "2001:db8::*", "203.0.113.x"];
    const RANGES: [&str; 4] = ["10.0.0.1-10.0.0.9", "10.0.0.1 - 10.0.0.9", "10.0.0.1-9", "10.0.0.1\u{2013}10.0.0.9"];
    const ZEROS: [&str; 4] = ["010.0.0.1", "203.0.113.007", "10.0.0.0/08", "0x7f.0.0.1"];
    const SEVERAL: [&str; 4] = ["10.0.0.1,10.0.0.2", "10.0.0.1 10.0.0.2", "10.0.0.0/8;", "!10.0.0.0/8"];
    const MORE: [&str; 3] = ["fe80::1%eth0", "10.0.0.1 # office", "10.0.0.0/8 office"];
    const NO_NETWORKS: [&str; 6] =
        ["10.0.0.0/33", "10.0.0.0/x", "10.0.0.0/", "10.0.0/8", "10.1/16", "10.0.0.0/255.0.0.0"];
    const NO_ADDRESSES: [&str; 6] = ["10.0.0.256", "1.2.3.4.5", "1.2.3.4.5/8", "::1/129", "::1/", "1::2::3"];
    let ipv4 = SPACED.iter().chain(&ENCLOSED).chain(&WITH_PORTS).chain(&STARS).chain(&RANGES).chain(&ZEROS);
    for entry in ipv4.chain(&SEVERAL).chain(&MORE).chain(&NO_NETWORKS).chain(&NO_ADDRESSES) {
        let error = AccessList::parse(["10.0.0.1", entry]).expect_err(entry);
        let told = error.to_string();
        assert!(error.is_invalid() && told.contains("looks like an address but is not a valid one: give"), "{told}");
        assert!(told.contains("key_of"), "{told}");
    }
}

#[test]
fn a_value_that_has_dots_dashes_and_colons_is_a_value() {
    for entry in [
        "tenant-1.2",
        "1.2.3",
        "v1.2.3.4",
        "1.2.3.4-beta",
        "a.b.c.d",
        "sk_live_1.2.3.4",
        "2001-db8",
        "a:b",
        "-",
        "[",
        "*",
        "550e8400-e29b-41d4-a716-446655440000",
        "10",
        "10-20",
        "ada@10.0.0.1",
        "ip=10.0.0.1",
    ] {
        let list = AccessList::parse([entry]).expect(entry);
        let service = Rig::memory().service([policy(key::header("x-user")).deny(list)]);
        expect(&service, [(with("x-user", entry), 403)]);
    }
    // What looks like an address can be said to be a value.
    let value = "203.0.113.*";
    for list in [AccessList::default().key(value), AccessList::default().key_of("header x-user", value)] {
        let service = Rig::memory().service([policy(key::header("x-user")).deny(list)]);
        expect(&service, [(with("x-user", value), 403), (with("x-user", "203.0.113.7"), 200)]);
    }
}
