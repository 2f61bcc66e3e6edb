//! Policies whose key requests lack: TG001.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

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
    let plain = ["no policy limits it", "missing_key(MissingKey::Deny)"];
    let inside = ["authentication, outside of this one", "missing_key(MissingKey::Skip)"];
    let login = Policy::new("login", MANY).routes(["/login"]).key(key::client_ip()).ban(bans());
    for (policies, before, last, name, texts) in [
        (vec![by_header("x-api-key")], vec![with_key("1")], to("/"), "api-key", &plain[..]),
        (vec![by_account()], vec![with_key("known")], with_key("unknown"), "account", &plain[..1]),
        (vec![by_user()], vec![], to("/"), "user", &inside[..]),
        // Those that limit nothing hide nothing.
        (vec![by_address().shadow(), by_header("x-api-key")], vec![with_key("1")], to("/"), "api-key", &plain[..]),
        (vec![login, by_header("x-api-key")], vec![with_key("1")], to("/"), "api-key", &plain[..]),
    ] {
        let name = format!("policy=\"{name}\"");
        warns(&app(&layer(policies)), &before, &last, "TG001", &[texts, &[&name[..]]].concat());
    }
}

#[test]
fn a_request_that_a_layer_outside_limits_is_no_warning() {
    let app = pages().layer(layer([by_header("x-api-key")])).layer(layer([by_address()]));
    is_quiet("limited outside", &app, &[(with_key("1"), 200), (to("/"), 200), (to("/"), 200)]);
}

#[test]
fn a_missing_key_is_no_warning_where_another_policy_limits_the_request_or_its_rule_is_said() {
    let allowed = AccessList::parse(["10.0.0.1"]).expect("an address");
    let said = [MissingKey::Skip, MissingKey::Share].map(|rule| vec![by_header("x-token").missing_key(rule)]);
    let limited = [by_header("x-api-key"), by_user(), by_account()].map(|policy| vec![by_address(), policy]);
    let on_a_list = [vec![by_address().allow(allowed), by_header("x-api-key")]];
    for policies in said.into_iter().chain(limited).chain(on_a_list) {
        let what = format!("{policies:?}");
        is_quiet(&what, &app(&layer(policies)), &[(to("/"), 200), (with_key("unknown"), 200)]);
    }
    let denied = layer([by_header("x-token").missing_key(MissingKey::Deny)]);
    is_quiet("denied", &app(&denied), &[(to("/"), 403)]);
}

#[test]
fn a_request_of_which_a_policy_only_looks_at_the_ban_says_nothing_of_its_key() {
    // Elsewhere it may be missing.
    let looks = layer([by_account().routes(["/login"]).ban(bans().of_verified_keys())]);
    let known = with(to("/login"), "x-api-key", "known");
    is_quiet("looks at a ban", &app(&looks), &[(known, 200), (with_key("unknown"), 200)]);
}

#[test]
fn other_policies_warn_for_themselves_and_clones_and_the_same_that_replace_them_do_not() {
    let (logged, first) = (Logged::start(), layer([by_header("x-api-key")]));
    let derived: RateLimitLayer = first.clone().log_denials();
    let visited = |layer: &RateLimitLayer| {
        send(&app(layer), to("/"));
        logged.warnings().len()
    };
    assert_eq!([&first, &derived, &first.clone()].map(visited), [1; 3], "all have clones of one policy");
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
    for client in ["0", "1", "2"] {
        assert_eq!(app.clone().oneshot(with_key(client)).await.expect("a response").status(), 200);
    }
    assert!(logged.warnings().iter().all(|line| !line.contains("TG0")), "{:#?}", logged.warnings());
}

#[test]
fn what_is_explained_or_shown_is_no_warning_and_leaves_it_to_a_request() {
    let by_route = Policy::new("route", MANY).key(key::route());
    let layer = layer([by_header("x-apikey"), by_route, Policy::new("login", MANY).routes(["/login"])]);
    let logged = Logged::start();
    drop(layer.clone().live().explain(&to("/login").into_parts().0));
    assert_eq!(rig::send(&layer.clone().live().status_service_for(|_| true), to("/login")).status(), 200);
    logged.none("explained and shown");
    // Around the router, where no route has matched.
    rig::send(&layer.layer(pages()), to("/login"));
    assert_eq!(logged.log.count("TG002"), 2, "{:#?}", logged.warnings());
}
