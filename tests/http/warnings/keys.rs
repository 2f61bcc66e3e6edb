//! Policies whose key requests lack, TG001, whose routes do not match, TG002, and whose clients are counted together: by
//! the address of a proxy, TG003, and as no address is known, TG004.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::Request;
use tollgate::key::{self, KeyExtractor, Lookup};
use tollgate::policy::{AccessList, MissingKey};
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_config::Config;
use tower::{Layer, ServiceExt};

use super::{Logged, MANY, app, is_quiet, layer, pages, send, to, warns};
use crate::rig::with;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct User(&'static str);

fn by_user() -> Policy {
    Policy::new("user", MANY).key(key::extension(|user: &User| Key::new("user", user.0)))
}

fn by_header(name: &'static str) -> Policy {
    Policy::new("api-key", MANY).key(key::header(name))
}

/// Looks accounts up, of which one token has one.
fn by_account() -> Policy {
    let account = |token: Lookup| async move {
        Ok::<_, Infallible>((token.text() == Some("known")).then(|| Key::new("account", "known")))
    };
    Policy::new("account", MANY).key(key::lookup(key::header("x-api-key"), account))
}

fn by_address() -> Policy {
    Policy::new("ip", MANY).key(key::client_ip())
}

/// A ban of addresses by one route, and on all.
fn bans() -> Ban {
    Ban::new(5, MINUTE, MINUTE).whole_layer()
}

fn with_key(key: &str) -> Request<String> {
    with(to("/"), "x-api-key", key)
}

#[test]
fn a_request_that_lacks_its_key_and_that_nothing_limits_is_one_warning() {
    let by_header = || by_header("x-api-key");
    let login = Policy::new("login", MANY).routes(["/login"]).key(key::client_ip()).ban(bans());
    // Those that limit nothing hide nothing.
    for policies in [vec![by_header()], vec![by_address().shadow(), by_header()], vec![login, by_header()]] {
        warns(&app(&layer(policies)), &[with_key("1")], &to("/"), "TG001", "policy=\"api-key\"");
    }
    warns(&app(&layer([by_account()])), &[with_key("known")], &with_key("unknown"), "TG001", "policy=\"account\"");
    warns(&app(&layer([by_user()])), &[], &to("/"), "TG001", "policy=\"user\"");
}

#[test]
fn a_missing_key_is_no_warning_where_another_policy_limits_the_request_or_its_rule_is_said() {
    let header = || by_header("x-api-key");
    let said = [MissingKey::Skip, MissingKey::Share].map(|rule| vec![by_header("x-token").missing_key(rule)]);
    let limited = [header(), by_user(), by_account()].map(|policy| vec![by_address(), policy]);
    let allowed = AccessList::parse(["10.0.0.1"]).expect("an address");
    let on_a_list = [vec![by_address().allow(allowed), header()]];
    for policies in said.into_iter().chain(limited).chain(on_a_list) {
        is_quiet(&app(&layer(policies)), &[(to("/"), 200), (with_key("unknown"), 200)]);
    }
    is_quiet(&app(&layer([by_header("x-token").missing_key(MissingKey::Deny)])), &[(to("/"), 403)]);
    let outside = pages().layer(layer([header()])).layer(layer([by_address()]));
    is_quiet(&outside, &[(with_key("1"), 200), (to("/"), 200)]);
    // Where a policy only looks at the ban, its key may be missing.
    let looks = layer([by_account().routes(["/login"]).ban(bans().of_verified_keys())]);
    is_quiet(&app(&looks), &[(with(to("/login"), "x-api-key", "known"), 200), (with_key("unknown"), 200)]);
}

#[test]
fn a_file_that_is_read_again_repeats_no_warning() {
    let file = |limit: u32| {
        let text = format!(
            "[[policy]]\nname = \"api-key\"\nlimit = {limit}\nwindow = \"1h\"\nkey = \"header:x-apikey\"\n\
             [[policy]]\nname = \"login\"\nlimit = {limit}\nwindow = \"1h\"\nroutes = [\"/users/7\"]\n"
        );
        Config::from_toml(&text).expect("a file")
    };
    let layer = file(100_000).layer(MemoryStore::new()).expect("a layer");
    let (logged, app) = (Logged::start(), app(&layer));
    for limit in 100_000..100_003 {
        file(limit).update(&layer.clone().live()).expect("it works");
        send(&app, to("/users/7"));
        assert_eq!((logged.log.count("TG001"), logged.log.count("TG002")), (1, 1), "{:#?}", logged.warnings());
    }
    layer.clone().live().replace_policies([by_header("x-token")]).expect("it works");
    send(&app, to("/users/7"));
    assert_eq!(logged.log.count("TG001"), 2, "another policy warns for itself");
}

#[tokio::test(start_paused = true)]
async fn keys_whose_lookups_time_out_are_not_missing() {
    let never = |_: Lookup| pending::<Result<Option<Key>, Infallible>>();
    let account = Policy::new("account", MANY).key(key::lookup(key::header("x-api-key"), never));
    let (logged, app) = (Logged::start(), app(&layer([account]).timeout(Duration::from_millis(20))));
    assert_eq!(app.oneshot(with_key("0")).await.expect("a response").status(), 200);
    assert_eq!(logged.log.count("TG0"), 0, "{:#?}", logged.warnings());
}

fn login(name: &str, route: &'static str) -> Policy {
    Policy::new(name, MANY).routes([route])
}

fn on(route: &'static str) -> RateLimitLayer {
    layer([login("login", route)])
}

fn by_route() -> Policy {
    Policy::new("route", MANY).key(key::route())
}

/// The routes with a layer around the router.
fn around(layer: &RateLimitLayer) -> Router {
    Router::new().fallback_service(layer.layer(pages()))
}

#[test]
fn a_policy_whose_route_or_key_by_route_never_matches_is_one_warning() {
    let nested = Router::new().nest("/api", app(&on("/login")));
    warns(&nested, &[to("/api")], &to("/api/login"), "TG002", "matched=\"/api/login\"");
    warns(&around(&on("/login")), &[to("/")], &to("/login"), "TG002", "no route matches where this layer is");
    warns(&app(&on("/users/42")), &[to("/users/7")], &to("/users/42"), "TG002", "matched=\"/users/{id}\"");
    for policy in [by_route(), by_route().key((key::client_ip(), key::route()))] {
        warns(&around(&layer([policy])), &[], &to("/users/7"), "TG002", "policy=\"route\"");
    }
}

#[test]
fn routes_that_match_or_that_are_not_there_warn_of_nothing() {
    let served = |path: &str| (to(path), 200);
    let page = || Router::new().route("/login", get(|| async {}));
    let all = layer([Policy::new("login", MANY).routes(["/login", "/users/{id}", "/api/login"])]);
    let matching = pages().nest("/api", page()).layer(all);
    is_quiet(&matching, &["/login", "/users/7", "/api/login"].map(served));
    let only_root = Router::new().route("/", get(|| async {})).layer(on("/login"));
    is_quiet(&only_root, &[served("/"), (to("/login"), 404)]);
    // Another policy names the nested route by its whole template.
    let both = layer([login("login", "/login"), login("api-login", "/api/login")]);
    let page = || page().layer(both.clone());
    is_quiet(&page().nest("/api", page()), &["/api/login", "/login"].map(served));
    is_quiet(&app(&layer([by_route()])), &[served("/"), (to("/missing"), 404)]);
    is_quiet(&around(&layer([Policy::new("all", MANY)])), &[served("/login")]);
    // A policy that only looks at the ban counts by no route.
    let looks = by_route().key((key::client_ip(), key::route())).when(|_| false).ban(bans());
    is_quiet(&around(&layer([looks])), &[served("/login")]);
    // Policies that replace others may match.
    let (logged, layer) = (Logged::start(), on("/login"));
    let nested = Router::new().nest("/api", app(&layer));
    send(&nested, to("/api/login"));
    layer.clone().live().replace_policies([login("login", "/api/login")]).expect("it can match");
    logged.only("TG002", "matched=\"/api/login\"", || send(&nested, to("/api/login")));
}

fn behind() -> key::ClientIp {
    key::client_ip().trusted_proxies(["10.0.0.0/8"])
}

fn by(name: &str, key: impl KeyExtractor) -> Policy {
    Policy::new(name, MANY).key(key)
}

/// A layer by the client's address.
fn of_client(client: key::ClientIp) -> RateLimitLayer {
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
    for layer in [of_client(behind()), layer([by("peer", key::peer_ip())])] {
        warns(&app(&layer), &[], &unknown(), "TG004", "request has no peer address");
    }
    let trusting = || of_client(key::client_ip().trusted_unix_socket());
    let forwarded = || with(unknown(), "x-forwarded-for", "203.0.113.9");
    is_quiet(&app(&trusting()), &[(forwarded(), 200)]);
    let by_peer = trusting().policy(by("peer", key::peer_ip()));
    warns(&app(&by_peer), &[], &forwarded(), "TG004", "request has no peer address");
    // What needs no peer, or has one and lacks the other part.
    let with_user = by("joined", (key::client_ip(), key::header("x-user")));
    is_quiet(&app(&layer([with_user, by("ip", key::client_ip())])), &[(to("/"), 200)]);
    is_quiet(&app(&layer([by("path", key::path()), by("global", key::global())])), &[(unknown(), 200)]);
}

#[test]
fn a_proxy_that_is_taken_for_the_client_is_one_warning_once_a_request_is_refused() {
    let path = || by("path", key::path());
    let full = || Policy::new("all", Quota::per_hour(1));
    // All peers here are at 10.0.0.1.
    for (name, value, behind) in [
        ("x-forwarded-for", "203.0.113.9", behind()),
        ("forwarded", "for=203.0.113.9", behind().forwarded()),
        ("x-real-ip", "203.0.113.9", behind().header("x-real-ip")),
    ] {
        let request = || with(to("/"), name, value);
        let (other, misread) =
            (key::client_ip().trusted_proxies(["192.0.2.1"]), behind.clone().header("cf-conecting-ip"));
        let elsewhere = of_client(key::client_ip()).policy(by("login", joined()).routes(["/login"]));
        let own = layer([by("own", joined())]);
        for layer in [of_client(key::client_ip()), of_client(other), of_client(misread), own, elsewhere] {
            warns(&app(&layer.policy(full())), &[request()], &request(), "TG003", "client is the peer although");
        }
        // It matters to lists of addresses too, which are by the client of the layer.
        for listed in [path().deny(list()), path().allow(list())] {
            let app = app(&layer([by("client", behind.clone()), listed, full()]));
            warns(&app, &[request()], &request(), "TG003", "client is the peer although");
        }
        for layer in [
            of_client(behind.clone()),
            of_client(behind.clone()).policy(by("peer", key::peer_ip())),
            of_client(behind.clone()).policy(by("login", joined())),
            layer([by("client", behind.clone())]),
            layer([path()]),
        ] {
            is_quiet(&app(&layer.policy(full())), &[(request(), 200), (request(), 429)]);
        }
    }
    // The peer is trusted, and its header has no address.
    let request = || with(to("/"), "x-forwarded-for", "unknown");
    warns(&app(&of_client(behind()).policy(full())), &[request()], &request(), "TG003", "client is the peer although");
    is_quiet(&app(&of_client(key::client_ip()).policy(full())), &[(to("/"), 200), (to("/"), 429)]);
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
