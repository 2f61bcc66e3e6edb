//! Clients that are counted together: TG003, by the address of a proxy, and TG004, as no address is known.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::Request;
use http::request::Parts;
use tollgate::key::KeyExtractor;
use tollgate::{AccessList, MemoryStore, Policy, Quota, RateLimitLayer, key};

use super::{Logged, MANY, app, assert_is_in_page, layer, request, send, visit};

/// A header of a proxy, which is at 10.0.0.1 as all peers here.
const FORWARDED: [(&str, &str); 2] = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=203.0.113.9")];

fn behind() -> key::ClientIp {
    key::client_ip().trusted_proxies(["10.0.0.0/8"])
}

fn by(name: &str, key: impl KeyExtractor) -> Policy {
    Policy::new(name, MANY).key(key)
}

/// A layer by the client's address.
fn of(client: key::ClientIp) -> RateLimitLayer {
    RateLimitLayer::composite(MemoryStore::new()).client(client).ip(MANY)
}

#[test]
fn a_forwarded_header_of_an_untrusted_peer_is_one_warning() {
    let other = key::client_ip().trusted_proxies(["192.0.2.1"]);
    for header in FORWARDED {
        for layer in [of(key::client_ip()), of(other.clone()), layer([by("peer", key::peer_ip())])] {
            let (logged, app) = (Logged::start(), app(&layer));
            assert_eq!(visit(&app, "/"), 200);
            logged.none();
            let send = || assert_eq!(send(&app, request("/", &[header])), 200);
            send();
            let texts = ["taken for the client", "trusted_proxies(...)", "RateLimitLayer::client", "nothing is wrong"];
            logged.only("TG003", &texts, send);
            assert_eq!(logged.log.count("203.0.113.9") + logged.log.count("10.0.0.1"), 0, "no address is logged");
        }
    }
}

#[test]
fn a_forwarded_header_that_counts_is_no_warning() {
    for (header, behind) in FORWARDED.into_iter().zip([behind(), behind().forwarded()]) {
        let also_by_peer = of(behind.clone()).policy(by("peer", key::peer_ip()));
        for layer in [of(behind.clone()), also_by_peer, layer([by("client", behind)])] {
            let (logged, app) = (Logged::start(), app(&layer));
            (0..1_001).for_each(|_| assert_eq!(send(&app, request("/", &[header])), 200));
            logged.none();
        }
    }
}

#[test]
fn proxies_that_never_name_a_client_in_the_header_that_is_read_are_one_warning_after_a_thousand() {
    let single = behind().header("cf-conecting-ip");
    let rows = [
        (behind(), ("forwarded", "for=203.0.113.9"), "x-forwarded-for"),
        (behind(), ("x-real-ip", "203.0.113.9"), "x-forwarded-for"),
        (behind(), ("x-forwarded-for", "unknown"), "x-forwarded-for"),
        (behind().forwarded(), ("x-forwarded-for", "203.0.113.9"), "forwarded"),
        (key::client_ip().trusted_hops(1), ("accept", "*/*"), "x-forwarded-for"),
        (single, ("cf-connecting-ip", "203.0.113.9"), "cf-conecting-ip"),
    ];
    for (client, header, read) in rows {
        let (logged, app) = (Logged::start(), app(&of(client)));
        let send = || assert_eq!(send(&app, request("/", &[header])), 200);
        (0..999).for_each(|_| send());
        logged.none();
        send();
        logged.only("TG003", &["policy=\"ip\"", &format!("header={read:?}"), "taken for the clients"], send);
        assert_eq!(logged.log.count("203.0.113.9") + logged.log.count("10.0.0.1"), 0, "no address is logged");
    }
}

#[test]
fn proxies_that_name_some_client_are_no_warning() {
    let (logged, app) = (Logged::start(), app(&of(behind())));
    assert_eq!(send(&app, request("/", &FORWARDED)), 200);
    // Health checks, say.
    (0..1_001).for_each(|_| assert_eq!(visit(&app, "/"), 200));
    logged.none();
}

#[test]
fn a_client_without_a_proxy_shows_that_not_all_come_from_proxies() {
    let (logged, app) = (Logged::start(), app(&of(behind())));
    let mut direct = request("/", &[]);
    direct.extensions_mut().insert(ConnectInfo(SocketAddr::from(([203, 0, 113, 9], 4711))));
    assert_eq!(send(&app, direct), 200);
    (0..1_001).for_each(|_| assert_eq!(visit(&app, "/"), 200));
    logged.none();
}

#[test]
fn a_policy_by_client_ip_trusts_the_proxies_of_the_layer_so_nothing_is_warned_of() {
    for layer in [of(behind()).policy(by("login", key::client_ip())), of(behind()).policy(by("login", joined()))] {
        let (logged, app) = (Logged::start(), app(&layer));
        assert_eq!(send(&app, request("/", &FORWARDED)), 200);
        logged.none();
    }
}

