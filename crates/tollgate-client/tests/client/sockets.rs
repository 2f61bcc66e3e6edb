//! Real clients, servers and connections.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use axum::{Router, routing::any};
use bytes::Bytes;
use futures::future::join_all;
use futures::stream;
use http::Response;
use http_body_util::BodyExt;
use tollgate::{Key, Limiter, MemoryStore, OnFailure, Policy, Quota, RateLimitLayer, RedisStore, Rule};
use tollgate_client::{PaceLayer, RetryLayer};
use tower::util::BoxCloneService;
use tower::{BoxError, ServiceBuilder, ServiceExt};
use wiremock::matchers::{header_exists, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::rig::exact;
use super::server::RedisServer;

type Client = BoxCloneService<http::Request<Bytes>, Response<reqwest::Body>, BoxError>;

/// reqwest as a service of requests of the crate `http`.
fn reqwest() -> Client {
    let service = ServiceBuilder::new()
        .map_response(Response::from)
        .filter(|request: http::Request<Bytes>| reqwest::Request::try_from(request))
        .service(reqwest::Client::new());
    BoxCloneService::new(service)
}

fn request(method: &str, uri: &str, body: &'static str) -> http::Request<Bytes> {
    http::Request::builder().method(method).uri(uri).body(Bytes::from_static(body.as_bytes())).expect("a request")
}

/// A server, which ends with the test.
struct Server(SocketAddr, tokio::task::JoinHandle<()>);

impl Server {
    async fn start(app: Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        Self(address, tokio::spawn(async move { axum::serve(listener, service).await.expect("it serves") }))
    }

    fn uri(&self) -> String {
        format!("http://{}/", self.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.1.abort();
    }
}

/// Our own server with a limit for all, and the number of its denials.
async fn limited(quota: Quota) -> (Server, Arc<AtomicU32>) {
    let denials = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&denials);
    let count = from_fn(move |request: Request, next: Next| {
        let counted = Arc::clone(&counted);
        async move {
            let response = next.run(request).await;
            counted.fetch_add(u32::from(response.status() == 429), Ordering::Relaxed);
            response
        }
    });
    let limits = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", quota));
    let app = Router::new().route("/", any(|| async { "hello" })).layer(limits).layer(count);
    (Server::start(app).await, denials)
}

#[tokio::test]
async fn an_upstream_gets_each_attempt_with_the_same_key_and_body() {
    let upstream = MockServer::start().await;
    let denied = || ResponseTemplate::new(429).set_body_string("slow down");
    let told = denied().insert_header("retry-after", "1");
    let orders = || Mock::given(method("POST")).and(path("/orders")).and(header_exists("idempotency-key"));
    orders().respond_with(told).up_to_n_times(1).mount(&upstream).await;
    orders().respond_with(denied()).up_to_n_times(1).mount(&upstream).await;
    orders().respond_with(ResponseTemplate::new(201)).mount(&upstream).await;

    let client = ServiceBuilder::new().layer(exact().idempotency_key()).service(reqwest());
    let start = Instant::now();
    let response = client.oneshot(request("POST", &format!("{}/orders", upstream.uri()), "one book")).await;
    assert_eq!(response.expect("a response").status(), 201);
    assert!(start.elapsed() >= Duration::from_millis(1_200), "{:?}", start.elapsed());
    let received = upstream.received_requests().await.expect("it records");
    assert_eq!(received.iter().map(|request| &request.body[..]).collect::<Vec<_>>(), [b"one book"; 3]);
    let keys: BTreeSet<_> =
        received.iter().map(|request| &request.headers["idempotency-key"]).map(http::HeaderValue::as_bytes).collect();
    assert_eq!(keys.len(), 1);
}

#[tokio::test]
async fn an_upstream_that_is_down_gets_what_the_budget_allows() {
    let upstream = MockServer::start().await;
    Mock::given(method("GET")).respond_with(ResponseTemplate::new(503)).mount(&upstream).await;
    let budget = tollgate_client::budget::TpsBudget::new(Duration::from_secs(60), 1, 0.0);
    let layer = exact().backoff(Duration::from_millis(1)).max_retries(1).budget(budget);
    let client = ServiceBuilder::new().layer(layer).service(reqwest());
    for _ in 0..200 {
        let response = client.clone().oneshot(request("GET", &upstream.uri(), "")).await.expect("a response");
        assert_eq!(response.status(), 503);
    }
    // The reserve of a minute, by a retry a second.
    assert_eq!(upstream.received_requests().await.expect("it records").len(), 200 + 60);
}

#[tokio::test]
async fn our_own_server_serves_who_waits_as_told_and_only_them() {
    let (server, denials) = limited(Quota::per_second(2)).await;
    let client = ServiceBuilder::new().layer(exact()).service(reqwest());
    for _ in 0..6 {
        let response = client.clone().oneshot(request("GET", &server.uri(), "")).await.expect("a response");
        assert_eq!(response.status(), 200);
        assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "hello");
    }
    assert!((1..=4).contains(&denials.load(Ordering::Relaxed)), "{denials:?}");
    let burst = (0..9).map(|_| client.clone().oneshot(request("POST", &server.uri(), "")));
    let statuses: BTreeSet<_> =
        join_all(burst).await.into_iter().map(|response| response.expect("a response").status().as_u16()).collect();
    assert!(statuses.contains(&429), "a POST was retried: {statuses:?}");
}

