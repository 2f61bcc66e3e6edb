//! What someone new runs into: what the crate says then, and what a client of the server sees.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse, Redirect};
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::{Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::response::ActualCost;
use tollgate::{Decision, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, RedisStore};
use tower::ServiceExt;

use crate::support::soon::soon;

const HOURLY: Quota = Quota::per_hour(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn policy(name: &str) -> Policy {
    Policy::new(name, HOURLY)
}

#[test]
fn a_program_that_returns_an_error_prints_its_sentence() {
    let error = Policy::try_new("a name", HOURLY).expect_err("it has a space");
    assert_eq!(format!("{error:?}"), format!("{error:#}"));
}

#[test]
fn a_redis_url_with_a_parameter_that_would_be_passed_over_is_an_error() {
    use futures::FutureExt;

    let error = RedisStore::builder()
        .lazy()
        .connect("redis://127.0.0.1:1?db=3")
        .now_or_never()
        .expect("it does not wait")
        .expect_err("it would be database 0");
    assert!(error.is_invalid() && error.to_string().contains("redis://host:port/1"), "{error}");
}

#[tokio::test]
async fn a_handler_outside_of_a_layer_says_that_its_route_is_in_none() {
    let limited = Router::new().route("/limited", get(async |_: Decision| "hello"));
    let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_hour(9)));
    let app = limited
        .layer(layer)
        .route("/handle", get(async |_: RateLimitHandle| "hello"))
        .route("/decision", get(async |_: Decision| "hello"));
    for (path, status, says) in [
        ("/limited", StatusCode::OK, "hello"),
        ("/handle", StatusCode::INTERNAL_SERVER_ERROR, "in no RateLimitLayer"),
        ("/decision", StatusCode::INTERNAL_SERVER_ERROR, "in no RateLimitLayer"),
    ] {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = app.clone().oneshot(request).await.expect("a response");
        assert_eq!(response.status(), status, "{path}");
        let body = to_bytes(response.into_body(), 1_000).await.expect("a body");
        assert!(String::from_utf8_lossy(&body).contains(says), "{path}: {body:?}");
    }
}

#[tokio::test]
async fn a_form_that_redirects_either_way_counts_wrong_passwords_by_the_real_cost() {
    let policy = Policy::new("login", Quota::sliding_log(5, HOUR)).metered();
    let login = async |body: String| match body.as_str() {
        "right" => (Extension(ActualCost(0)), Redirect::to("/home")).into_response(),
        _ => Redirect::to("/login").into_response(),
    };
    let app = Router::new().route("/login", post(login)).layer(RateLimitLayer::new(MemoryStore::new(), policy));
    let status = async |password: &'static str| {
        let request = Request::post("/login").body(Body::from(password)).expect("a request");
        app.clone().oneshot(request).await.expect("a response").status().as_u16()
    };
    for password in ["right"; 20].into_iter().chain(["wrong"; 5]) {
        assert_eq!(status(password).await, 303, "{password}");
    }
    assert_eq!(status("wrong").await, 429);
}

/// Serves `POST /` with one request an hour, which a first request has taken.
async fn used_up() -> SocketAddr {
    let layer = RateLimitLayer::new(MemoryStore::new(), policy("uploads"));
    let app = Router::new().route("/", post(async || "hello")).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback device");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    assert!(exchange(address, "content-length: 0", b"").await.starts_with("http/1.1 200"));
    address
}

/// Sends a POST with a body, and returns the head of the response in lower case.
async fn exchange(address: SocketAddr, header: &str, body: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).await.expect("it listens");
    let head = format!("POST / HTTP/1.1\r\nhost: localhost\r\n{header}\r\n\r\n");
    socket.write_all(&[head.as_bytes(), body].concat()).await.expect("it is read");
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut bytes = [0; 1_024];
        let length = soon(socket.read(&mut bytes)).await.expect("a response");
        assert!(length > 0, "the connection ended within {head:?}");
        head.extend_from_slice(&bytes[..length]);
    }
    String::from_utf8_lossy(&head).to_lowercase()
}

#[tokio::test]
async fn a_refusal_of_a_body_that_may_not_be_read_to_its_end_says_that_the_connection_closes() {
    let address = used_up().await;
    for (header, body, closes) in [
        ("content-length: 0", vec![], false),
        ("content-length: 100", vec![b'x'; 100], false),
        ("content-length: 60000", vec![b'x'; 60_000], false),
        ("content-length: 20000000", vec![b'x'; 60_000], true),
        ("transfer-encoding: chunked", b"4\r\nbody\r\n0\r\n\r\n".to_vec(), true),
        // The body is not sent before the server asks for it, which it does not.
        ("content-length: 60000\r\nexpect: 100-continue", vec![], true),
    ] {
        let head = exchange(address, header, &body).await;
        assert!(head.starts_with("http/1.1 429"), "{header}: {head}");
        assert_eq!(head.contains("connection: close"), closes, "{header}: {head}");
    }
}
