//! Which requests a policy applies to.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::routing::{get as on_get, post as on_post};
use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response};
use tollgate::policy::{AccessList, MissingKey};
use tollgate::{Key, Policy, Quota, key};
use tower::ServiceExt;

use crate::rig::{Rig, Text, and, expect, from, get, method, send, service, with};

const ONE: Quota = Quota::per_hour(1);

#[test]
fn a_policy_applies_to_its_methods_only() {
    let (get, head, post, put) = (Method::GET, Method::HEAD, Method::POST, Method::PUT);
    for (methods, sent, expected) in [
        (vec![post.clone(), put.clone()], [&get, &post, &get, &put, &post], [200, 200, 200, 429, 429]),
        // HEAD runs the handlers of GET.
        (vec![get.clone(), post.clone()], [&head, &head, &get, &post, &put], [200, 429, 429, 429, 200]),
        (vec![head.clone()], [&head, &head, &get, &get, &put], [200, 429, 200, 200, 200]),
    ] {
        let service = service(Policy::new("some", ONE).methods(methods));
        expect(&service, sent.map(|sent| method(sent.clone())).into_iter().zip(expected));
        let other = send(&service, method(Method::DELETE));
        assert_eq!(other.headers().len(), 0, "it is not told of a policy that does not apply");
    }
}

/// Sends requests to an app of three routes, with a policy for some of them.
#[track_caller]
fn routed(policy: Policy, rows: &[(&str, u16)]) {
    let inner = Router::new().route("/nested/{id}", on_get(|| async {}));
    let routes = Router::new().route("/users/{id}", on_get(|| async {})).route("/search", on_post(|| async {}));
    let app = routes.nest("/api", inner).layer(Rig::new().layer([policy]));
    for (line, status) in rows {
        let (method, uri) = line.split_once(' ').expect("a method and a URI");
        let request = Request::builder().method(method).uri(uri).body(Body::empty()).expect("a request");
        let response = app.clone().oneshot(request).now_or_never().expect("an answer at once").expect("a response");
        assert_eq!(response.status(), *status, "{line}");
    }
}

#[test]
fn a_policy_applies_to_the_templates_of_its_routes_only() {
    let of = |routes: &[&str]| Policy::new("some", ONE).routes(routes);
    routed(of(&["/users/{id}"]), &[("GET /users/1", 200), ("GET /users/2", 429), ("POST /search", 200)]);
    routed(of(&["/users/1", "/users"]), &[("GET /users/1", 200), ("GET /users/1", 200)]);
    routed(of(&["/api/nested/{id}"]), &[("GET /api/nested/1", 200), ("GET /api/nested/2", 429)]);
    // There is no router around it.
    expect(&service(of(&["/"])), [(get(), 200), (get(), 200)]);
}

#[test]
fn a_closure_says_where_a_policy_applies() {
    let service = service(Policy::new("beta", ONE).when(|parts| parts.headers.contains_key("x-beta")));
    let rows = [("x-other", 200), ("x-beta", 200), ("x-other", 200), ("x-beta", 429)];
    expect(&service, rows.map(|(name, status)| (with(name, "1"), status)));
    // Methods, routes and the closure must all agree.
    let all = Policy::new("all", ONE).methods([Method::POST]).routes(["/search"]);
    let rows = [("POST /search", 200), ("GET /users/1?q", 200), ("POST /search?q", 200), ("POST /search?q", 429)];
    routed(all.when(|parts| parts.uri.query().is_some()), &rows);
}

/// What a browser sends before a request from another site, and anybody else whenever they like.
fn preflight() -> Request<Text> {
    and(and(method(Method::OPTIONS), "origin", "https://a.example"), "access-control-request-method", "PUT")
}

/// A service may run its handler for any method, as tonic does.
#[test]
fn a_request_in_the_form_of_a_preflight_is_counted_like_any_other() {
    expect(&service(Policy::new("all", ONE)), [(preflight(), 200), (preflight(), 429), (get(), 429)]);
}

fn listed(policy: Policy) -> Policy {
    policy.deny(AccessList::parse(["10.0.0.0/8", "stolen"]).expect("the entries are right"))
}

/// A preflight from a peer, and of a user.
fn of(peer: Option<&str>, user: Option<&str>) -> Request<Text> {
    let mut request = preflight();
    if let Some(peer) = peer {
        request.extensions_mut().extend(from(peer).extensions().clone());
    }
    user.into_iter().fold(request, |request, user| and(request, "x-user", user))
}

#[test]
fn a_preflight_may_be_spared_the_key_and_nothing_else() {
    let by_user = || Policy::new("user", Quota::per_hour(2)).key(key::header("x-user"));
    let strict = || by_user().missing_key(MissingKey::Deny);
    let rejecting = key::from_fn(|parts| {
        let unknown = || Response::builder().status(401).body(Bytes::new()).expect("a response");
        parts.headers.get("x-user").map(|user| Key::new("user", user)).ok_or_else(|| Box::new(unknown()))
    });
    let (inside, outside, ada, stolen) = (Some("10.0.0.1"), Some("11.0.0.1"), Some("ada"), Some("stolen"));
    for (policy, peer, user, status) in [
        (listed(by_user()), inside, ada, 403),
        (listed(by_user()), None, ada, 403),
        (listed(by_user()), outside, None, 200),
        (listed(by_user()), outside, stolen, 403),
        (listed(strict()).methods([Method::PUT]), inside, stolen, 200),
        (strict(), outside, None, 403),
        (strict(), outside, ada, 200),
        (listed(strict()).preflights_without_key(), outside, None, 200),
        (listed(strict()).preflights_without_key(), inside, None, 403),
        (listed(strict()).preflights_without_key(), outside, stolen, 403),
        (Policy::new("user", Quota::per_hour(2)).key(rejecting), None, None, 401),
        (Policy::new("user", Quota::per_hour(2)).key(rejecting), None, ada, 200),
    ] {
        expect(&service(policy), [(of(peer, user), status), (of(peer, user), status)]);
    }
    let keyless = strict().preflights_without_key();
    let disguised = |name| and(method(Method::OPTIONS), name, "a");
    let others = [get(), disguised("origin"), disguised("access-control-request-method")];
    expect(&service(keyless.clone()), [(preflight(), 200), (preflight(), 200)]);
    expect(&service(keyless), others.map(|other| (other, 403)));
}

#[test]
fn a_client_on_an_allow_list_has_a_key_looked_up_only_where_that_may_refuse_it() {
    let looks = Arc::new(AtomicUsize::new(0));
    let by_account = || {
        let looks = Arc::clone(&looks);
        Policy::new("account", ONE).key(key::lookup(key::header("x-user"), move |_| {
            looks.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok::<_, Infallible>(Key::new("account", "stolen")))
        }))
    };
    let allowed = AccessList::parse(["11.0.0.0/8"]).expect("the entry is right");
    for (policy, status, looked) in [(by_account(), 200, 0), (listed(by_account()), 403, 1)] {
        let response = service(policy.allow(allowed.clone())).oneshot(of(Some("11.0.0.1"), Some("ada")));
        let response = tokio_test::block_on(response).expect("a response");
        assert_eq!((response.status().as_u16(), looks.load(Ordering::Relaxed)), (status, looked));
    }
}
