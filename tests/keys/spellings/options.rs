//! What is said otherwise: options that make lists and rules for missing keys milder.

use tollgate::key::{self, Ambiguous};
use tollgate::policy::MissingKey;
use tollgate::{Key, Policy};

use super::preflights::preflight;
use super::rig::{ONE, app, by, expect, file, from, get, list, with};

#[test]
fn a_list_can_serve_clients_of_unknown_address() {
    let denied = list(["10.0.0.0/8"]).serve_unknown_addresses();
    let in_code = Policy::new("all", ONE).deny(denied);
    let in_file = file("deny = [\"10.0.0.0/8\"]\nserve_unknown_addresses = true").expect("a policy");
    for policy in [in_code, in_file] {
        let app = app(policy);
        expect(&app, get("/"), 200);
        expect(&app, from("10.0.0.1"), 403);
    }
}

#[test]
fn an_option_that_has_no_effect_in_a_file_is_an_error() {
    let error = file("serve_unknown_addresses = true").expect_err("there is no list");
    assert!(error.starts_with("line 5: serve_unknown_addresses has no effect"), "{error}");
    let shares = "key = \"header:x-user\"\nmissing_key = \"share\"\npreflights_without_key = true";
    let error = file(shares).expect_err("no key is wanted");
    assert!(error.starts_with("line 7: preflights_without_key has no effect"), "{error}");
}

#[test]
fn a_file_says_that_an_entry_is_a_value() {
    let by_any = "key = [\"header:x-user\", \"method\"]\ndeny = [{ value = \"203.0.113.*\" }]";
    let by_kind =
        "key = [\"header:X-User\", \"method\"]\ndeny = [{ value = \"203.0.113.*\", key = \"header:X-User\" }]";
    for lines in [by_any, by_kind] {
        let app = app(file(lines).expect("a policy"));
        expect(&app, with(get("/"), "x-user", "203.0.113.*"), 403);
        expect(&app, with(get("/"), "x-user", "ada"), 200);
    }
    let other = "key = \"header:x-user\"\ndeny = [{ value = \"a\", key = \"bearer\" }]";
    let error = file(other).expect_err("the policy has no such key");
    assert!(error.starts_with("line 6: deny has an entry that can never match"), "{error}");
    assert!(file("deny = [{ valu = \"a\" }]").is_err() && file("deny = [7]").is_err());
}

#[test]
fn preflights_can_pass_without_the_key_that_others_need() {
    let in_code = Policy::new("user", ONE).key(key::header("x-user")).missing_key(MissingKey::Deny);
    let lines = "key = \"header:x-user\"\nmissing_key = \"deny\"\npreflights_without_key = true\ndeny = [\"10.0.0.1\", \"stolen\"]";
    let in_file = file(lines).expect("a policy");
    for policy in [in_code.deny(list(["10.0.0.1", "stolen"])).preflights_without_key(), in_file] {
        let app = app(policy);
        for _ in 0..3 {
            expect(&app, by(preflight(), "11.0.0.1"), 200);
        }
        expect(&app, from("11.0.0.1"), 403);
        expect(&app, by(preflight(), "10.0.0.1"), 403);
        expect(&app, by(with(preflight(), "x-user", "stolen"), "11.0.0.1"), 403);
    }
}

#[test]
fn a_closure_can_go_on_from_the_host_on_every_version_of_http() {
    let tenant = key::from_fn(|parts| {
        let host = key::host_name(parts)?;
        let tenant = host.as_deref().and_then(|host| host.strip_suffix(".example.com"));
        Ok::<_, Ambiguous>(tenant.map(|tenant| Key::new("tenant", tenant)))
    });
    let app = app(Policy::new("tenant", ONE).key(tenant).missing_key(MissingKey::Deny));
    expect(&app, with(get("/"), "host", "acme.example.com"), 200);
    expect(&app, get("https://ACME.example.com:443/"), 429);
    expect(&app, with(get("http://junk/"), "host", "acme.example.com"), 400);
    expect(&app, with(get("/"), "host", "other.example.com"), 200);
    expect(&app, with(get("/"), "host", "elsewhere"), 403);
}
