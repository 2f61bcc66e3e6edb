//! The server under test, built as the example server builds its own.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::pin::pin;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::request::Parts;
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{Decision, Key, Limiter, Quota, RateLimitLayer, RedisStore, Source, key};
use tollgate_shed::Shed;

/// The header that users are told apart by.
pub(crate) const USER: &str = "x-api-key";
/// The header that tells who decided.
pub(crate) const SOURCE: &str = "x-source";
/// The header that tells which shedder refused.
pub(crate) const SHED: &str = "x-shed";

/// The header of critical requests.
pub(crate) const PRIORITY: &str = "x-priority";

/// What is outside the layer.
pub(crate) const FREE: &str = "/healthz";

/// Keeps its thread, as one that hashes a password does.
pub(crate) const BLOCKS: &str = "/blocks";
/// Polls two decisions once, and leaves them for something else.
pub(crate) const LEAVES: &str = "/leaves";
/// How long.
pub(crate) const SHORT: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_millis(600);

/// Units that a user may take at once.
pub(crate) const BURST: u32 = 50;
/// Units that a user gets back in a second.
pub(crate) const REFILL: u32 = 100;
/// The fallback admits a share of both.
pub(crate) const INSTANCES: u32 = 2;

const USERS: Quota = Quota::per_second(REFILL as u64).burst(BURST as u64);
/// A limit that nothing here comes near.
const AMPLE: Quota = Quota::per_second(1_000_000);

/// Serves in the background; returns the address.
pub(crate) async fn serve(store: RedisStore) -> SocketAddr {
    let layer = RateLimitLayer::composite(store)
        .ip(AMPLE)
        .user(USERS, key::header(USER))
        .route(AMPLE)
        .instances(NonZeroU32::new(INSTANCES).expect("there are some"))
        .expose_decisions()
        .live();
    let limited = Router::new()
        .route("/", get(async || "hello\n"))
        .route(BLOCKS, get(async || thread::sleep(SHORT)))
        .route(LEAVES, get(leave))
        .with_state(layer.limiter())
        .layer(layer)
        .layer(map_response(tell_source));
    listen(limited.route(FREE, get(async || "ok\n"))).await
}

/// Serves in the background; returns the address.
pub(crate) async fn listen(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// Handlers that block are called one at a time, and are to be served.
pub(crate) fn is_critical(parts: &Parts) -> bool {
    parts.uri.path() == BLOCKS || parts.headers.get(PRIORITY).is_some_and(|value| value == "high")
}

async fn leave(State(limiter): State<Limiter>) {
    let keys = ["first", "second"].map(|name| Key::hashed(&format!("header {USER}"), name));
    let (mut first, mut second) = (pin!(limiter.check(&keys[0])), pin!(limiter.check(&keys[1])));
    let _ = (futures::poll!(first.as_mut()), futures::poll!(second.as_mut()));
    tokio::time::sleep(LONG).await;
}

/// Tells clients who decided, and who shed.
pub(crate) async fn tell_source(mut response: Response) -> Response {
    let source = response.extensions().get().map(Decision::source);
    if let Some(name) = source.and_then(name) {
        response.headers_mut().insert(SOURCE, HeaderValue::from_static(name));
    }
    let shed = response.extensions().get::<Shed>().map(|shed| shed.name() == "worker");
    if let Some(by_worker) = shed {
        let name = if by_worker { "worker" } else { "fleet" };
        response.headers_mut().insert(SHED, HeaderValue::from_static(name));
    }
    response
}

fn name(source: Source) -> Option<&'static str> {
    match source {
        Source::Store => Some("store"),
        Source::DenyCache => Some("deny-cache"),
        Source::Fallback => Some("fallback"),
        Source::Ratio => Some("ratio"),
        _ => None,
    }
}
