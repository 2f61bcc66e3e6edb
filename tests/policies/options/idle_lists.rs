//! Lists that could never match anybody.

use http::request::Parts;
use tollgate::key::{self, Extracted, KeyExtractor, KeyInfo};
use tollgate::policy::AccessList;
use tollgate::store::MaybeFuture;
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer};
use tracing::Level;

use super::rig::{Rig, expect, from, get, with};
use crate::support::log::Log;

const ONE: Quota = Quota::per_hour(1);

fn policy(key: impl KeyExtractor) -> Policy {
    Policy::new("listed", ONE).key(key)
}

fn value(value: &str) -> AccessList {
    AccessList::default().key(value)
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
    let (told, advice) =
        ("entry 1 of the deny list of policy \"listed\" can never match: ", "give it as requests carry it");
    assert!(error.starts_with(told) && error.contains(advice), "{error}");
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
    idle(key::path(), value("/a b"));
    idle(key::route(), value("users"));
    idle(key::host(), value("Example.com"));
    idle(key::host(), value("example.com:443"));
    idle(key::host(), value("example.com."));
    idle(key::header("x-user"), value("read from a file\n"));
    idle(key::header("x-user"), value(" ada"));
    idle(key::bearer(), value("token\r\n"));
    idle(key::cookie("session"), value(" a"));
    idle(key::cookie("session"), value("\"a\""));
    idle(key::cookie("session").ignore_case(), value("A"));
    idle(key::header("x-user").ignore_case(), value("Ada"));
    idle(key::header("x-user").normalize(|id| id.to_ascii_lowercase().into()), value("Ada"));
    idle(key::bearer(), value("two tokens"));
    idle(key::basic_user(), value("ada:password"));
    idle(key::path_param("id"), AccessList::default().key([0xff]));
    idle(key::query("q"), AccessList::default().key([0xff]));
    idle((key::method(), key::client_ip()), value("friend"));
}

#[test]
fn a_value_that_some_request_may_have_is_fine() {
    fine(key::client_ip(), value("10.0.0.7"));
    fine(key::client_ip(), value("2001:db8::/56"));
    fine(key::client_ip().v6_prefix(64), value("2001:db8::/64"));
    fine(key::method(), value("GET"));
    fine(key::method(), value("<other>"));
    fine(key::path(), value("/login"));
    fine(key::path(), value("/a%20b"));
    fine(key::path(), value("*"));
    fine(key::route(), value("/users/{id}"));
    fine(key::route(), value("<unmatched>"));
    fine(key::host(), value("example.com"));
    fine(key::host(), value("[2001:db8::1]"));
    fine(key::header("x-user"), value("a user"));
    fine(key::header("x-user"), value("Zoë"));
    fine(key::header("x-user"), value(""));
    fine(key::bearer(), value("token"));
    fine(key::cookie("session"), value("a=b"));
    fine(key::cookie("session"), value("a;b"));
    fine(key::basic_user(), value("ada l"));
    fine(key::query("q"), value("a\n"));
    fine(key::path_param("id"), value("Zoë"));
    fine(key::from_fn(|_| Some("x")), value("anything"));
    fine(|_: &Parts| "x", value("anything"));
    fine(key::extension(|_: &u8| Key::new("user", "x")), value("anything"));
    fine((key::method(), key::header("x-user")), value("friend"));
}

#[test]
fn a_kind_that_no_part_of_the_key_is_of_is_an_error() {
    let of = |kind: &str| AccessList::default().key_of(kind, "ada");
    idle(key::header("x-user"), of("header x-usr"));
    idle(key::header("x-user"), of("x-user"));
    idle((key::bearer(), key::query("q")), of("query p"));
    fine((key::header("x-user"), key::method()), of("header x-user"));
    fine(key::cookie("session"), of("cookie session"));
    fine(key::query("q"), of("query q"));
    fine(key::path_param("id"), of("path_param id"));
    fine(key::from_fn(|_| Some(Key::new("user", "ada"))), of("user"));
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
    let of = |kind: &str, value: &str| AccessList::default().key_of(kind, value);
    fine(Airport, value("FRA"));
    fine(Airport, of("airport", "FRA"));
    fine((key::method(), Airport), of("airport", "FRA"));
    idle(Airport, value("fra"));
    idle(Airport, value("FRAN"));
    idle(Airport, of("port", "FRA"));
    let service = Rig::memory().service([policy(Airport).deny(value("FRA"))]);
    expect(&service, with("x-airport", "fra"), 403);
    expect(&service, with("x-airport", "MUC"), 200);
}

#[test]
fn addresses_are_matched_whatever_the_key() {
    for entry in ["10.0.0.0/8", "10.0.0.1", "2001:db8::/32"] {
        let list = || AccessList::parse([entry]).expect("it is an address");
        fine(key::global(), list());
        fine(key::header("x-user"), list());
        fine(key::client_ip(), list());
    }
    let service =
        Rig::memory().service([policy(key::global()).deny(AccessList::parse(["10.0.0.0/8"]).expect("a CIDR"))]);
    expect(&service, from("10.0.0.1"), 403);
}

#[test]
fn the_error_tells_which_entry_of_which_list_and_not_what_it_is() {
    let list = AccessList::parse(["10.0.0.0/8", "Example.com"]).expect("a list");
    let error = refusal(policy(key::host()).allow(list.clone())).expect("it can never match");
    assert!(error.contains("entry 2 of the allow list of policy \"listed\""), "{error}");
    assert!(!error.contains("xample") && !format!("{list:?}").contains("xample"), "it may be a secret");
}

#[test]
fn policies_that_replace_others_are_checked_too() {
    let layer = RateLimitLayer::new(MemoryStore::new(), policy(key::host()));
    let error = layer
        .clone()
        .live()
        .replace_policies([policy(key::global()).deny(value("friend"))])
        .expect_err("it can never match");
    assert!(error.to_string().contains("can never match"), "{error}");
    layer.clone().live().replace_policies([policy(key::header("x-user")).deny(value("friend"))]).expect("it can");
}

#[test]
fn a_list_that_meets_clients_of_unknown_address_says_so_once() {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let list = AccessList::parse(["10.0.0.0/8"]).expect("a CIDR");
    let service = Rig::memory().service([Policy::new("listed", Quota::per_hour(10)).deny(list)]);
    expect(&service, from("11.0.0.1"), 200);
    assert_eq!(log.count("list_without_address"), 0, "the address is known");
    (0..5).for_each(|_| expect(&service, get(), 403));
    assert_eq!(log.count("list_without_address"), 1);
    assert_eq!(log.count("policy=\"listed\""), 1);
}
