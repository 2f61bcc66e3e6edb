//! Clients that are counted together: TG003, by the address of a proxy, and TG004, as no address is known.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use http::Request;
use http::request::Parts;
use tollgate::key::KeyExtractor;
use tollgate::policy::AccessList;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};

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

/// A key that has the client's address, and no settings of its own.
fn joined() -> impl KeyExtractor {
    (key::client_ip(), key::method())
}

#[test]
fn without_a_peer_one_warning_a_layer_names_each_server() {
    let logged = Logged::start();
    let unknown = || Request::new(Body::empty());
    let layers = [of(behind()), layer([by("peer", key::peer_ip())])];
    for (before, layer) in layers.iter().enumerate() {
        let app = app(layer);
        assert_eq!(logged.warnings().len(), before);
        (0..3).for_each(|_| assert_eq!(send(&app, unknown()), 200));
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
    let joined = by("joined", (key::client_ip(), key::header("x-user")));
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
            other.clone().live().replace_policies([by_address()]).expect("they are valid");
        }
        false
    };
    let replacing = Policy::new("replacing", MANY).when(replace);
    limits.clone().live().replace_policies([replacing, by_address()]).expect("they are valid");
    let app = app(&limits);
    let without_peer = || Request::builder().uri("/").body(Body::empty()).expect("a request");
    assert_eq!(send(&app, without_peer()), 200);
    logged.only("TG004", &[], || send(&app, without_peer()));
}

/// A policy that refuses all but the first request of all clients.
fn full() -> Policy {
    Policy::new("all", Quota::per_hour(1))
}

#[test]
fn a_proxy_that_is_taken_for_the_client_is_one_warning_once_a_request_is_refused() {
    let other = key::client_ip().trusted_proxies(["192.0.2.1"]);
    let misread = behind().header("cf-conecting-ip");
    for header in FORWARDED {
        for layer in [of(key::client_ip()), of(other.clone()), of(misread.clone()), layer([by("own", joined())])] {
            let (logged, app) = (Logged::start(), app(&layer.policy(full())));
            assert_eq!(send(&app, request("/", &[header])), 200);
            logged.none();
            let send = || assert_eq!(send(&app, request("/", &[header])), 429);
            send();
            let texts = ["taken for the client", "trusted_proxies(...)", "RateLimitLayer::client", "nothing is wrong"];
            logged.only("TG003", &texts, send);
            assert_eq!(logged.log.count("203.0.113.9") + logged.log.count("10.0.0.1"), 0, "no address is logged");
        }
    }
}

#[test]
fn a_client_that_a_proxy_names_a_key_by_the_peer_and_a_request_without_a_proxy_are_no_warning() {
    for (header, behind) in FORWARDED.into_iter().zip([behind(), behind().forwarded()]) {
        let also_by_peer = of(behind.clone()).policy(by("peer", key::peer_ip()));
        let of_layer = of(behind.clone()).policy(by("login", joined()));
        for layer in [
            of(behind.clone()),
            also_by_peer,
            of_layer,
            layer([by("client", behind)]),
            layer([by("path", key::path())]),
        ] {
            let (logged, app) = (Logged::start(), app(&layer.policy(full())));
            assert_eq!([(); 2].map(|()| send(&app, request("/", &[header]))), [200, 429]);
            logged.none();
        }
    }
    let (logged, app) = (Logged::start(), app(&of(key::client_ip()).policy(full())));
    assert_eq!([(); 2].map(|()| visit(&app, "/")), [200, 429]);
    logged.none();
}

#[test]
fn a_proxy_matters_to_lists_of_addresses_too_which_are_by_the_client_of_the_layer() {
    let list = || AccessList::parse(["203.0.113.9"]).expect("an address");
    for listed in [by("path", key::path()).deny(list()), by("path", key::path()).allow(list())] {
        let (logged, app) = (Logged::start(), app(&layer([by("client", behind()), listed, full()])));
        let send = || send(&app, request("/", &FORWARDED));
        assert_eq!([send(), send()], [200, 429]);
        logged.only("TG003", &["policy=\"path\"", "lists see only its address"], send);
    }
}

#[test]
fn a_network_of_all_addresses_as_a_trusted_proxy_is_an_error() {
    let list = AccessList::parse(["192.0.2.1"]).expect("an address");
    for cidrs in [vec!["0.0.0.0/0"], vec!["10.0.0.0/8", "::/0"], vec!["0.0.0.0/1", "128.0.0.0/1"]] {
        let client = key::client_ip().trusted_proxies(&cidrs);
        let base = || RateLimitLayer::composite(MemoryStore::new());
        let own = base().try_policy(by("ip", client.clone()));
        let joined = base().try_policy(by("ip", (key::method(), client.clone())));
        let of_layer = base().ip(MANY).try_client(client.clone());
        let lists = base().policy(by("path", key::path()).allow(list.clone())).try_client(client);
        for (place, layer) in [own, joined, of_layer, lists].into_iter().enumerate() {
            let error = layer.expect_err(&format!("{cidrs:?} {place}")).to_string();
            assert!(error.contains("networks of your proxies") && error.contains("trusted_hops"), "{error}");
        }
    }
    for client in [behind(), key::client_ip().trusted_hops(1)] {
        assert!(RateLimitLayer::composite(MemoryStore::new()).ip(MANY).try_client(client).is_ok());
    }
}