#[tokio::test]
async fn a_grpc_call_that_our_own_server_denies_waits_for_its_push_back() {
    let (server, _) = limited(Quota::token_bucket(1, Duration::from_secs(1))).await;
    let call = || {
        let mut call = request("POST", &server.uri(), "a message");
        call.headers_mut().insert("content-type", "application/grpc".parse().expect("a value"));
        call
    };
    let once = ServiceBuilder::new().layer(exact()).service(reqwest());
    assert!(!once.clone().oneshot(call()).await.expect("a response").headers().contains_key("grpc-status"));
    let denied = once.oneshot(call()).await.expect("a response");
    assert_eq!((denied.status().as_u16(), denied.headers()["grpc-status"].as_bytes()), (200, &b"8"[..]));
    let client = ServiceBuilder::new().layer(exact().retry_if(|_| true)).service(reqwest());
    let response = client.oneshot(call()).await.expect("a response");
    assert!(!response.headers().contains_key("grpc-status"));
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "hello");
}

#[tokio::test]
async fn a_paced_client_of_our_own_server_is_never_denied() {
    for quota in [Quota::per_second(20), Quota::fixed_window(20, Duration::from_secs(1))] {
        let (server, denials) = limited(quota).await;
        let client = ServiceBuilder::new().layer(PaceLayer::new()).service(reqwest());
        // The first response names the limit.
        for requests in [1, 50] {
            let calls = (0..requests).map(|_| client.clone().oneshot(request("GET", &server.uri(), "")));
            for response in join_all(calls).await {
                assert_eq!(response.expect("a response").status(), 200);
            }
        }
        assert_eq!(denials.load(Ordering::Relaxed), 0);
    }
}

/// A server whose first response is a denial with this body. It notes the connection of each request.
async fn denies_once(body: impl Fn() -> Body + Clone + Send + Sync + 'static) -> (Server, Arc<Mutex<Vec<SocketAddr>>>) {
    let connections: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
    let noted = Arc::clone(&connections);
    let respond = move |ConnectInfo(peer): ConnectInfo<SocketAddr>| {
        let mut noted = noted.lock().expect("no panic");
        noted.push(peer);
        let (status, body) = if noted.len() == 1 { (429, body()) } else { (200, Body::from("done")) };
        let response = Response::builder().status(status).header("retry-after", "1").body(body).expect("a response");
        std::future::ready(response)
    };
    (Server::start(Router::new().route("/", any(respond))).await, connections)
}

#[tokio::test]
async fn a_retry_uses_the_connection_of_the_denied_attempt() {
    for size in [0, 200, 60_000] {
        let (server, connections) = denies_once(move || Body::from(vec![b'x'; size])).await;
        let client = ServiceBuilder::new().layer(exact()).service(reqwest());
        let response = client.oneshot(request("GET", &server.uri(), "")).await.expect("a response");
        assert_eq!(response.status(), 200);
        let connections = connections.lock().expect("no panic").clone();
        assert_eq!((connections.len(), connections[0]), (2, connections[1]), "{size}");
    }
}

#[tokio::test]
async fn a_denial_whose_body_never_ends_is_left_and_retried() {
    let chunks =
        || Body::from_stream(stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 1_024]))));
    let silence = || Body::from_stream(stream::pending::<std::io::Result<Bytes>>());
    let (endless, _) = denies_once(chunks).await;
    let (silent, _) = denies_once(silence).await;
    for server in [endless, silent] {
        let client = ServiceBuilder::new().layer(exact()).service(reqwest());
        let start = Instant::now();
        let response = client.oneshot(request("GET", &server.uri(), "")).await.expect("a response");
        assert_eq!((response.status().as_u16(), start.elapsed().as_secs()), (200, 1));
    }
}

#[tokio::test]
async fn a_connection_that_fails_is_an_error_at_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let client = ServiceBuilder::new().layer(RetryLayer::new()).service(reqwest());
    let start = Instant::now();
    assert!(client.oneshot(request("GET", &format!("http://{address}/"), "")).await.is_err());
    assert!(start.elapsed() < Duration::from_secs(1));
}

/// The composition of the README: outgoing requests wait in the queue of a leaky bucket.
fn shaped(limiter: Limiter) -> Client {
    let key = Key::new("api", "partner");
    let turn = move |request: http::Request<Bytes>| {
        let (limiter, key) = (limiter.clone(), key.clone());
        async move { limiter.until_ready(&key, Duration::from_secs(5)).await.map(|_| request) }
    };
    BoxCloneService::new(ServiceBuilder::new().filter_async(turn).service(reqwest()))
}

#[tokio::test]
async fn processes_that_share_a_leaky_bucket_in_redis_send_one_after_the_other() {
    let redis = RedisServer::start();
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&times);
    let respond = move || {
        noted.lock().expect("no panic").push(Instant::now());
        std::future::ready("hello")
    };
    let server = Server::start(Router::new().route("/", any(respond))).await;
    let rule = || Rule::new("partner", Quota::leaky_bucket(10, Duration::from_secs(1)).queue(50));
    let mut clients = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::connect(&redis.url()).await.expect("it is there");
        // A slow machine should not decide by itself.
        let limiter = Limiter::new(store, [rule()]).timeout(Duration::from_secs(5)).on_failure(OnFailure::Deny);
        clients.push(shaped(limiter));
    }
    let start = Instant::now();
    let calls = (0..12).map(|call| clients[call % 2].clone().oneshot(request("GET", &server.uri(), "")));
    for response in join_all(calls).await {
        assert_eq!(response.expect("a response").status(), 200);
    }
    let times = times.lock().expect("no panic").clone();
    assert_eq!(times.len(), 12);
    let total = *times.iter().max().expect("some") - start;
    assert!(total >= Duration::from_millis(1_090), "12 requests that are 100 ms apart took {total:?}");
}