#[test]
fn a_list_is_by_the_client_of_the_layer_whatever_another_policy_trusts() {
    let list = AccessList::parse(["203.0.113.9"]).expect("an address");
    let policies = [by("client", behind()), by("path", key::path()).allow(list)];
    let (logged, app) = (Logged::start(), app(&layer(policies)));
    let send = || assert_eq!(send(&app, request("/", &FORWARDED)), 200);
    send();
    logged.only("TG003", &["policy=\"path\"", "lists see only its address"], send);
}

/// A key that has the client's address, and no settings of its own.
fn joined() -> impl KeyExtractor {
    key::client_ip().and(key::method())
}

#[test]
fn a_forwarded_header_matters_to_lists_of_addresses_and_to_no_other_key() {
    let list = || AccessList::parse(["203.0.113.9"]).expect("an address");
    for (policy, is_warned) in [(by("path", key::path()), false), (by("path", key::path()).deny(list()), true)] {
        let (logged, app) = (Logged::start(), app(&layer([policy])));
        let send = || assert_eq!(send(&app, request("/", &FORWARDED)), 200);
        send();
        if is_warned { logged.only("TG003", &[], send) } else { logged.none() }
    }
}

#[test]
fn a_proxy_that_is_put_in_front_later_shows_itself_with_the_first_refusal() {
    let layer = RateLimitLayer::composite(MemoryStore::new()).ip(Quota::per_hour(1_100));
    let (logged, app) = (Logged::start(), app(&layer));
    (0..1_000).for_each(|_| assert_eq!(visit(&app, "/"), 200));
    let send = || send(&app, request("/", &FORWARDED));
    (0..100).for_each(|_| assert_eq!(send(), 200));
    logged.none();
    assert_eq!(send(), 429);
    logged.only("TG003", &[], || assert_eq!(send(), 429));
}

#[test]
fn what_was_warned_of_a_layer_is_not_repeated_for_other_policies() {
    let layer = of(key::client_ip());
    let (logged, app) = (Logged::start(), app(&layer));
    send(&app, request("/", &FORWARDED));
    layer.replace_policies([by("other", key::peer_ip())]).expect("it works");
    logged.only("TG003", &[], || send(&app, request("/", &FORWARDED)));
}

#[test]
fn without_a_peer_one_warning_a_layer_names_each_server() {
    let logged = Logged::start();
    let unknown = || Request::new(Body::empty());
    let layers = [of(behind()), layer([by("peer", key::peer_ip())])];
    for (before, layer) in layers.iter().enumerate() {
        let app = app(layer);
        assert_eq!(logged.warnings().len(), before);
        (0..1_001).for_each(|_| assert_eq!(send(&app, unknown()), 200));
    }
    let warnings = logged.warnings();
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
    for warning in &warnings {
        assert_is_in_page(warning);
    }
    for text in ["code=\"TG004\"", "into_make_service_with_connect_info", "tonic", "SocketAddr", "trusted_unix_socket"]
    {
        assert!(warnings.iter().all(|warning| warning.contains(text)), "{warnings:#?}");
    }
}

#[test]
fn over_a_unix_socket_a_policy_by_peer_is_warned_of_although_the_layer_trusts_the_proxy() {
    let (logged, trusting) = (Logged::start(), || key::client_ip().trusted_unix_socket());
    let send = |layer: &RateLimitLayer| {
        let request = Request::builder().header("x-forwarded-for", "203.0.113.9").body(Body::empty());
        assert_eq!(send(&app(layer), request.expect("a request")), 200);
    };
    send(&of(trusting()));
    logged.none();
    let by_peer = of(trusting()).policy(by("peer", key::peer_ip()));
    send(&by_peer);
    logged.only("TG004", &["count by client_ip()", "nothing is wrong"], || send(&by_peer));
}

#[test]
fn a_key_that_needs_no_peer_or_has_one_warns_of_none() {
    let logged = Logged::start();
    let joined = by("joined", key::client_ip().and(key::header("x-user")));
    // The peer is known, and the other part is missing.
    visit(&app(&layer([joined, by("ip", key::client_ip())])), "/");
    for policy in [by("path", key::path()), by("global", key::global())] {
        assert_eq!(send(&app(&layer([policy])), Request::new(Body::empty())), 200);
    }
    logged.none();
}

#[test]
fn a_request_during_which_policies_are_replaced_repeats_no_warning() {
    let (logged, limits) = (Logged::start(), layer([]));
    let (other, is_replaced) = (limits.clone(), AtomicBool::new(false));
    let by_address = || Policy::new("ip", MANY).key(key::client_ip());
    // It replaces them as another thread might, after the request has begun.
    let replace = move |_: &Parts| {
        if !is_replaced.swap(true, Ordering::Relaxed) {
            other.replace_policies([by_address()]).expect("they are valid");
        }
        false
    };
    let replacing = Policy::new("replacing", MANY).when(replace);
    limits.replace_policies([replacing, by_address()]).expect("they are valid");
    let app = app(&limits);
    let without_peer = || Request::builder().uri("/").body(Body::empty()).expect("a request");
    assert_eq!(send(&app, without_peer()), 200);
    logged.only("TG004", &[], || send(&app, without_peer()));
}
