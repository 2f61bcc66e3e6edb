//! Requests that this crate refuses inside of a layer: they are no failures of their clients, and no successes.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode};
use tollgate::policy::{Count, MissingKey};
use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, key};
use tollgate_shed::FleetShedLayer;
use tower::ServiceExt;

use crate::rig::{call, request};

const HOUR: Duration = Duration::from_secs(3_600);
const ONE: Quota = Quota::fixed_window(1, Duration::from_secs(7 * 24 * 3_600));
const FIVE: Quota = Quota::fixed_window(5, HOUR);

/// The status of a refusal by the layer outside.
const OUTSIDE: StatusCode = StatusCode::IM_A_TEAPOT;

async fn send(app: &Router, request: Request<String>) -> Response {
    app.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
}

fn hello() -> Router {
    Router::new().fallback(|| async { "hello" })
}

fn limited(policy: Policy) -> Router {
    hello().layer(RateLimitLayer::new(MemoryStore::new(), policy))
}

/// The response of a handler that checks one more policy.
async fn checks(handle: RateLimitHandle) -> Response {
    let policy = Policy::new("export", FIVE).cost(6);
    let decision = handle.check(&policy, &Key::new("global", "")).await.expect("the store decides");
    handle.denial(&decision).map(Body::from)
}

/// Servers that refuse all requests, each in another way, with the status of their responses.
fn refusing() -> Vec<(&'static str, u16, Router)> {
    let own = RateLimitLayer::new(MemoryStore::new(), Policy::new("own", ONE));
    let own = hello().layer(own.on_denied_http(|_, _| StatusCode::PAYMENT_REQUIRED.into_response().map(|_| "pay")));
    let fleet = hello().layer(FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(2), 0.5));
    vec![
        ("a policy", 429, limited(Policy::new("inside", ONE))),
        ("no key", 403, limited(Policy::new("tenant", FIVE).key(key::header("x-user")).missing_key(MissingKey::Deny))),
        ("a response of the application", 402, own),
        ("a fleet shedder", 503, fleet),
        ("a handler", 429, Router::new().fallback(checks)),
    ]
}

/// Two layers: one that bans after three responses that count, and one that admits five.
fn outside(count: &Count) -> [RateLimitLayer; 2] {
    let ban = Ban::new(3, HOUR, Duration::from_secs(60));
    let banning = Policy::new("banning", Quota::per_second(1_000)).ban_failures(ban, count.clone());
    [banning, Policy::new("counting", FIVE).count(count.clone())].map(|policy| {
        let layer = RateLimitLayer::new(MemoryStore::new(), policy.key(key::peer_ip()));
        layer.on_denied_http(|_, _| OUTSIDE.into_response().map(|_| "outside"))
    })
}

/// Sends more requests than the layer outside admits if they count; returns whether it admits another one.
async fn admits_more(row: &(&'static str, u16, Router), layer: RateLimitLayer, again: fn() -> Request<String>) -> bool {
    let (how, status, app) = row;
    // It takes the only unit, or the only slot.
    let _held = send(app, request()).await;
    let app = app.clone().layer(layer);
    for _ in 0..9 {
        send(&app, again()).await;
    }
    let last = send(&app, request()).await;
    assert!([*status, OUTSIDE.as_u16()].contains(&last.status().as_u16()), "{how}: {}", last.status());
    last.status() != OUTSIDE
}

#[tokio::test]
async fn what_is_refused_inside_is_neither_a_failure_nor_a_success_of_the_client() {
    for again in [request, call] {
        for row in refusing() {
            for layer in [outside(&Count::failures()), outside(&Count::successes())].concat() {
                assert!(admits_more(&row, layer, again).await, "{}", row.0);
            }
        }
    }
}

#[tokio::test]
async fn a_status_that_is_counted_by_name_counts_by_whomever_it_is() {
    for row in refusing() {
        let status = StatusCode::from_u16(row.1).expect("a status");
        let by_closure = Count::when(move |response| response.status == status);
        for layer in [outside(&Count::statuses([status])), outside(&by_closure)].concat() {
            assert!(!admits_more(&row, layer, request).await, "{}", row.0);
        }
    }
    // Where those inside refuse none, the failures of the service count.
    let inside = RateLimitLayer::new(MemoryStore::new(), Policy::new("inside", Quota::per_second(1_000)));
    let app = Router::new().fallback(|| async { StatusCode::UNAUTHORIZED }).layer(inside);
    for layer in outside(&Count::failures()) {
        assert!(!admits_more(&("nobody", 401, app.clone()), layer, request).await);
    }
}
