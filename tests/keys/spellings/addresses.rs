//! IPv4 addresses in IPv6 forms.

use tollgate::{Policy, key};

use super::rig::{ONE, app, expect, from, list};

#[test]
fn clients_behind_nat64_do_not_share_one_counter() {
    for policy in [Policy::new("ip", ONE).key(key::client_ip()), Policy::new("ip", ONE).key(key::peer_ip())] {
        let app = app(policy);
        expect(&app, from("64:ff9b::203.0.113.7"), 200);
        expect(&app, from("64:ff9b::203.0.113.8"), 200);
        expect(&app, from("64:ff9b::203.0.113.7"), 429);
    }
}

#[test]
fn a_client_is_the_same_one_through_nat64_6to4_and_teredo() {
    for other in
        ["64:ff9b::203.0.113.7", "::ffff:203.0.113.7", "2002:cb00:7107::1", "2001:0:4136:e378:8000:63bf:34ff:8ef8"]
    {
        let app = app(Policy::new("ip", ONE).key(key::client_ip()));
        expect(&app, from("203.0.113.7"), 200);
        expect(&app, from(other), 429);
    }
}

#[test]
fn a_client_has_one_counter_for_all_of_its_6to4_networks() {
    let app = app(Policy::new("ip", ONE).key(key::client_ip()));
    expect(&app, from("2002:cb00:7107:0100::1"), 200);
    expect(&app, from("2002:cb00:7107:0200::1"), 429);
    expect(&app, from("2002:cb00:7108:0100::1"), 200);
}

#[test]
fn other_ipv6_clients_are_counted_by_their_network() {
    let app = app(Policy::new("ip", ONE).key(key::client_ip()));
    expect(&app, from("2001:db8::1"), 200);
    expect(&app, from("2001:db8::ff:203.0.113.7"), 429);
    expect(&app, from("64:ff9b:1::203.0.113.7"), 200);
    expect(&app, from("64:ff9b:1::203.0.113.8"), 429);
}

#[test]
fn a_denied_ipv4_address_is_denied_in_its_ipv6_forms() {
    let app = app(Policy::new("all", ONE).deny(list(["203.0.113.0/24", "2001:db8::/32"])));
    for peer in ["203.0.113.7", "::ffff:203.0.113.7", "64:ff9b::203.0.113.7", "2002:cb00:7107:1::1", "2001:db8::1"] {
        expect(&app, from(peer), 403);
    }
    expect(&app, from("64:ff9b::203.0.114.7"), 200);
}

#[test]
fn a_denied_network_of_ipv6_denies_ipv4_clients_that_come_through_it() {
    for (entry, peer) in [
        ("64:ff9b::/96", "64:ff9b::203.0.113.7"),
        ("2002::/16", "2002:cb00:7107::1"),
        ("2000::/3", "2002:cb00:7107::1"),
        ("64:ff9b::203.0.113.7", "64:ff9b::203.0.113.7"),
    ] {
        expect(&app(Policy::new("all", ONE).deny(list([entry]))), from(peer), 403);
    }
}
