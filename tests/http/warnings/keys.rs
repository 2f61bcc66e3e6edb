//! Policies whose key requests lack: TG001.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use axum::Router;
use http::request::Parts;
use tollgate::config::Config;
use tollgate::key::KeyExtractor;
use tollgate::{AccessList, Ban, Key, Lookup, MemoryStore, MissingKey, Policy, Quota, RateLimitLayer, key};
use tower::ServiceExt;

use super::{Logged, MANY, app, layer, pages, request, send, visit, visit_often};

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

fn send_as(app: &Router, user: &'static str) -> u16 {
    let mut request = request("/", &[]);
    request.extensions_mut().insert(User(user));
    send(app, request)
}

#[test]
fn a_request_that_a_layer_outside_limits_is_no_warning() {
    let logged = Logged::start();
    let app = pages().layer(layer([by_header("x-api-key")])).layer(layer([by_address()]));
    assert_eq!(visit(&app, "/"), 200);
    logged.none();
}

#[test]
fn authentication_inside_the_limiter_is_one_warning() {
    let texts = ["policy=\"user\"", "authentication, outside of this one", "missing_key(MissingKey::Skip)"];
    // Nothing limits the first request, or the thousandth is the last that may be of a user.
    for (policies, count) in [(vec![by_user()], 1), (vec![by_address(), by_user()], 1_000)] {
        let (logged, app) = (Logged::start(), app(&layer(policies)));
        visit_often(&app, "/", count - 1);
        logged.none();
        assert_eq!(visit(&app, "/"), 200);
        logged.only("TG001", &texts, || visit(&app, "/"));
    }
}

#[test]
fn users_who_come_after_others_where_a_login_is_optional_are_no_warning() {
    let (logged, app) = (Logged::start(), app(&layer([by_address(), by_user()])));
    visit_often(&app, "/", 999);
    assert_eq!(send_as(&app, "ada"), 200);
    visit_often(&app, "/", 100);
    logged.none();
}

#[tokio::test]
async fn a_key_that_is_still_looked_up_at_the_end_of_the_watch_may_be_found() {
    let (found, wait) = tokio::sync::oneshot::channel::<()>();
    let wait = futures::FutureExt::shared(wait);
    let account = move |_: Lookup| {
        let wait = wait.clone();
        async move { Ok::<_, Infallible>(wait.await.is_ok().then(|| Key::new("account", "known"))) }
    };
    let account = Policy::new("account", MANY).key(key::lookup(key::header("x-api-key"), account));
    let (logged, app) = (Logged::start(), app(&layer([by_address(), account])));
    let mut waiting = app.clone().oneshot(request("/", &[("x-api-key", "known")]));
    assert!(futures::poll!(&mut waiting).is_pending());
    visit_often(&app, "/", 998);
    logged.none();
    found.send(()).expect("it waits");
    assert_eq!(waiting.await.expect("a response").status(), 200);
    visit_often(&app, "/", 100);
    logged.none();
}

#[test]
fn a_request_that_panics_does_not_end_the_watch() {
    let panics = |parts: &Parts| {
        assert!(parts.uri.path() != "/users/panics", "a closure");
        1
    };
    let (logged, app) = (Logged::start(), app(&layer([by_address().cost_by(panics), by_header("x-apikey")])));
    visit_often(&app, "/", 999);
    assert!(catch_unwind(AssertUnwindSafe(|| visit(&app, "/users/panics"))).is_err());
    logged.none();
    visit(&app, "/");
    logged.only("TG001", &["policy=\"api-key\"", "limited none of them"], || visit(&app, "/"));
}

#[test]
fn policies_that_are_replaced_by_the_same_repeat_no_warning() {
    let of = |limit| {
        let by_key = Policy::new("api-key", Quota::per_hour(limit)).key(key::header("x-apikey"));
        vec![by_address(), by_key]
    };
    let layer = layer(of(100_000));
    let (logged, app) = (Logged::start(), app(&layer));
    for limit in 100_000..100_003 {
        layer.replace_policies(of(limit)).expect("it works");
        visit_often(&app, "/", 1_001);
        logged.one("TG001", &["policy=\"api-key\"", "limited none of them"]);
    }
    layer.replace_policies([by_address(), by_header("x-api_key")]).expect("it works");
    visit_often(&app, "/", 1_001);
    assert_eq!(logged.warnings().len(), 2, "another key that no request has");
}

