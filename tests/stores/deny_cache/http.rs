//! What clients get over a socket.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderName, Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Policy, Quota, RateLimitLayer, RedisStore, Source, key};

use super::rig::S;
use crate::support::server::RedisServer;
use crate::support::time::at;

/// The status and the fields that tell when to come back.
fn told(response: &Response<Incoming>) -> (u16, [&str; 3]) {
    let field = |name: &'static str| {
        let value = response.headers().get(HeaderName::from_static(name));
        value.map_or("", |value| value.to_str().expect("ASCII"))
    };
    (response.status().as_u16(), [field("retry-after"), field("ratelimit"), field("x-source")])
}

async fn with_source(request: axum::extract::Request, next: axum::middleware::Next) -> axum::response::Response {
    let mut response = next.run(request).await;
    let source = response.extensions().get::<Decision>().map(Decision::source);
    let source = if source == Some(Source::DenyCache) { "cache" } else { "store" };
    response.headers_mut().insert("x-source", source.parse().expect("ASCII"));
    response
}

#[tokio::test]
async fn the_wait_a_client_is_told_counts_down_and_is_enough() {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let settings = RedisStore::builder().clock(clock.clone()).deny_cache_max_ttl(Duration::from_secs(60));
    let store = settings.timeout(Duration::from_secs(20)).connect(&server.url()).await.unwrap();
    let user = Policy::new("user", Quota::token_bucket(1, Duration::from_secs(10))).key(key::header("x-user"));
    let all = Policy::new("all", Quota::per_hour(100));
    let layer = RateLimitLayer::composite(store).policies([all, user]).expose_decisions();
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let app = app.layer(axum::middleware::from_fn(with_source));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(axum::serve(listener, app).into_future());

    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let rows = [
        (0, 200, ["", r#""user";r=0;t=10, "all";r=99;t=3564"#, "store"]),
        (S, 429, ["9", r#""user";r=0;t=9"#, "store"]),
        (4 * S - 1, 429, ["7", r#""user";r=0;t=7"#, "cache"]),
        (4 * S, 429, ["6", r#""user";r=0;t=6"#, "cache"]),
        (10 * S - 1, 429, ["1", r#""user";r=0;t=1"#, "cache"]),
        (10 * S, 200, ["", r#""user";r=0;t=10, "all";r=98;t=3528"#, "store"]),
    ];
    let before = server.scripts();
    for (now, status, fields) in rows {
        clock.set(at(now));
        let request = Request::get(format!("http://{address}/")).header("x-user", "ada").body(Body::empty()).unwrap();
        let response = tokio::time::timeout(Duration::from_secs(20), client.request(request)).await;
        let response = response.expect("it takes far too long").unwrap();
        assert_eq!(told(&response), (status, fields), "at {now}");
    }
    assert_eq!(server.scripts() - before, 3);
    serving.abort();
}
