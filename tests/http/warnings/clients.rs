//! Clients that are counted together: TG003, by the address of a proxy, and TG004, as no address is known.

use std::sync::atomic::{AtomicBool, Ordering};

use http::Request;
use http::request::Parts;
use tollgate::key::{self, KeyExtractor};
use tollgate::policy::AccessList;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};

use super::{Logged, MANY, app, is_quiet, layer, send, to, warns};
use crate::rig::with;

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

/// A request from nobody knows where.
fn unknown() -> Request<String> {
    Request::new(String::new())
}

/// A list of the address that a proxy names.
fn list() -> AccessList {
    AccessList::parse(["203.0.113.9"]).expect("an address")
}

#[test]
fn without_a_peer_one_warning_a_layer_names_each_server() {
    let servers = ["into_make_service_with_connect_info", "tonic", "SocketAddr", "trusted_unix_socket"];
    for layer in [of(behind()), layer([by("peer", key::peer_ip())])] {
        warns(&app(&layer), &[], &unknown(), "TG004", &servers);
    }
    let trusting = || of(key::client_ip().trusted_unix_socket());
    let forwarded = || with(unknown(), "x-forwarded-for", "203.0.113.9");
    is_quiet(&app(&trusting()), &[(forwarded(), 200)]);
    let by_peer = trusting().policy(by("peer", key::peer_ip()));
    warns(&app(&by_peer), &[], &forwarded(), "TG004", &["count by client_ip()", "nothing is wrong"]);
    // What needs no peer, or has one and lacks the other part.
    let with_user = by("joined", (key::client_ip(), key::header("x-user")));
    is_quiet(&app(&layer([with_user, by("ip", key::client_ip())])), &[(to("/"), 200)]);
    is_quiet(&app(&layer([by("path", key::path()), by("global", key::global())])), &[(unknown(), 200)]);
}

#[test]
fn a_request_during_which_policies_are_replaced_repeats_no_warning() {
    let (logged, limits) = (Logged::start(), layer([]));
    let (other, is_replaced) = (limits.clone(), AtomicBool::new(false));
    let by_address = || by("ip", key::client_ip());
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
    assert_eq!(send(&app, unknown()), 200);
    logged.only("TG004", &[], || send(&app, unknown()));
}

#[test]
fn a_proxy_that_is_taken_for_the_client_is_one_warning_once_a_request_is_refused() {
    let texts = ["taken for the client", "trusted_proxies(...)", "RateLimitLayer::client", "nothing is wrong"];
    let of_list = ["policy=\"path\"", "lists see only its address"];
    let path = || by("path", key::path());
    let full = || Policy::new("all", Quota::per_hour(1));
    // All peers here are at 10.0.0.1.
    for (name, value, behind) in
        [("x-forwarded-for", "203.0.113.9", behind()), ("forwarded", "for=203.0.113.9", behind().forwarded())]
    {
        let request = || with(to("/"), name, value);
        let (other, misread) =
            (key::client_ip().trusted_proxies(["192.0.2.1"]), behind.clone().header("cf-conecting-ip"));
        for layer in [of(key::client_ip()), of(other), of(misread), layer([by("own", joined())])] {
            warns(&app(&layer.policy(full())), &[request()], &request(), "TG003", &texts);
        }
        // It matters to lists of addresses too, which are by the client of the layer.
        for listed in [path().deny(list()), path().allow(list())] {
            let app = app(&layer([by("client", behind.clone()), listed, full()]));
            warns(&app, &[request()], &request(), "TG003", &of_list);
        }
        for layer in [
            of(behind.clone()),
            of(behind.clone()).policy(by("peer", key::peer_ip())),
            of(behind.clone()).policy(by("login", joined())),
            layer([by("client", behind.clone())]),
            layer([path()]),
        ] {
            is_quiet(&app(&layer.policy(full())), &[(request(), 200), (request(), 429)]);
        }
    }
    is_quiet(&app(&of(key::client_ip()).policy(full())), &[(to("/"), 200), (to("/"), 429)]);
}

#[test]
fn a_network_of_all_addresses_as_a_trusted_proxy_is_an_error() {
    let base = || RateLimitLayer::composite(MemoryStore::new());
    for cidrs in [&["0.0.0.0/0"][..], &["10.0.0.0/8", "::/0"], &["0.0.0.0/1", "128.0.0.0/1"]] {
        let client = || key::client_ip().trusted_proxies(cidrs);
        for layer in [
            base().try_policy(by("ip", client())),
            base().try_policy(by("ip", (key::method(), client()))),
            base().ip(MANY).try_client(client()),
            base().policy(by("path", key::path()).allow(list())).try_client(client()),
        ] {
            let error = layer.expect_err("it trusts all").to_string();
            assert!(error.contains("networks of your proxies") && error.contains("trusted_hops"), "{cidrs:?}: {error}");
        }
    }
}
