//! TG008: a layer that is around a request once more, in a router within, counts by each policy once.

use std::sync::{Arc, Mutex};

use axum::extract::Request;
use axum::routing::get;
use axum::{Router, middleware};
use http::{Extensions, HeaderValue};
use tollgate::{Policy, Quota, key};

use super::{Logged, MANY, is_quiet, layer, pages, send, to};
use crate::rig::{self, line, text};

/// A request that a handler makes of the one that it has.
fn with_extensions(extensions: &Extensions) -> http::Request<String> {
    let mut request = to("/");
    *request.extensions_mut() = extensions.clone();
    request
}

#[test]
fn a_layer_that_is_twice_around_a_request_counts_it_once_and_is_one_warning() {
    let limits = layer([Policy::new("api", Quota::per_hour(10))]);
    let inner = Router::new().route("/", get(|| async {})).layer(limits.clone());
    // Another layer in between, and other settings of the same one.
    let between = layer([Policy::new("between", MANY)]).without_handle();
    let app = inner.clone().layer(between).layer(limits);
    let logged = Logged::start();
    for left in (0..10).rev() {
        let response = rig::send(&app, to("/"));
        assert_eq!(response.status(), 200);
        assert_eq!(line(response.headers(), "x-ratelimit-remaining"), left.to_string(), "one layer writes its headers");
    }
    logged.only("TG008", "wraps a request twice", || assert_eq!(send(&app, to("/")), 429));
    assert_eq!(send(&inner, to("/")), 429, "where it is alone, it limits");

    let [outer, inner] =
        [("outer", 10), ("inner", 3)].map(|(name, limit)| layer([Policy::new(name, Quota::per_hour(limit))]));
    let requests = [200, 200, 200, 429].map(|status| (to("/"), status));
    is_quiet(&pages().layer(inner).layer(outer), &requests);
}

#[test]
fn what_a_handler_makes_of_one_request_counts_as_often_as_it_comes_during_and_after_it() {
    let limits = layer([Policy::new("api", Quota::per_hour(5))]);
    let inner = Router::new().route("/", get(|| async {})).layer(limits.clone());
    let kept = Arc::new(Mutex::new(None));
    let batch = {
        let (inner, kept) = (inner.clone(), Arc::clone(&kept));
        async move |of: Request| {
            let statuses = [(); 4].map(|()| send(&inner, with_extensions(of.extensions())));
            *kept.lock().expect("no panic") = Some(of.extensions().clone());
            format!("{statuses:?}")
        }
    };
    let app = Router::new().route("/batch", get(batch)).layer(limits);
    let body = text(rig::send(&app, to("/batch")));
    assert_eq!(body, "[200, 200, 200, 200]", "the first was counted outside: one and three units");
    let kept = kept.lock().expect("no panic").take().expect("the handler has run");
    assert_eq!([(); 2].map(|()| send(&inner, with_extensions(&kept))), [200, 429], "after the response, too");
}

#[test]
fn a_policy_that_did_not_apply_outside_counts_inside() {
    let by_user = Policy::new("user", Quota::per_hour(2)).key(key::header("x-user"));
    let limits = layer([Policy::new("api", Quota::per_hour(5)), by_user]);
    // Between the two, the user becomes known.
    let authenticate = middleware::map_request(|mut request: Request| async {
        request.headers_mut().insert("x-user", HeaderValue::from_static("ada"));
        request
    });
    let app = Router::new().route("/", get(|| async {})).layer(limits.clone()).layer(authenticate).layer(limits);
    let logged = Logged::start();
    assert_eq!([(); 3].map(|()| send(&app, to("/"))), [200, 200, 429]);
    assert_eq!(logged.log.count("TG008"), 1);
}
