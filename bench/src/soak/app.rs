//! What is served: limits of every way in which a request takes and gives back units.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::{get, post};
use bytes::Bytes;
use futures::stream;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tollgate::policy::Count;
use tollgate::{Policy, Quota, RateLimitLayer, RedisStore, key};

/// What users are told apart by.
pub(super) const USER: &str = "x-api-key";
/// Where the server tells how many tasks it has.
pub(super) const TASKS: &str = "/tasks";

const AMPLE: Quota = Quota::per_second(1_000_000);
const SLOW: Duration = Duration::from_millis(300);
/// Of a streamed body, its parts and the time between them.
const PARTS: u32 = 10;
const PART: Duration = Duration::from_millis(50);

/// Serves until standard input ends. The port is printed first.
pub(super) async fn serve(redis: &str, leaky: bool) {
    let store = RedisStore::connect(redis).await.expect("Redis answers");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    println!("{}", listener.local_addr().expect("bound").port());
    // Without this the server would outlive a parent that was killed.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let service = app(store, leaky).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await.expect("serves");
}

fn app(store: RedisStore, leaky: bool) -> Router {
    Router::new()
        .route("/", get(async move || hello(leaky)))
        .route("/login", post(|_: Bytes| async { login() }))
        .route("/slow", get(slow))
        .route("/queued", get(|| async { "served" }))
        .route("/stream", get(|| async { parts() }))
        .layer(limits(store))
        .route(TASKS, get(|| async { Handle::current().metrics().num_alive_tasks().to_string() }))
}

fn limits(store: RedisStore) -> RateLimitLayer {
    let seconds = Duration::from_secs;
    let logins = Policy::new("login", Quota::sliding_log(5, seconds(5))).key(key::header(USER));
    let queue = Policy::new("queue", Quota::leaky_bucket(20, seconds(1)).queue(10)).key(key::header(USER));
    RateLimitLayer::composite(store)
        .ip(AMPLE)
        .user(Quota::token_bucket(100, seconds(5)).burst(20), key::header(USER))
        .route(Quota::fixed_window(1_000_000, seconds(1)))
        .policy(logins.routes(["/login"]).count(Count::failures()))
        .policy(queue.routes(["/queued"]))
}

fn hello(leaky: bool) -> &'static str {
    if leaky {
        Box::leak(vec![1_u8; 1_024].into_boxed_slice());
        tokio::spawn(std::future::pending::<()>());
    }
    "hello"
}

/// Every other one fails, and counts.
fn login() -> StatusCode {
    if fastrand::bool() { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
}

async fn slow() -> &'static str {
    sleep(SLOW).await;
    "at last"
}

fn parts() -> Body {
    Body::from_stream(stream::unfold(0, async |part| {
        sleep(PART).await;
        (part < PARTS).then(|| (Ok::<_, std::io::Error>(Bytes::from_static(b"part ")), part + 1))
    }))
}