#[test]
fn a_file_that_is_read_again_repeats_no_warning() {
    let file = |limit: u32| {
        let text = format!(
            "[[policy]]\nname = \"ip\"\nlimit = 100000\nwindow = \"1h\"\nkey = \"client_ip\"\n[[policy]]\nname = \"api-key\"\n\
             limit = {limit}\nwindow = \"1h\"\nkey = \"header:x-apikey\"\n[[policy]]\nname = \"login\"\nlimit = {limit}\n\
             window = \"1h\"\nkey = \"client_ip\"\nroutes = [\"/log-in\"]\n"
        );
        Config::from_toml(&text).expect("a file")
    };
    let layer = file(100_000).layer(MemoryStore::new()).expect("a layer");
    let (logged, app) = (Logged::start(), app(&layer));
    for limit in 100_000..100_003 {
        file(limit).update(&layer).expect("it works");
        visit_often(&app, "/", 1_001);
        let warnings = logged.warnings();
        assert_eq!(warnings.len(), 2, "{warnings:#?}");
        assert_eq!((logged.log.count("TG001"), logged.log.count("TG002")), (1, 1));
    }
}

#[test]
fn a_user_who_is_not_logged_in_is_no_warning_after_one_who_is() {
    let (logged, app) = (Logged::start(), app(&layer([by_address(), by_user()])));
    for _ in 0..1_000 {
        assert_eq!((send_as(&app, "ada"), visit(&app, "/")), (200, 200));
    }
    logged.none();
}

#[test]
fn a_first_user_after_many_requests_is_noted_too() {
    let on_login = by_user().routes(["/login"]);
    let (logged, app) = (Logged::start(), app(&layer([by_address(), on_login])));
    visit_often(&app, "/", 1_000);
    logged.one("TG002", &[]);
    let mut login = request("/login", &[]);
    login.extensions_mut().insert(User("ada"));
    assert_eq!((send(&app, login), visit(&app, "/login")), (200, 200));
    logged.one("TG002", &[]);
}

#[test]
fn a_request_that_nothing_limits_is_one_warning() {
    let (logged, app) = (Logged::start(), app(&layer([by_header("x-api-key")])));
    assert_eq!(send(&app, request("/", &[("x-api-key", "1")])), 200);
    logged.none();
    assert_eq!(visit(&app, "/"), 200);
    let texts = ["policy=\"api-key\"", "no other policy limits it", "missing_key(MissingKey::Deny)"];
    logged.only("TG001", &texts, || visit(&app, "/"));
}

#[test]
fn a_request_that_another_policy_limits_is_no_warning() {
    let (logged, app) = (Logged::start(), app(&layer([by_address(), by_header("x-api-key")])));
    assert_eq!(visit(&app, "/"), 200);
    assert_eq!(send(&app, request("/", &[("x-api-key", "1")])), 200);
    visit_often(&app, "/", 1_000);
    logged.none();
}

#[test]
fn a_client_on_an_allow_list_is_not_limited_without_a_warning() {
    let allowed = AccessList::parse(["10.0.0.1"]).expect("an address");
    let (logged, app) = (Logged::start(), app(&layer([by_address().allow(allowed), by_header("x-api-key")])));
    assert_eq!(visit(&app, "/"), 200);
    logged.none();
}

#[test]
fn a_key_that_no_request_has_is_one_warning_after_a_thousand() {
    let (logged, app) = (Logged::start(), app(&layer([by_address(), by_header("x-apikey")])));
    let send = || assert_eq!(send(&app, request("/", &[("x-api-key", "1")])), 200);
    (0..999).for_each(|_| send());
    logged.none();
    send();
    logged.only("TG001", &["policy=\"api-key\"", "first 1000 requests", "check the name"], send);
}

#[test]
fn missing_keys_that_may_pass_warn_of_nothing() {
    for policy in [by_user(), by_header("x-api-key"), by_account()] {
        let (logged, app) = (Logged::start(), app(&layer([policy.missing_key(MissingKey::Skip)])));
        visit_often(&app, "/", 1_001);
        logged.none();
    }
}

#[test]
fn a_key_that_no_request_has_is_one_warning_by_its_rule() {
    let (together, never) = ("so all share one counter", "so all are refused");
    let joined = Policy::new("tenant", MANY).key(key::client_ip().and(key::header("x-tennant")));
    let with = |rule| [by_user(), by_header("x-apikey"), by_account()].map(|policy| policy.missing_key(rule));
    let shares = with(MissingKey::Share).into_iter().chain([joined]).map(|policy| (policy, 200, together));
    let denies = with(MissingKey::Deny).map(|policy| (policy, 403, never));
    let shadow = (by_header("x-apikey").missing_key(MissingKey::Deny).shadow(), 200, "all would be refused but for");
    for (policy, status, effect) in shares.chain(denies).chain([shadow]) {
        let name = format!("policy={:?}", policy.name());
        let (logged, app) = (Logged::start(), app(&layer([policy])));
        let send = || assert_eq!(send(&app, request("/", &[("x-api-key", "1")])), status);
        (0..999).for_each(|_| send());
        logged.none();
        send();
        logged.only("TG001", &[&name, "none of the first 1000 requests", effect], send);
    }
}

