//! What looks like a preflight: spared the counting, and nothing else.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response};
use tollgate::key::Lookup;
use tollgate::policy::MissingKey;
use tollgate::{Key, Policy, key};

use super::rig::{ONE, app, by, expect, from, list, method, with};

/// What a browser sends before a request from another site, and anybody else whenever they like.
pub(crate) fn preflight() -> Request<Body> {
    let request = with(method(Method::OPTIONS), "origin", "https://a.example");
    with(request, "access-control-request-method", "PUT")
}

fn by_user() -> Policy {
    Policy::new("user", ONE).key(key::header("x-user"))
}

#[test]
fn a_forged_preflight_of_a_denied_address_is_refused() {
    for policy in [by_user(), Policy::new("all", ONE)] {
        let app = app(policy.deny(list(["10.0.0.0/8"])));
        expect(&app, by(preflight(), "10.0.0.1"), 403);
        expect(&app, preflight(), 403);
        expect(&app, by(preflight(), "11.0.0.1"), 200);
    }
}

#[test]
fn a_forged_preflight_with_a_denied_key_is_refused() {
    let app = app(by_user().deny(list(["stolen"])));
    expect(&app, with(preflight(), "x-user", "stolen"), 403);
    expect(&app, with(preflight(), "x-user", "ada"), 200);
    expect(&app, preflight(), 200);
}

#[test]
fn a_forged_preflight_without_the_key_that_a_policy_needs_is_refused() {
    let app = app(by_user().missing_key(MissingKey::Deny));
    expect(&app, preflight(), 403);
    expect(&app, with(preflight(), "x-user", "ada"), 200);
}

#[test]
fn a_forged_preflight_that_the_extractor_rejects_is_refused() {
    let rejecting = key::from_fn(|parts| {
        parts.headers.get("x-user").map(|user| Key::new("user", user)).ok_or_else(|| {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = http::StatusCode::UNAUTHORIZED;
            Box::new(response)
        })
    });
    let app = app(Policy::new("user", ONE).key(rejecting));
    expect(&app, preflight(), 401);
    expect(&app, with(preflight(), "x-user", "ada"), 200);
}

#[test]
fn a_preflight_that_is_judged_is_not_counted() {
    let app = app(by_user().missing_key(MissingKey::Deny).deny(list(["10.0.0.0/8", "stolen"])));
    for _ in 0..3 {
        expect(&app, by(with(preflight(), "x-user", "ada"), "11.0.0.1"), 200);
    }
    expect(&app, with(from("11.0.0.1"), "x-user", "ada"), 200);
    expect(&app, with(from("11.0.0.1"), "x-user", "ada"), 429);
    expect(&app, by(with(preflight(), "x-user", "ada"), "11.0.0.1"), 200);
}

#[test]
fn a_preflight_is_judged_only_where_its_policy_applies() {
    let app = app(by_user().missing_key(MissingKey::Deny).deny(list(["10.0.0.0/8"])).methods([Method::PUT]));
    expect(&app, by(preflight(), "10.0.0.1"), 200);
}

#[tokio::test]
async fn a_preflight_has_a_key_looked_up_only_where_that_may_refuse_it() {
    use tower::ServiceExt;
    let looks = Arc::new(AtomicUsize::new(0));
    let account = || {
        let looks = Arc::clone(&looks);
        key::lookup(key::header("x-user"), move |user: Lookup| {
            looks.fetch_add(1, Ordering::Relaxed);
            let user = user.text().map(str::to_owned);
            async move { Ok::<_, Infallible>(user.map(|user| Key::new("account", user))) }
        })
    };
    let send = |policy: Policy| app(policy).oneshot(with(preflight(), "x-user", "ada"));
    let status = send(Policy::new("plain", ONE).key(account())).await.expect("a response").status();
    assert_eq!((status.as_u16(), looks.load(Ordering::Relaxed)), (200, 0));
    let listed = Policy::new("listed", ONE).key(account()).deny(list(["ada"]));
    let status = send(listed).await.expect("a response").status();
    assert_eq!((status.as_u16(), looks.load(Ordering::Relaxed)), (403, 1));
}
