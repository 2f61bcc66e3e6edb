//! Entries of lists that are nearly addresses, and clients whose address is not known.

use tollgate::Policy;
use tollgate::key;
use tollgate::policy::{AccessList, MissingKey};

use super::rig::{ONE, app, by, expect, file, from, get, list, with};

#[track_caller]
fn refused(entries: &[&str]) {
    for entry in entries {
        let error = AccessList::parse([*entry]).expect_err(entry);
        let quote = if entry.contains('\'') { '"' } else { '\'' };
        let (told, toml) = (error.to_string(), format!("deny = [\"10.0.0.1\",\n{quote}{entry}{quote}]"));
        assert!(error.is_invalid() && told.contains("looks like an address but is not a valid one: give"), "{told}");
        assert!(told.contains("10.0.0.0/8") && told.contains("key_of"), "{told}");
        let told = file(&toml).expect_err(entry);
        assert!(told.starts_with("line 6: deny: ") && told.contains("{ value = "), "{told}");
    }
}

#[test]
fn an_address_with_white_space_is_an_error() {
    refused(&[
        " 203.0.113.7",
        "203.0.113.7 ",
        "\t203.0.113.7",
        "2001:db8::1 ",
        " 10.0.0.0/8",
        "10.0.0.0 / 8",
        "10.0.0.1\u{a0}",
    ]);
}

#[test]
fn an_address_in_brackets_or_quotes_is_an_error() {
    refused(&["[2001:db8::1]", "[203.0.113.7]", "<203.0.113.7>", "'203.0.113.7'"]);
}

#[test]
fn an_address_with_a_port_is_an_error() {
    refused(&["203.0.113.7:80", "[2001:db8::1]:443", "203.0.113.7:"]);
}

#[test]
fn an_address_with_a_star_is_an_error() {
    refused(&["203.0.113.*", "203.0.*.*", "10.*", "2001:db8::*", "203.0.113.x"]);
}

#[test]
fn a_range_of_addresses_is_an_error() {
    refused(&[
        "10.0.0.1-10.0.0.9",
        "10.0.0.1 - 10.0.0.9",
        "10.0.0.1-9",
        "10.0.0.1\u{2013}10.0.0.9",
        "2001:db8::1-2001:db8::9",
    ]);
}

#[test]
fn a_number_with_leading_zeros_is_an_error() {
    refused(&["010.0.0.1", "203.0.113.007", "010.0.0.0/8", "10.0.0.0/08", "0x7f.0.0.1"]);
}

#[test]
fn several_addresses_in_one_entry_are_an_error() {
    refused(&["10.0.0.1,10.0.0.2", "10.0.0.1 10.0.0.2", "10.0.0.0/8;", "!10.0.0.0/8"]);
}

#[test]
fn an_address_with_a_zone_or_a_comment_is_an_error() {
    refused(&["fe80::1%eth0", "10.0.0.1 # office", "10.0.0.0/8 office"]);
}

#[test]
fn a_network_that_is_none_is_an_error() {
    refused(&[
        "10.0.0.0/33",
        "10.0.0.0/x",
        "10.0.0.0/",
        "10.0.0/8",
        "10.0.0.0/255.0.0.0",
        "10.0.0.0\\8",
        "10.0.0.256",
        "1.2.3.4.5",
        "::1/129",
        "1::2::3",
    ]);
}

#[test]
fn a_value_that_has_dots_dashes_and_colons_is_a_value() {
    let values = [
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
    ];
    for value in
        values.into_iter().chain(["550e8400-e29b-41d4-a716-446655440000", "10", "10-20", "ada@10.0.0.1", "ip=10.0.0.1"])
    {
        let list = AccessList::parse([value]).expect(value);
        let app = app(Policy::new("user", ONE).key(key::header("x-user")).deny(list));
        expect(&app, with(get("/"), "x-user", value), 403);
        let _policy = file(&format!("key = \"header:x-user\"\ndeny = [{value:?}]")).expect(value);
    }
}

