//! Warnings of a set-up, each of which is one line.

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use http::Request;
use tollgate::response::ActualCost;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule, key};

use super::{Cause, FLOOD, Row, assert_bounded, request, run, send, send_many};
use crate::rig::MANY;

pub(super) const ROWS: [Row; 8] = [
    ("TG001", Cause::Flood(|| run(without_a_key()))),
    ("TG002", Cause::Flood(|| run(without_a_route()))),
    ("TG003", Cause::Flood(|| run(forwarded()))),
    ("TG004", Cause::Flood(|| run(without_a_peer()))),
    ("TG006", Cause::Flood(|| run(without_policies()))),
    ("TG007", Cause::Flood(|| run(unmetered_costs()))),
    ("TG008", Cause::Flood(|| run(checks_of_slots()))),
    ("TG010", Cause::Flood(|| run(twice()))),
];

#[test]
fn a_flood_of_what_a_wrong_set_up_shows_is_few_lines() {
    assert_bounded(&ROWS);
}

fn by(key: impl key::KeyExtractor) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), Policy::new("setup", MANY).key(key))
}

async fn without_a_key() {
    send_many(&by(key::header("x-api-key"))).await;
}

async fn without_a_route() {
    let policy = Policy::new("setup", MANY).routes(["/"]);
    let layer = RateLimitLayer::new(MemoryStore::new(), policy);
    let outside =
        Router::new().fallback_service(tower::Layer::layer(&layer, Router::new().route("/", get(|| async {}))));
    send(&outside, (0..FLOOD).map(|_| request("ada"))).await;
}

async fn forwarded() {
    let refusing = by(key::client_ip()).policy(Policy::new("all", Quota::per_hour(1)));
    let app = super::app(&refusing);
    let forwarded = |number: usize| {
        let mut request = request("ada");
        let address = format!("203.0.113.{}", number % 250);
        request.headers_mut().insert("x-forwarded-for", address.parse().expect("a header value"));
        request
    };
    send(&app, (0..FLOOD).map(forwarded)).await;
}

async fn without_a_peer() {
    let app = super::app(&by(key::client_ip()));
    send(&app, (0..FLOOD).map(|_| Request::default())).await;
}

async fn without_policies() {
    send_many(&RateLimitLayer::composite(MemoryStore::new())).await;
}

async fn unmetered_costs() {
    let costly = || async {
        let mut response = ().into_response();
        response.extensions_mut().insert(ActualCost(50));
        response
    };
    let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("setup", MANY));
    send(&Router::new().route("/", get(costly)).layer(layer), (0..FLOOD).map(|_| request("ada"))).await;
}

async fn twice() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("setup", MANY));
    send(&super::app(&layer).layer(layer.clone()), (0..FLOOD).map(|_| request("ada"))).await;
}

async fn checks_of_slots() {
    let limiter = Limiter::new(MemoryStore::new(), [Rule::new("setup", Quota::concurrency(10))]);
    for number in 0..FLOOD {
        let _ = limiter.check(&Key::new("user", number.to_string())).await.expect("memory never fails");
    }
}
