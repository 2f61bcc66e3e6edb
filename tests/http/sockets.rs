//! axum over a real socket: what clients get, who is counted, and how many are admitted at once.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path};
use axum::routing::{get, post};
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tollgate::key;
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Policy, Quota, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

use crate::support::alone::alone;
use crate::support::log::Log;
use crate::support::soon::soon;
use crate::support::time::memory;

/// An app, served on a port of its own until it is stopped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Server {
    pub(super) async fn start(app: Router) -> Self {
        Self::bind("127.0.0.1:0", app).await.expect("a port of the loopback device")
    }

    async fn bind(address: &str, app: Router) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        let server = axum::serve(listener, service).with_graceful_shutdown(stopped.map(drop));
        Ok(Self { address, stop, task: tokio::spawn(server.into_future()) })
    }

    pub(super) fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) async fn stop(self) {
        self.stop.send(()).expect("the server runs");
        soon(self.task).await.expect("the server does not panic").expect("the server ends well");
    }
}

/// A client with connections of its own, from an address of its own.
pub(super) struct Http {
    client: Client<HttpConnector, Empty<Bytes>>,
}

/// A response that was read to its end.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Http {
    fn new() -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http() }
    }

    pub(super) fn from(address: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_local_address(Some(address.parse().expect("an address")));
        Self { client: Client::builder(TokioExecutor::new()).build(connector) }
    }

    pub(super) async fn send(&self, method: Method, uri: String) -> Answer {
        let request = Request::builder().method(method).uri(uri).body(Empty::new()).expect("a request");
        let (parts, body) = soon(self.client.request(request)).await.expect("a response").into_parts();
        let body = soon(body.collect()).await.expect("a body").to_bytes();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&self, uri: String) -> Answer {
        self.send(Method::GET, uri).await
    }
}

impl Answer {
    #[track_caller]
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().expect("ASCII")
    }

    #[track_caller]
    fn number(&self, name: &str) -> u64 {
        self.header(name).parse().expect("a number")
    }
}

fn limited(layer: RateLimitLayer) -> Router {
    Router::new().route("/", get(|| async { "hello" })).layer(layer)
}

/// An app whose `/` is limited to so many per hour, for each peer.
fn per_peer(limit: u64) -> Router {
    limited(RateLimitLayer::composite(memory(&ManualClock::new())).ip(Quota::per_hour(limit)))
}

#[tokio::test]
async fn the_address_behind_proxies_counts_whether_the_layer_is_told_of_them_before_its_limit_or_after() {
    let composite = || RateLimitLayer::composite(memory(&ManualClock::new()));
    let client = || key::client_ip().trusted_proxies(["127.0.0.0/8"]);
    let quota = Quota::per_hour(1);
    let replaced = composite().client(key::client_ip()).ip(quota).client(client());
    for layer in [composite().client(client()).ip(quota), composite().ip(quota).client(client()), replaced] {
        let app = limited(layer);
        for (address, status) in [("192.0.2.1", 200), ("192.0.2.1", 429), ("192.0.2.2", 200), ("192.0.2.2", 429)] {
            let request = Request::builder().header("x-forwarded-for", address);
            let request = request.extension(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 9))));
            let request = request.body(Body::empty()).expect("a request");
            assert_eq!(app.clone().oneshot(request).await.expect("a response").status(), status, "{address}");
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
        assert_eq!((answer.status, answer.number("x-ratelimit-remaining")), (StatusCode::OK, left));
        assert_eq!(answer.body, "hello");
    }
    for _ in 0..5 {
        let refusal = client.get(server.uri("/")).await;
        assert_eq!(refusal.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refusal.header("content-type"), "application/problem+json");
        assert_eq!(refusal.number("content-length"), refusal.body.len() as u64);
        let wait = refusal.number("retry-after");
        assert!(wait >= 1);
        clock.advance(Duration::from_secs(wait - 1));
        assert_eq!(client.get(server.uri("/")).await.status, 429, "told to wait a second too long");
        clock.advance(Duration::from_secs(1));
        assert_eq!(client.get(server.uri("/")).await.status, 200, "told to come back too early");
        while client.get(server.uri("/")).await.status == 200 {}
    }
    server.stop().await;
}

