//! Why a server cannot be used: each cause has a line of its own, in the error of a store that connects, and in the log
//! of a layer whose store connects later.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::store::{BreakerState, RedisStoreBuilder};
use tollgate::{Policy, Quota, RateLimitLayer, RedisStore};
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

use crate::support::log::Log;
use crate::support::server::RedisServer;

fn settings() -> RedisStoreBuilder {
    RedisStore::builder().connect_timeout(Duration::from_secs(1)).timeout(Duration::from_secs(2))
}

/// The error of a store that connects.
async fn error(settings: RedisStoreBuilder, url: &str) -> String {
    format!("{:#}", settings.connect(url).await.expect_err("it cannot be connected"))
}

/// The line of a layer whose circuit breaker opens.
async fn line(settings: RedisStoreBuilder, url: &str) -> String {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let store = settings.lazy().connect(url).await.expect("the URL is one");
    let layer = RateLimitLayer::new(store, Policy::new("all", Quota::per_hour(100)));
    let serve = |_: Request<String>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) };
    for _ in 0..50 {
        let response = layer.layer(service_fn(serve)).oneshot(Request::new(String::new())).await.expect("a response");
        assert_eq!(response.status(), 200, "the fallback decides");
        if layer.clone().live().breaker_state() == BreakerState::Open {
            break;
        }
    }
    let lines = log.lines("code=\"store_unavailable\"");
    assert_eq!(lines.len(), 1, "{}", log.text());
    lines[0].clone()
}

/// Checks that both name the cause, and neither a secret.
async fn assert_named(settings: impl Fn() -> RedisStoreBuilder, url: &str, cause: &str) {
    for text in [error(settings(), url).await, line(settings(), url).await] {
        assert!(text.contains(cause), "{text:?} does not name {cause:?}");
        assert!(!text.contains("staple") && !text.contains(char::is_control), "{text:?}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_named() {
    let server = RedisServer::start_with_password("horse");
    assert_named(settings, &server.url().replace("horse", "staple"), "WRONGPASS").await;
}

#[tokio::test]
async fn a_missing_password_is_named() {
    let server = RedisServer::start_with_password("horse");
    assert_named(settings, &server.url().replace(":horse@", ""), "NOAUTH").await;
}

#[tokio::test]
async fn a_refused_connection_is_named() {
    let mut server = RedisServer::start();
    server.kill();
    assert_named(settings, &server.url(), "Connection refused").await;
}

#[tokio::test]
async fn an_unknown_host_is_named() {
    assert_named(settings, "redis://no-such-host.invalid:6379", "failed to lookup address").await;
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_port_that_does_not_speak_tls_is_named() {
    let server = RedisServer::start();
    let url = server.url().replace("redis://", "rediss://");
    assert_named(settings, &url, "only one side may use TLS").await;
}