#[test]
fn a_key_that_some_requests_have_is_no_warning_by_any_rule() {
    for rule in [MissingKey::Share, MissingKey::Deny] {
        let on_login = by_header("x-token").routes(["/login"]).missing_key(rule);
        let (logged, app) = (Logged::start(), app(&layer([by_address(), by_header("x-api-key").missing_key(rule)])));
        assert_eq!(send(&app, request("/", &[("x-api-key", "1")])), 200);
        visit_often(&app, "/", 1_001);
        logged.none();
        // It applies to none of them.
        let other = pages().layer(layer([by_address(), on_login]));
        assert_eq!(send(&other, request("/login", &[("x-token", "1")])), 200);
        visit_often(&other, "/", 1_001);
        logged.none();
    }
}

#[test]
fn a_request_of_which_a_policy_only_looks_at_the_ban_says_nothing_of_its_key() {
    let minute = Duration::from_secs(60);
    let ban = Ban::new(3, minute, minute).whole_layer().of_verified_keys();
    let on_login = |policy: Policy| policy.routes(["/login"]).ban(ban);
    // Elsewhere it may be missing.
    let (logged, pages) = (Logged::start(), app(&layer([on_login(by_account())])));
    assert_eq!(send(&pages, request("/login", &[("x-api-key", "known")])), 200);
    assert_eq!(send(&pages, request("/", &[("x-api-key", "unknown")])), 200);
    logged.none();
    // That one has it there does not show that any has it where it counts.
    let pages = app(&layer([by_address(), on_login(by_header("x-token"))]));
    (0..500).for_each(|_| assert_eq!(send(&pages, request("/", &[("x-token", "1")])), 200));
    visit_often(&pages, "/login", 500);
    logged.one("TG001", &["policy=\"api-key\"", "limited none of them"]);
}

#[test]
fn a_look_at_what_applies_is_no_request_that_has_the_key() {
    let layer = layer([by_address(), by_header("x-apikey")]);
    let (logged, app) = (Logged::start(), app(&layer));
    let (parts, _) = request("/", &[("x-apikey", "1")]).into_parts();
    assert!(layer.explain(&parts).policies()[1].applies());
    visit_often(&app, "/", 1_000);
    logged.one("TG001", &["policy=\"api-key\"", "limited none of them"]);
}

#[test]
fn a_key_that_is_not_found_is_a_missing_one() {
    let (logged, app) = (Logged::start(), app(&layer([by_account()])));
    let send = |token| send(&app, request("/", &[("x-api-key", token)]));
    assert_eq!(send("known"), 200);
    logged.none();
    assert_eq!(send("unknown"), 200);
    logged.only("TG001", &["policy=\"account\"", "no other policy limits it"], || send("unknown"));
}

#[test]
fn a_key_that_is_never_found_is_one_warning_after_a_thousand() {
    let (logged, app) = (Logged::start(), app(&layer([by_address(), by_account()])));
    let send = |token| send(&app, request("/", &[("x-api-key", token)]));
    (0..1_000).for_each(|_| assert_eq!(send("unknown"), 200));
    logged.only("TG001", &["policy=\"account\"", "limited none of them"], || send("known"));
}

#[test]
fn a_key_that_is_not_found_where_another_policy_limits_is_no_warning() {
    let listed = AccessList::default().key_of("account", "known");
    for policies in [vec![by_address(), by_account()], vec![by_account().allow(listed), by_header("x-token")]] {
        let (logged, app) = (Logged::start(), app(&layer(policies)));
        let send = |token| send(&app, request("/", &[("x-api-key", token)]));
        assert_eq!(send("known"), 200);
        logged.none();
    }
    let (logged, app) = (Logged::start(), app(&layer([by_address(), by_account()])));
    for token in ["known", "unknown"] {
        (0..1_001).for_each(|_| assert_eq!(send(&app, request("/", &[("x-api-key", token)])), 200));
    }
    logged.none();
}

#[test]
fn each_layer_and_other_policies_warn_for_themselves() {
    let (logged, first) = (Logged::start(), layer([by_header("x-api-key")]));
    let derived: RateLimitLayer = first.clone().log_refusals();
    for layer in [&first, &derived, &first.clone()] {
        visit(&app(layer), "/");
    }
    assert_eq!(logged.warnings().len(), 2, "a clone is the same layer");
    first.replace_policies([by_header("x-token")]).expect("it works");
    visit(&app(&first), "/");
    assert_eq!(logged.warnings().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn keys_whose_lookups_time_out_are_not_missing() {
    let never = |_: Lookup| std::future::pending::<Result<Option<Key>, Infallible>>();
    let account = Policy::new("account", MANY).key(key::lookup(key::header("x-api-key"), never));
    let (logged, app) = (Logged::start(), app(&layer([by_address(), account]).budget(Duration::from_millis(20))));
    for client in 0..500 {
        let with_key = request("/", &[("x-api-key", &client.to_string())]);
        assert_eq!(app.clone().oneshot(with_key).await.expect("a response").status(), 200);
        assert_eq!(visit(&app, "/"), 200);
    }
    assert!(logged.warnings().iter().all(|line| !line.contains("TG0")), "{:#?}", logged.warnings());
}
