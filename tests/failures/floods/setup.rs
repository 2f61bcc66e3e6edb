//! Warnings of a set-up, each of which is one line.

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use http::Request;
use tollgate::response::ActualCost;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule, key};
use tower::Layer;

use super::{FLOOD, Row, app, assert_bounded, flood, request, run, send, send_twice};
use crate::rig::MANY;

pub(super) const ROWS: [Row; 8] = [
    ("TG001", || flood(setup().key(key::header("x-api-key")))),
    ("TG002", || run(without_a_route())),
    ("TG003", || run(forwarded())),
    ("TG004", || run(without_a_peer())),
    ("TG006", || run(send_twice(RateLimitLayer::composite(MemoryStore::new())))),
    ("TG007", || run(unmetered_costs())),
    ("TG008", || run(checks_of_slots())),
    ("TG010", || run(twice())),
];

#[test]
fn a_flood_of_what_a_wrong_set_up_shows_is_few_lines() {
    assert_bounded(&ROWS);
}

fn setup() -> Policy {
    Policy::new("setup", MANY)
}

fn layer(policy: Policy) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), policy)
}

async fn without_a_route() {
    let routes = Router::new().route("/", get(|| async {}));
    let outside = Router::new().fallback_service(layer(setup().routes(["/"])).layer(routes));
    send(outside, (0..FLOOD).map(|_| request("ada"))).await;
}

async fn forwarded() {
    let refusing = layer(setup().key(key::client_ip())).policy(Policy::new("all", Quota::per_hour(1)));
    let forwarded = |number: usize| {
        let mut request = request("ada");
        let address = format!("203.0.113.{}", number % 250);
        request.headers_mut().insert("x-forwarded-for", address.parse().expect("a header value"));
        request
    };
    send(app(&refusing), (0..FLOOD).map(forwarded)).await;
}

async fn without_a_peer() {
    send(app(&layer(setup().key(key::client_ip()))), (0..FLOOD).map(|_| Request::default())).await;
}

async fn unmetered_costs() {
    let costly = || async {
        let mut response = ().into_response();
        response.extensions_mut().insert(ActualCost(50));
        response
    };
    send(Router::new().route("/", get(costly)).layer(layer(setup())), (0..FLOOD).map(|_| request("ada"))).await;
}

async fn twice() {
    let layer = layer(setup());
    send(app(&layer).layer(layer), (0..FLOOD).map(|_| request("ada"))).await;
}

async fn checks_of_slots() {
    let limiter = Limiter::new(MemoryStore::new(), [Rule::new("setup", Quota::concurrency(10))]);
    for number in 0..FLOOD {
        let _ = limiter.check(&Key::new("user", number.to_string())).await.expect("memory never fails");
    }
}
