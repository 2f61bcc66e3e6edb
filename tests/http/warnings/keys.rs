//! Policies whose key requests lack: TG001.

use axum::Router;
use tollgate::{AccessList, Key, MissingKey, Policy, RateLimitLayer, key};

use super::{Logged, MANY, app, layer, request, send, visit, visit_often};

#[derive(Clone)]
struct User(&'static str);

fn by_user() -> Policy {
    Policy::new("user", MANY).key(key::extension(|user: &User| Key::new("user", user.0)))
}

fn by_header(name: &'static str) -> Policy {
    Policy::new("api-key", MANY).key(key::header(name))
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
fn authentication_inside_the_limiter_is_one_warning() {
    let (logged, app) = (Logged::start(), app(&layer([by_address(), by_user()])));
    assert_eq!(visit(&app, "/"), 200);
    let texts = ["policy=\"user\"", "authentication, outside of this one", "missing_key(MissingKey::Skip)"];
    logged.only("TG001", &texts, || visit(&app, "/"));
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
fn missing_keys_that_are_meant_warn_of_nothing() {
    for (rule, status) in [(MissingKey::Skip, 200), (MissingKey::Share, 200), (MissingKey::Deny, 403)] {
        for policy in [by_user(), by_header("x-api-key")] {
            let (logged, app) = (Logged::start(), app(&layer([policy.missing_key(rule)])));
            (0..1_001).for_each(|_| assert_eq!(visit(&app, "/"), status));
            logged.none();
        }
    }
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