#[test]
fn a_value_of_a_path_may_be_an_address() {
    let app = app(Policy::new("path", ONE).key(key::path()).deny(list(["/10.0.0.1"])));
    expect(&app, get("/10.0.0.1"), 403);
}

#[test]
fn a_value_that_looks_like_an_address_can_be_said_to_be_one() {
    let value = "203.0.113.*";
    for list in [AccessList::default().key(value), AccessList::default().key_of("header x-user", value)] {
        let app = app(Policy::new("user", ONE).key(key::header("x-user")).deny(list));
        expect(&app, with(get("/"), "x-user", value), 403);
        expect(&app, with(get("/"), "x-user", "203.0.113.7"), 200);
    }
}

#[test]
fn a_client_of_unknown_address_is_refused_by_a_list_of_addresses_to_deny() {
    for entries in [["0.0.0.0/0", "::/0"], ["10.0.0.1", "stolen"]] {
        let app = app(Policy::new("user", ONE).key(key::header("x-user")).deny(list(entries)));
        expect(&app, get("/"), 403);
        expect(&app, with(get("/"), "x-user", "ada"), 403);
        expect(&app, from("2001:db8::1"), if entries[1] == "::/0" { 403 } else { 200 });
    }
    let file = app(file("deny = [\"0.0.0.0/0\"]").expect("a policy"));
    expect(&file, get("/"), 403);
}

#[test]
fn a_client_of_unknown_address_is_on_no_list_to_allow() {
    let app = app(Policy::new("all", ONE).allow(list(["0.0.0.0/0", "::/0"])));
    expect(&app, get("/"), 200);
    expect(&app, get("/"), 429);
    expect(&app, from("10.0.0.1"), 200);
}

#[test]
fn a_list_of_values_refuses_nobody_for_an_unknown_address() {
    let app = app(Policy::new("user", ONE).key(key::header("x-user")).deny(list(["stolen"])));
    expect(&app, get("/"), 200);
}

#[test]
fn a_denied_key_is_refused_from_an_allowed_address_too() {
    let policy = Policy::new("user", ONE).key(key::header("x-user")).missing_key(MissingKey::Deny);
    let app = app(policy.allow(list(["10.0.0.0/8"])).deny(list(["stolen"])));
    let named = |peer: &str, user: &str| with(from(peer), "x-user", user);
    expect(&app, named("10.0.0.1", "stolen"), 403);
    for _ in 0..3 {
        expect(&app, named("10.0.0.1", "ada"), 200);
        expect(&app, from("10.0.0.1"), 200);
    }
    expect(&app, from("11.0.0.1"), 403);
}

#[test]
fn a_denied_part_of_a_joined_key_is_refused_also_where_the_other_part_is_missing() {
    let join = (key::header("x-user"), key::query("tenant"));
    let app = app(Policy::new("user", ONE).key(join).deny(list(["stolen"])));
    for uri in ["/?tenant=1", "/"] {
        expect(&app, with(get(uri), "x-user", "stolen"), 403);
    }
    for _ in 0..2 {
        expect(&app, with(get("/"), "x-user", "ada"), 200);
    }
}

#[test]
fn a_denied_value_of_one_part_denies_no_other_part_that_has_it() {
    let join = (key::header("x-user"), key::query("tenant"));
    let denied = AccessList::default().key_of("header x-user", "7");
    let app = app(Policy::new("user", ONE).key(join).deny(denied));
    expect(&app, with(get("/"), "x-user", "7"), 403);
    expect(&app, get("/?tenant=7"), 200);
}

#[test]
fn ambiguous_requests_of_one_address_use_up_nothing_of_another() {
    let app = app(Policy::new("paths", ONE).key((key::client_ip(), key::path())));
    let odd = |peer: &str| by(get("/@scope%2fpackage"), peer);
    expect(&app, by(get("//"), "192.0.2.1"), 200);
    expect(&app, odd("192.0.2.1"), 429);
    expect(&app, odd("192.0.2.2"), 200);
    // A site has a /56.
    expect(&app, odd("2001:db8::1"), 200);
    expect(&app, odd("2001:db8:0:ff::2"), 429);
    expect(&app, odd("2001:db8:0:100::2"), 200);
}
