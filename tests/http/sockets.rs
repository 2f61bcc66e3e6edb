//! axum over a real socket: what clients get, and who is counted.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Policy, Quota, RateLimitLayer, key};

use crate::rig::{self, Text, line, request, text, with};
use crate::support::soon::soon;
use crate::support::time::memory;

/// An app, served on a port of its own until it is stopped or dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Server {
    pub(super) async fn start(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback device");
        let address = listener.local_addr().expect("it is bound");
        let (stop, stopped) = oneshot::channel();
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        let server = axum::serve(listener, service).with_graceful_shutdown(stopped.map(drop));
        Self { address, stop, task: tokio::spawn(server.into_future()) }
    }

    pub(super) fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Waits for the end of its connections.
    pub(super) async fn stop(self) {
        self.stop.send(()).expect("the server runs");
        soon(self.task).await.expect("the server does not panic").expect("the server ends well");
    }
}

/// A client with connections of its own, from an address of its own.
pub(super) struct Http {
    client: Client<HttpConnector, Text>,
}

impl Http {
    pub(super) fn new() -> Self {
        Self::from("127.0.0.1")
    }

    pub(super) fn from(address: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_local_address(Some(address.parse().expect("an address")));
        Self { client: Client::builder(TokioExecutor::new()).build(connector) }
    }

    /// The response to a request, read to its end.
    pub(super) async fn request(&self, request: Request<Text>) -> Response<Bytes> {
        let (parts, body) = soon(self.client.request(request)).await.expect("a response").into_parts();
        Response::from_parts(parts, soon(body.collect()).await.expect("a body").to_bytes())
    }

    pub(super) async fn send(&self, method: Method, uri: String) -> Response<Bytes> {
        self.request(Request::builder().method(method).uri(uri).body(Text::default()).expect("a request")).await
    }

    pub(super) async fn get(&self, uri: String) -> Response<Bytes> {
        self.send(Method::GET, uri).await
    }
}

fn number(response: &Response<Bytes>, name: &str) -> u64 {
    line(response.headers(), name).parse().expect("a number")
}

fn composite() -> RateLimitLayer {
    rig::layer([])
}

fn limited(layer: RateLimitLayer) -> Router {
    Router::new().route("/", get(|| async { "hello" })).layer(layer)
}

#[test]
fn the_address_behind_proxies_counts_whether_the_layer_is_told_of_them_before_its_limit_or_after() {
    let client = || key::client_ip().trusted_proxies(["10.0.0.0/8"]);
    let quota = Quota::per_hour(1);
    let replaced = composite().client(key::client_ip()).ip(quota).client(client());
    for layer in [composite().client(client()).ip(quota), composite().ip(quota).client(client()), replaced] {
        let app = limited(layer);
        for (address, status) in [("192.0.2.1", 200), ("192.0.2.1", 429), ("192.0.2.2", 200), ("192.0.2.2", 429)] {
            let request = with(request(), "x-forwarded-for", address);
            assert_eq!(rig::send(&app, request).status(), status, "{address}");
        }
    }
}

#[tokio::test]
async fn clients_are_served_until_the_limit_and_again_after_the_wait_they_are_told() {
    let clock = ManualClock::new();
    let quota = Quota::token_bucket(3, Duration::from_millis(7_300));
    let server = Server::start(limited(RateLimitLayer::composite(memory(&clock)).ip(quota))).await;
    let client = Http::new();
    for left in [2, 1, 0] {
        let answer = client.get(server.uri("/")).await;
        assert_eq!((answer.status(), number(&answer, "x-ratelimit-remaining")), (StatusCode::OK, left));
        assert_eq!(answer.body(), "hello");
    }
    for _ in 0..5 {
        let refusal = client.get(server.uri("/")).await;
        assert_eq!(refusal.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(number(&refusal, "content-length"), refusal.body().len() as u64);
        let wait = number(&refusal, "retry-after");
        clock.advance(Duration::from_secs(wait - 1));
        assert_eq!(client.get(server.uri("/")).await.status(), 429, "told to wait a second too long");
        clock.advance(Duration::from_secs(1));
        assert_eq!(client.get(server.uri("/")).await.status(), 200, "told to come back too early");
        while client.get(server.uri("/")).await.status() == 200 {}
    }
    server.stop().await;
}

#[tokio::test]
async fn each_address_has_a_limit_of_its_own_over_all_its_connections() {
    let server = Server::start(limited(composite().ip(Quota::per_hour(2)))).await;
    for address in ["127.0.0.1", "127.0.0.2", "127.1.2.3"] {
        for status in [200, 200, 429] {
            let fresh = Http::from(address);
            assert_eq!(fresh.get(server.uri("/")).await.status(), status, "{address}");
        }
    }
}

#[test]
fn all_paths_of_a_template_share_its_counter() {
    let nested = Router::new().route("/items/{id}", get(|| async {}));
    let routes = Router::new()
        .route("/users/{id}", get(|| async {}).post(|| async {}))
        .route("/users/{id}/posts", get(|| async {}))
        .nest("/api", nested);
    let app = routes.layer(rig::layer([Policy::new("route", Quota::per_hour(2)).key(key::route())]));
    for (line, status) in [
        ("GET /users/1", 200),
        ("GET /users/2", 200),
        ("GET /users/3", 429),
        ("POST /users/9?x=2", 429),
        ("GET /users/3/posts", 200),
        ("GET /api/items/1", 200),
        ("GET /api/items/2", 200),
        ("GET /api/items/3", 429),
        // Those that match none share one.
        ("GET /a", 404),
        ("GET /b/c", 404),
        ("GET /d", 429),
    ] {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let request = Request::builder().method(method).uri(path).body(String::new()).expect("a request");
        assert_eq!(rig::send(&app, request).status(), status, "{line}");
    }
}

#[test]
fn a_handler_can_read_the_decision() {
    let handler = get(|decision: Decision| async move {
        let left = decision.outcomes().iter().map(|outcome| (outcome.policy().to_owned(), outcome.remaining()));
        format!("{:?}", left.collect::<Vec<_>>())
    });
    let app = Router::new().route("/", handler).layer(composite().ip(Quota::per_hour(9)).route(Quota::per_hour(5)));
    assert_eq!(text(rig::send(&app, request())), r#"[("ip", 8), ("route", 4)]"#);
}
