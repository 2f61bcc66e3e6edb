//! Policies whose key requests lack, TG001, and whose routes do not match, TG002.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tollgate::key::{self, Lookup};
use tollgate::policy::{AccessList, MissingKey};
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_config::Config;
use tower::{Layer, ServiceExt};

use super::{Logged, MANY, app, is_quiet, layer, pages, send, to, warns};
use crate::rig::{self, with};

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

fn with_key(key: &str) -> http::Request<String> {
    with(to("/"), "x-api-key", key)
}

#[test]
fn a_request_that_lacks_its_key_and_that_nothing_limits_is_one_warning() {
    let plain = ["policy=\"api-key\"", "no policy limits it", "missing_key(MissingKey::Deny)"];
    let of_user = ["policy=\"user\"", "authentication, outside of this one", "missing_key(MissingKey::Skip)"];
    let by_header = || by_header("x-api-key");
    let login = Policy::new("login", MANY).routes(["/login"]).key(key::client_ip()).ban(bans());
    // Those that limit nothing hide nothing.
    for policies in [vec![by_header()], vec![by_address().shadow(), by_header()], vec![login, by_header()]] {
        warns(&app(&layer(policies)), &[with_key("1")], &to("/"), "TG001", &plain);
    }
    warns(&app(&layer([by_account()])), &[with_key("known")], &with_key("unknown"), "TG001", &["policy=\"account\""]);
    warns(&app(&layer([by_user()])), &[], &to("/"), "TG001", &of_user);
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
fn other_policies_warn_for_themselves_and_clones_and_the_same_that_replace_them_do_not() {
    let (logged, first) = (Logged::start(), layer([by_header("x-api-key")]));
    let visited = |layer: &RateLimitLayer| {
        send(&app(layer), to("/"));
        logged.warnings().len()
    };
    assert_eq!([&first, &first.clone().log_denials()].map(visited), [1; 2], "both have clones of one policy");
    assert_eq!(visited(&layer([by_header("x-api-key")])), 2, "another layer");
    for (policy, expected) in [
        (Policy::new("api-key", Quota::per_hour(7)).key(key::header("x-api-key")), 2),
        (by_header("x-token"), 3),
        (Policy::new("api-key", MANY).key(key::bearer()), 4),
    ] {
        first.clone().live().replace_policies([policy]).expect("it works");
        assert_eq!(visited(&first), expected, "{:#?}", logged.warnings());
    }
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
fn what_is_explained_or_shown_is_no_warning_and_leaves_it_to_a_request() {
    let layer = layer([by_header("x-apikey"), by_route(), login("login", "/login")]);
    let logged = Logged::start();
    drop(layer.clone().live().explain(&to("/login").into_parts().0));
    assert_eq!(rig::send(&layer.clone().live().status_service_for(|_| true), to("/login")).status(), 200);
    logged.none("explained and shown");
    send(&around(&layer), to("/login"));
    assert_eq!(logged.log.count("TG002"), 2, "{:#?}", logged.warnings());
}

#[test]
fn a_policy_whose_route_or_key_by_route_never_matches_is_one_warning() {
    let nested = Router::new().nest("/api", app(&on("/login")));
    let of_nested = ["route=\"/login\"", "matched=\"/api/login\"", "inside Router::nest"];
    warns(&nested, &[to("/api")], &to("/api/login"), "TG002", &of_nested);
    let of_around = ["route=\"/login\"", "no route has matched", "Router::layer"];
    warns(&around(&on("/login")), &[to("/")], &to("/login"), "TG002", &of_around);
    let of_path = ["matched=\"/users/{id}\"", "when(...)"];
    warns(&app(&on("/users/42")), &[to("/users/7")], &to("/users/42"), "TG002", &of_path);
    for policy in [by_route(), by_route().key((key::client_ip(), key::route()))] {
        let of_key = ["policy=\"route\"", "all such requests share one counter"];
        warns(&around(&layer([policy])), &[], &to("/users/7"), "TG002", &of_key);
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
    // Policies that replace others may match.
    let (logged, layer) = (Logged::start(), on("/login"));
    let nested = Router::new().nest("/api", app(&layer));
    send(&nested, to("/api/login"));
    layer.clone().live().replace_policies([login("login", "/api/login")]).expect("it can match");
    logged.only("TG002", &["matched=\"/api/login\""], || send(&nested, to("/api/login")));
}
