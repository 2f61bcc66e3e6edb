//! What someone new runs into, and what the crate says then.

use axum::Router;
use axum::routing::get;
use futures::FutureExt;
use tollgate::{Decision, Policy, Quota, RateLimitHandle, RedisStore};

use crate::rig::{layer, request, send, text};

#[test]
fn a_program_that_returns_an_error_prints_its_sentence() {
    let error = Policy::try_new("a name", Quota::per_hour(1)).expect_err("it has a space");
    assert_eq!(format!("{error:?}"), format!("{error:#}"));
}

#[test]
fn a_redis_url_with_a_parameter_that_would_be_passed_over_is_an_error() {
    let connecting = RedisStore::builder().lazy().connect("redis://127.0.0.1:1?db=3");
    let error = connecting.now_or_never().expect("it does not wait").expect_err("it would be database 0");
    assert!(error.is_invalid() && error.to_string().contains("redis://host:port/1"), "{error}");
}

#[test]
fn a_handler_outside_of_a_layer_says_that_its_route_is_in_none() {
    let app = Router::new()
        .route("/limited", get(async |_: Decision| "hello"))
        .layer(layer([Policy::new("api", Quota::per_hour(9))]))
        .route("/handle", get(async |_: RateLimitHandle| "hello"))
        .route("/decision", get(async |_: Decision| "hello"));
    let says = "in no RateLimitLayer";
    for (path, status, says) in [("/limited", 200, "hello"), ("/handle", 500, says), ("/decision", 500, says)] {
        let mut request = request();
        *request.uri_mut() = path.parse().expect("a path");
        let response = send(&app, request);
        assert_eq!(response.status(), status, "{path}");
        assert!(text(response).contains(says), "{path}");
    }
}