#[tokio::test]
async fn a_refused_head_request_has_the_headers_and_no_body() {
    let server = Server::start(per_peer(1)).await;
    let client = Http::new();
    assert_eq!(client.send(Method::HEAD, server.uri("/")).await.status, 200);
    let refusal = client.send(Method::HEAD, server.uri("/")).await;
    assert_eq!((refusal.status, refusal.number("retry-after")), (StatusCode::TOO_MANY_REQUESTS, 3_600));
    assert!(refusal.body.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn each_address_has_a_limit_of_its_own_over_all_its_connections() {
    let server = Server::start(per_peer(2)).await;
    for address in ["127.0.0.1", "127.0.0.2", "127.1.2.3"] {
        for status in [200, 200, 429] {
            let fresh = Http::from(address);
            assert_eq!(fresh.get(server.uri("/")).await.status, status, "{address}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn clients_over_ipv6_are_limited_too() {
    let server = match Server::bind("[::1]:0", per_peer(1)).await {
        Ok(server) => server,
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            eprintln!("this machine has no [::1]: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let client = Http::new();
    assert_eq!(client.get(server.uri("/")).await.status, 200);
    assert_eq!(client.get(server.uri("/")).await.status, 429);
    server.stop().await;
}

/// Whether requests of two addresses count as one client's.
#[track_caller]
fn same(extractor: key::PeerIp, one: &str, other: &str) -> bool {
    let policy = Policy::new("ip", Quota::per_hour(1)).key(extractor);
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), policy);
    let service =
        layer.layer(service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::<Body>::default()) }));
    let status = |address: &str| {
        let mut request = Request::new(Body::empty());
        let peer = SocketAddr::new(address.parse::<IpAddr>().expect("an address"), 40_000);
        request.extensions_mut().insert(ConnectInfo(peer));
        service.clone().oneshot(request).now_or_never().expect("an answer at once").expect("a response").status()
    };
    assert_eq!(status(one), 200);
    status(other) == 429
}

#[test]
fn an_ipv4_address_is_counted_whole_and_alike_in_both_its_forms() {
    for (one, other, expected) in [
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.2", false),
        ("192.0.2.1", "::ffff:192.0.2.1", true),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", false),
        ("192.0.2.1", "::192.0.2.1", false),
    ] {
        assert_eq!(same(key::peer_ip(), one, other), expected, "{one} and {other}");
    }
}

#[test]
fn an_ipv6_address_is_counted_by_its_prefix() {
    for (extractor, one, other, expected) in [
        (key::peer_ip(), "2001:db8:0:1200::1", "2001:db8:0:12ff:ffff::9", true),
        (key::peer_ip(), "2001:db8:0:1200::1", "2001:db8:0:1300::1", false),
        (key::peer_ip().v6_prefix(64), "2001:db8:0:1200::1", "2001:db8:0:1200::2", true),
        (key::peer_ip().v6_prefix(64), "2001:db8:0:1200::1", "2001:db8:0:1201::1", false),
        (key::peer_ip().v6_prefix(128), "2001:db8::1", "2001:db8::2", false),
        (key::peer_ip().v6_prefix(255), "2001:db8::1", "2001:db8::2", false),
        (key::peer_ip().v6_prefix(0), "2001:db8::1", "fe80::1", true),
        (key::peer_ip().v6_prefix(0), "192.0.2.1", "192.0.2.2", false),
    ] {
        assert_eq!(same(extractor, one, other), expected, "{extractor:?}: {one} and {other}");
    }
}

// The warning comes once a layer.
#[test]
fn without_the_peer_s_address_all_share_a_counter_and_one_warning_names_the_remedy() {
    let name = "sockets::without_the_peer_s_address_all_share_a_counter_and_one_warning_names_the_remedy";
    alone(name, || {
        let log = Log::default();
        let noting = log.note(Level::INFO);
        let app = per_peer(2);
        let statuses = [(); 4].map(|()| {
            let request = Request::new(Body::empty());
            app.clone().oneshot(request).now_or_never().expect("an answer at once").expect("a response").status()
        });
        drop(noting);
        assert_eq!(statuses.map(|status| status.as_u16()), [200, 200, 429, 429]);
        let warnings = log.lines("WARN");
        assert_eq!(warnings.len(), 1, "{}", log.text());
        assert!(warnings[0].contains("into_make_service_with_connect_info::<SocketAddr>()"), "{warnings:?}");
    });
}

/// An app with templates, limited to 2 an hour for each key.
fn routes(key: impl key::KeyExtractor) -> Router {
    let policy = Policy::new("route", Quota::per_hour(2)).key(key);
    let nested = Router::new().route("/items/{id}", get(|Path(id): Path<String>| async { id }));
    Router::new()
        .route("/users/{id}", get(|Path(id): Path<String>| async { id }).post(|| async { "posted" }))
        .route("/users/{id}/posts", get(|| async { "posts" }))
        .route("/login", post(|| async { "in" }))
        .nest("/api", nested)
        .layer(RateLimitLayer::new(memory(&ManualClock::new()), policy))
}

async fn expect(client: &Http, server: &Server, rows: &[(&str, u16)]) {
    for (index, (path, status)) in rows.iter().enumerate() {
        assert_eq!(client.get(server.uri(path)).await.status, *status, "{path}, row {index}");
    }
}

#[tokio::test]
async fn all_paths_of_a_template_share_its_counter() {
    let (server, client) = (Server::start(routes(key::route())).await, Http::new());
    let rows =
        [("/users/1", 200), ("/users/2", 200), ("/users/3", 429), ("/users/3/posts", 200), ("/users/1?x=2", 429)];
    expect(&client, &server, &rows).await;
    expect(&client, &server, &[("/api/items/1", 200), ("/api/items/2", 200), ("/api/items/3", 429)]).await;
    assert_eq!(client.send(Method::POST, server.uri("/users/9")).await.status, 429, "a method is no other route");
    server.stop().await;
}

#[tokio::test]
async fn paths_that_match_no_route_share_one_counter() {
    let (server, client) = (Server::start(routes(key::route())).await, Http::new());
    expect(&client, &server, &[("/a", 404), ("/b/c", 404), ("/d", 429), ("/users/%7Bid%7D", 200), ("/login", 405)])
        .await;
    server.stop().await;
}

#[tokio::test]
async fn raw_paths_have_a_counter_each() {
    let (server, client) = (Server::start(routes(key::path())).await, Http::new());
    let rows = [("/users/1", 200), ("/users/1?x=2", 200), ("/users/1?x=3", 429), ("/users/2", 200), ("/nowhere", 404)];
    expect(&client, &server, &rows).await;
    server.stop().await;
}

#[tokio::test]
async fn a_handler_can_read_the_decision() {
    let handler = get(|decision: Decision| async move {
        let left = decision.outcomes().iter().map(|outcome| (outcome.policy().to_owned(), outcome.remaining()));
        format!("{:?}", left.collect::<Vec<_>>())
    });
    let layer = RateLimitLayer::composite(memory(&ManualClock::new())).ip(Quota::per_hour(9)).route(Quota::per_hour(5));
    let server = Server::start(Router::new().route("/", handler).layer(layer)).await;
    assert_eq!(Http::new().get(server.uri("/")).await.body, r#"[("ip", 8), ("route", 4)]"#);
    server.stop().await;
}

/// How many of the requests of many clients, sent all at once, are admitted.
async fn admitted(server: &Server, clients: usize, requests: usize) -> usize {
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let uri = server.uri("/");
        tasks.spawn(async move {
            let client = Http::new();
            let mut admitted = 0;
            for _ in 0..requests {
                match client.get(uri.clone()).await.status.as_u16() {
                    200 => admitted += 1,
                    429 => {}
                    other => panic!("status {other}"),
                }
            }
            admitted
        });
    }
    soon(tasks.join_all()).await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_clients_at_once_are_admitted_exactly_to_the_limit() {
    for quota in [Quota::per_hour(100), Quota::fixed_window(100, Duration::from_secs(3_600))] {
        let server = Server::start(limited(RateLimitLayer::composite(memory(&ManualClock::new())).ip(quota))).await;
        assert_eq!(admitted(&server, 64, 4).await, 100, "{quota}");
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_at_once_are_admitted_exactly_to_the_narrowest_of_several_limits() {
    let layer = RateLimitLayer::composite(memory(&ManualClock::new()))
        .global(Quota::per_hour(1_000))
        .ip(Quota::per_hour(70))
        .route(Quota::per_hour(71));
    let server = Server::start(limited(layer)).await;
    assert_eq!(admitted(&server, 32, 4).await, 70);
    let other = Http::from("127.0.0.2");
    assert_eq!(other.get(server.uri("/")).await.status, 200, "the refused cost the route nothing");
    assert_eq!(other.get(server.uri("/")).await.status, 429);
    server.stop().await;
}
