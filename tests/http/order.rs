//! The example `order`: what each layer sees of the others at its place, added in both ways.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::response::Response;
use futures::stream;
use http::Request;
use http::request::Builder;
use tollgate::response::exposed_headers;
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
use tower::ServiceExt;
use tracing::Level;

use crate::rig::{self, expect, line, text};
use crate::support::log::Log;
use crate::support::time::memory;

#[path = "../../examples/services/order/app.rs"]
mod example;

/// The service, its store, whose clock stands still, and how its layers are added.
type App = (Router, MemoryStore, &'static str);

fn apps() -> [App; 2] {
    let new = |name, build: fn(MemoryStore) -> Router| {
        let store = memory(&ManualClock::new());
        (build(store.clone()), store, name)
    };
    [new("router", example::by_router), new("builder", example::by_builder)]
}

fn report() -> Builder {
    Request::get("/api/report").header("authorization", "Bearer ada")
}

async fn send(router: &Router, request: Builder, body: impl Into<Body>) -> Response {
    let peer = ConnectInfo(SocketAddr::from(([192, 0, 2, 7], 4_711)));
    let request = request.header("origin", "https://a.example").extension(peer);
    router.clone().oneshot(request.body(body.into()).expect("a request")).await.expect("it does not fail")
}

/// Sends a request without a body.
async fn ask(router: &Router, request: Builder) -> Response {
    send(router, request, Body::empty()).await
}

async fn log_in(router: &Router, password: impl Into<Body>) -> Response {
    send(router, Request::post("/api/login"), password).await
}

/// What the client has left by its address, and as a user.
fn left(store: &MemoryStore) -> [u64; 2] {
    [("address", 30, Key::new("ip", "192.0.2.7")), ("user", 20, Key::new("user", "ada"))].map(|(name, limit, key)| {
        let limiter = Limiter::new(store.clone(), [Rule::new(name, Quota::per_minute(limit))]);
        rig::left(&limiter, &key)[0]
    })
}

/// Expects that a script of another origin may read the response, and each header of limits that it has.
#[track_caller]
fn is_readable(response: &Response, name: &str) {
    expect(response.headers(), &[("access-control-allow-origin", "*")]);
    let exposed: Vec<&str> = line(response.headers(), "access-control-expose-headers").split(',').collect();
    let sent = exposed_headers().into_iter().filter(|header| response.headers().contains_key(header));
    let sent: Vec<_> = sent.collect();
    assert!(sent.len() > 2 && sent.iter().all(|header| exposed.contains(&header.as_str())), "{name}: {sent:?}");
}

#[tokio::test]
async fn a_preflight_is_answered_by_cors_and_takes_nothing() {
    for (router, store, name) in apps() {
        let preflight = Request::options("/api/report")
            .header("access-control-request-method", "GET")
            .header("access-control-request-headers", "authorization");
        let answer = ask(&router, preflight).await;
        assert_eq!((answer.status().as_u16(), left(&store)), (200, [30, 20]), "{name}");
        expect(answer.headers(), &[("access-control-allow-headers", "authorization"), ("ratelimit", "")]);
    }
}

#[tokio::test]
async fn a_script_reads_the_limits_of_a_200_and_of_a_429_which_is_traced_and_compressed() {
    for (router, store, name) in apps() {
        let served = ask(&router, report()).await;
        assert_eq!(served.status(), 200, "{name}");
        is_readable(&served, name);
        while left(&store)[0] > 0 {
            ask(&router, report()).await;
        }
        let log = Log::default();
        let noting = log.note(Level::DEBUG);
        let refused = ask(&router, report().header("accept-encoding", "gzip")).await;
        drop(noting);
        assert_eq!(refused.status(), 429, "{name}");
        expect(refused.headers(), &[("retry-after", "2"), ("content-encoding", "gzip")]);
        is_readable(&refused, name);
        let traced = log.lines("finished processing request");
        assert!(traced.len() == 1 && traced[0].contains("status=429"), "{name}: {}", log.text());
    }
}

#[tokio::test]
async fn the_address_is_counted_before_authentication_and_the_user_after() {
    for (router, store, name) in apps() {
        assert_eq!(ask(&router, Request::get("/api/report")).await.status(), 401, "{name}");
        assert_eq!(left(&store), [29, 20], "{name}: a 401");
        for _ in 0..20 {
            assert_eq!(ask(&router, report()).await.status(), 200, "{name}");
        }
        assert_eq!(left(&store), [9, 0], "{name}: 20 reports");
        let refused = ask(&router, report()).await;
        assert_eq!((refused.status().as_u16(), left(&store)), (429, [8, 0]), "{name}");
        assert!(text(refused).ends_with(r#""violated-policies":["user"]}"#), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_a_response_that_counts() {
    for (router, _, name) in apps() {
        // The handler waits for a body that never comes.
        let never = Body::from_stream(stream::pending::<Result<Bytes, String>>());
        for (password, status, left) in [
            (Body::from("correct horse"), 200, r#""login";r=5"#),
            (never, 408, r#""login";r=4"#),
            (Body::from("correct horse"), 200, r#""login";r=4"#),
        ] {
            let answer = log_in(&router, password).await;
            assert_eq!(answer.status(), status, "{name}");
            assert!(line(answer.headers(), "ratelimit").contains(left), "{name}: {left}");
            is_readable(&answer, name);
        }
    }
}

#[tokio::test]
async fn a_route_of_a_nested_router_is_limited_by_its_whole_template_but_not_by_a_layer_around_the_router() {
    let wrong = async |router: &Router| log_in(router, "hunter2").await.status().as_u16();
    for (router, _, name) in apps() {
        for status in [401, 401, 401, 401, 401, 429, 429] {
            assert_eq!(wrong(&router).await, status, "{name}");
        }
        assert_eq!(ask(&router, report()).await.status(), 200, "{name}: another route");
    }
    let around = example::around(memory(&ManualClock::new()));
    for _ in 0..7 {
        assert_eq!(wrong(&around).await, 401, "the policy of the route never applies");
    }
    let limits = log_in(&around, "hunter2").await.headers().get("ratelimit").cloned().expect("the address counts");
    assert!(!limits.to_str().expect("ASCII").contains("login"), "{limits:?}");
}

#[tokio::test]
async fn a_setting_switches_the_limits_off() {
    for (limits, is_limited) in [("", true), ("off", false)] {
        let router = example::by_setting(memory(&ManualClock::new()), limits);
        for sent in 1..=31 {
            let answer = ask(&router, report()).await;
            assert_eq!(answer.status(), if is_limited && sent > 30 { 429 } else { 200 }, "{limits:?} {sent}");
            assert_eq!(answer.headers().contains_key("ratelimit"), is_limited, "{limits:?}");
        }
    }
}

#[test]
fn the_page_shows_the_code_of_the_example() {
    let (page, source) = (include_str!("../../docs/order.md"), include_str!("../../examples/services/order/app.rs"));
    let shown: Vec<&str> = page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(shown.len(), 4);
    for code in shown {
        assert!(source.contains(code), "the example does not contain\n{code}");
    }
}
