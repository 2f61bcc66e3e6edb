//! TG010: a layer that is around a request once more, in a router within, counts by each policy once.

use std::sync::{Arc, Mutex};

use axum::extract::Request;
use axum::routing::get;
use axum::{Router, middleware};
use futures::FutureExt;
use http::Extensions;
use http_body_util::BodyExt;
use tollgate::policy::MissingKey;
use tollgate::{Policy, Quota, key};
use tower::ServiceExt;

use super::{Logged, MANY, layer, pages, request, send, visit};

/// A request that a handler makes of the one that it has.
fn with_extensions(extensions: Extensions) -> Request {
    let mut request = request("/", &[]);
    *request.extensions_mut() = extensions;
    request
}

#[test]
fn a_layer_that_is_twice_around_a_request_counts_it_once_and_is_one_warning() {
    let limits = layer([Policy::new("api", Quota::per_hour(10))]);
    let inner = Router::new().route("/", get(|| async {})).layer(limits.clone());
    // Another layer in between, and other settings of the same one.
    let between = layer([Policy::new("between", MANY)]).without_handle();
    let app = inner.clone().layer(between).layer(limits.clone());
    let logged = Logged::start();
    for left in (0..10).rev() {
        let response = app.clone().oneshot(request("/", &[])).now_or_never().expect("at once").expect("a response");
        assert_eq!(response.status(), 200);
        let remaining: Vec<_> = response.headers().get_all("x-ratelimit-remaining").iter().collect();
        assert_eq!(remaining, [&left.to_string()], "one layer writes its headers");
    }
    assert_eq!(visit(&app, "/"), 429);
    logged.one("TG010", &["twice around a request", "a layer of its own"]);
    assert_eq!(visit(&inner, "/"), 429, "where it is alone, it limits");
}

#[test]
fn what_a_handler_makes_of_one_request_counts_as_often_as_it_comes() {
    let limits = layer([Policy::new("api", Quota::per_hour(5))]);
    let inner = Router::new().route("/", get(|| async {})).layer(limits.clone());
    let kept = Arc::new(Mutex::new(None));
    let batch = {
        let (inner, kept) = (inner.clone(), Arc::clone(&kept));
        async move |of: Request| {
            let mut statuses = Vec::new();
            for _ in 0..4 {
                statuses.push(send(&inner, with_extensions(of.extensions().clone())));
            }
            *kept.lock().expect("no panic") = Some(of.extensions().clone());
            format!("{statuses:?}")
        }
    };
    let app = Router::new().route("/batch", get(batch)).layer(limits);
    let response = app.oneshot(request("/batch", &[])).now_or_never().expect("at once").expect("a response");
    let body = response.into_body().collect().now_or_never().expect("at once").expect("a body").to_bytes();
    assert_eq!(body, "[200, 200, 200, 200]", "the first was counted outside: one and three units");
    let kept = kept.lock().expect("no panic").take().expect("the handler has run");
    assert_eq!([(); 2].map(|()| send(&inner, with_extensions(kept.clone()))), [200, 429], "after the response, too");
}

#[test]
fn a_request_kept_beyond_its_response_is_counted() {
    let limits = layer([Policy::new("api", Quota::per_hour(2))]);
    let inner = Router::new().route("/", get(|| async {})).layer(limits.clone());
    let kept = Arc::new(Mutex::new(None));
    let keep = {
        let kept = Arc::clone(&kept);
        async move |of: Request| *kept.lock().expect("no panic") = Some(of.extensions().clone())
    };
    let app = Router::new().route("/", get(keep)).layer(limits);
    assert_eq!(visit(&app, "/"), 200);
    let kept = kept.lock().expect("no panic").take().expect("the handler has run");
    assert_eq!([(); 2].map(|()| send(&inner, with_extensions(kept.clone()))), [200, 429]);
}

#[test]
fn a_policy_that_did_not_apply_outside_counts_inside() {
    let by_user = Policy::new("user", Quota::per_hour(2)).key(key::header("x-user")).missing_key(MissingKey::Skip);
    let limits = layer([Policy::new("api", Quota::per_hour(5)), by_user]);
    // Between the two, the user becomes known.
    let authenticate = middleware::map_request(|mut request: Request| async {
        request.headers_mut().insert("x-user", "ada".parse().expect("a value"));
        request
    });
    let inner = Router::new().route("/", get(|| async {})).layer(limits.clone());
    let app = inner.layer(authenticate).layer(limits);
    let logged = Logged::start();
    assert_eq!([(); 3].map(|()| visit(&app, "/")), [200, 200, 429]);
    assert_eq!(logged.log.count("TG010"), 1);
}

#[test]
fn layers_of_other_policies_around_each_other_count_a_request_each() {
    let (outer, inner) =
        (layer([Policy::new("outer", Quota::per_hour(10))]), layer([Policy::new("inner", Quota::per_hour(3))]));
    let app = pages().layer(inner).layer(outer);
    let logged = Logged::start();
    assert_eq!([(); 4].map(|()| visit(&app, "/")), [200, 200, 200, 429]);
    logged.none();
}
