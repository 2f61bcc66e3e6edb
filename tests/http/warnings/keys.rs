//! Policies whose key requests lack: TG001.

use std::convert::Infallible;
use std::time::Duration;

use futures::FutureExt;
use tollgate::key::Lookup;
use tollgate::policy::{AccessList, MissingKey};
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer, key};
use tollgate_config::Config;
use tower::{Layer, ServiceExt};

use super::{Logged, MANY, app, layer, pages, request, send, visit};

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

#[test]
fn a_request_that_a_layer_outside_limits_is_no_warning() {
    let logged = Logged::start();
    let app = pages().layer(layer([by_header("x-api-key")])).layer(layer([by_address()]));
    assert_eq!(visit(&app, "/"), 200);
    logged.none();
}

#[test]
fn a_request_that_nothing_limits_is_one_warning() {
    let (logged, app) = (Logged::start(), app(&layer([by_header("x-api-key")])));
    assert_eq!(send(&app, request("/", &[("x-api-key", "1")])), 200);
    logged.none();
    assert_eq!(visit(&app, "/"), 200);
    let texts = ["policy=\"api-key\"", "no policy limits it", "missing_key(MissingKey::Deny)"];
    logged.only("TG001", &texts, || visit(&app, "/"));
}

#[test]
fn a_client_on_an_allow_list_is_not_limited_without_a_warning() {
    let allowed = AccessList::parse(["10.0.0.1"]).expect("an address");
    let (logged, app) = (Logged::start(), app(&layer([by_address().allow(allowed), by_header("x-api-key")])));
    assert_eq!(visit(&app, "/"), 200);
    logged.none();
}

#[test]
fn a_key_that_is_not_found_is_a_missing_one() {
    let (logged, app) = (Logged::start(), app(&layer([by_account()])));
    let send = |token| send(&app, request("/", &[("x-api-key", token)]));
    assert_eq!(send("known"), 200);
    logged.none();
    assert_eq!(send("unknown"), 200);
    logged.only("TG001", &["policy=\"account\"", "no policy limits it"], || send("unknown"));
}

#[test]
fn other_policies_warn_for_themselves_and_clones_do_not() {
    let (logged, first) = (Logged::start(), layer([by_header("x-api-key")]));
    let derived: RateLimitLayer = first.clone().log_denials();
    for layer in [&first, &derived, &first.clone()] {
        visit(&app(layer), "/");
    }
    assert_eq!(logged.warnings().len(), 1, "all have clones of one policy");
    visit(&app(&layer([by_header("x-api-key")])), "/");
    assert_eq!(logged.warnings().len(), 2);
    first.clone().live().replace_policies([by_header("x-token")]).expect("it works");
    visit(&app(&first), "/");
    assert_eq!(logged.warnings().len(), 3);
}

#[test]
fn authentication_inside_the_limiter_is_one_warning() {
    let (logged, app) = (Logged::start(), app(&layer([by_user()])));
    assert_eq!(visit(&app, "/"), 200);
    let texts = ["policy=\"user\"", "authentication, outside of this one", "missing_key(MissingKey::Skip)"];
    logged.only("TG001", &texts, || visit(&app, "/"));
}

#[test]
fn a_missing_key_is_no_warning_where_another_policy_limits_the_request_or_its_rule_is_said() {
    let said = [MissingKey::Skip, MissingKey::Share].map(|rule| vec![by_header("x-token").missing_key(rule)]);
    let limited = [by_header("x-api-key"), by_user(), by_account()].map(|policy| vec![by_address(), policy]);
    for policies in said.into_iter().chain(limited) {
        let (logged, app) = (Logged::start(), app(&layer(policies)));
        assert_eq!(visit(&app, "/"), 200);
        assert_eq!(send(&app, request("/", &[("x-api-key", "unknown")])), 200);
        logged.none();
    }
    let denied = layer([by_header("x-token").missing_key(MissingKey::Deny)]);
    let (logged, app) = (Logged::start(), app(&denied));
    assert_eq!(visit(&app, "/"), 403);
    logged.none();
}

#[test]
fn policies_that_are_replaced_by_the_same_repeat_no_warning() {
    let of = |limit| Policy::new("api-key", Quota::per_hour(limit)).key(key::header("x-apikey"));
    let layer = layer([of(100_000)]);
    let (logged, app) = (Logged::start(), app(&layer));
    for limit in 100_000..100_003 {
        layer.clone().live().replace_policies([of(limit)]).expect("it works");
        visit(&app, "/");
        logged.one("TG001", &["policy=\"api-key\""]);
    }
    layer.clone().live().replace_policies([by_header("x-api_key")]).expect("it works");
    visit(&app, "/");
    assert_eq!(logged.warnings().len(), 2, "another key, which the request lacks as well");
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
        visit(&app, "/users/7");
        assert_eq!((logged.log.count("TG001"), logged.log.count("TG002")), (1, 1), "{:#?}", logged.warnings());
    }
}

#[test]
fn a_request_of_which_a_policy_only_looks_at_the_ban_says_nothing_of_its_key() {
    let minute = Duration::from_secs(60);
    let ban = Ban::new(3, minute, minute).whole_layer().of_verified_keys();
    // Elsewhere it may be missing.
    let (logged, pages) = (Logged::start(), app(&layer([by_account().routes(["/login"]).ban(ban)])));
    assert_eq!(send(&pages, request("/login", &[("x-api-key", "known")])), 200);
    assert_eq!(send(&pages, request("/", &[("x-api-key", "unknown")])), 200);
    logged.none();
}

#[tokio::test(start_paused = true)]
async fn keys_whose_lookups_time_out_are_not_missing() {
    let never = |_: Lookup| std::future::pending::<Result<Option<Key>, Infallible>>();
    let account = Policy::new("account", MANY).key(key::lookup(key::header("x-api-key"), never));
    let (logged, app) = (Logged::start(), app(&layer([account]).timeout(Duration::from_millis(20))));
    for client in 0..3 {
        let with_key = request("/", &[("x-api-key", &client.to_string())]);
        assert_eq!(app.clone().oneshot(with_key).await.expect("a response").status(), 200);
    }
    assert!(logged.warnings().iter().all(|line| !line.contains("TG0")), "{:#?}", logged.warnings());
}

#[test]
fn what_is_explained_or_shown_is_no_warning_and_leaves_it_to_a_request() {
    let by_route = Policy::new("route", MANY).key(key::route());
    let layer = layer([by_header("x-apikey"), by_route.clone(), Policy::new("login", MANY).routes(["/login"])]);
    let (logged, parts) = (Logged::start(), request("/login", &[]).into_parts().0);
    drop(layer.clone().live().explain(&parts));
    let status = layer.clone().live().status_service_for(|_| true);
    let shown = status.oneshot(request("/login", &[])).now_or_never().expect("at once").expect("a response");
    assert_eq!(shown.status(), 200);
    logged.none();
    // Around the router, where no route has matched.
    let around = layer.layer(pages());
    assert!(around.oneshot(request("/login", &[])).now_or_never().expect("at once").is_ok());
    assert_eq!(logged.log.count("TG002"), 2, "{:#?}", logged.warnings());
}
