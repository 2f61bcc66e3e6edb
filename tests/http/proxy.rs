//! A reverse proxy behind the layer: what reaches the upstream, and what becomes of its headers.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};
use tollgate::key;
use tollgate::{MemoryStore, Quota, RateLimitLayer};
use wiremock::matchers::{any, body_string, header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::soon::soon;

/// What the proxy asks its upstream with.
#[derive(Clone)]
struct Upstream {
    client: Client<HttpConnector, Body>,
    address: SocketAddr,
}

async fn forward(State(upstream): State<Upstream>, mut request: Request) -> Response {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let uri = format!("http://{}{path}", upstream.address);
    *request.uri_mut() = uri.parse().expect("a URI");
    match upstream.client.request(request).await {
        Ok(response) => response.map(Body::new),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// A proxy on a port of its own, stopped when it is dropped.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    pub(super) async fn start(upstream: SocketAddr, layer: RateLimitLayer) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let app = Router::new().fallback(forward).with_state(Upstream { client, address: upstream }).layer(layer);
        Self::serve(app).await
    }

    /// Serves any app in the place of a proxy.
    pub(super) async fn serve(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback device");
        let address = listener.local_addr().expect("an address");
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        let task = tokio::spawn(async move { axum::serve(listener, service).await.expect("the server runs on") });
        Self { address, task }
    }

    fn uri(&self, path: &str) -> Uri {
        format!("http://{}{path}", self.address).parse().expect("a URI")
    }
}

fn client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

/// A response that was read to its end.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    body: Bytes,
}

pub(super) async fn send(request: http::Request<Full<Bytes>>) -> Answer {
    let (parts, body) = soon(client().request(request)).await.expect("a response").into_parts();
    let body = soon(body.collect()).await.expect("a body").to_bytes();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

pub(super) async fn get(proxy: &Proxy, path: &str) -> Answer {
    send(http::Request::get(proxy.uri(path)).body(Full::default()).expect("a request")).await
}

#[track_caller]
fn expect(answer: &Answer, lines: &[(&str, &str)]) {
    for (name, value) in lines {
        let found: Vec<&str> = answer.headers.get_all(*name).iter().map(|line| line.to_str().expect("ASCII")).collect();
        assert_eq!(found, [*value], "{name}");
    }
}

/// An upstream that expects so many requests, and complains when it is dropped if there were not.
pub(super) async fn upstream(answer: ResponseTemplate, requests: u64) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(answer).expect(requests).mount(&server).await;
    server
}

pub(super) fn per_peer(limit: u64) -> RateLimitLayer {
    RateLimitLayer::composite(MemoryStore::new()).ip(Quota::per_hour(limit))
}

#[tokio::test]
async fn no_refused_request_reaches_the_upstream() {
    let upstream = upstream(ResponseTemplate::new(200).set_body_string("from afar"), 3).await;
    let proxy = Proxy::start(*upstream.address(), per_peer(3)).await;
    for index in 0..10 {
        let answer = get(&proxy, "/").await;
        let (status, body) = (answer.status, answer.body);
        if index < 3 {
            assert_eq!((status, &body[..]), (200, &b"from afar"[..]));
        } else {
            assert_eq!(status, 429);
            assert!(body.starts_with(b"{\"type\":"));
        }
    }
    upstream.verify().await;
    assert_eq!(upstream.received_requests().await.expect("requests are recorded").len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_requests_at_once_exactly_the_limit_reach_the_upstream() {
    let upstream = upstream(ResponseTemplate::new(204), 50).await;
    let proxy = Proxy::start(*upstream.address(), per_peer(50)).await;
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let request = http::Request::get(proxy.uri("/")).body(Full::default()).expect("a request");
        tasks.spawn(async move { send(request).await.status });
    }
    let statuses = soon(tasks.join_all()).await;
    let count = |status| statuses.iter().filter(|&&answered| answered == status).count();
    assert_eq!((count(204), count(429)), (50, 50));
    upstream.verify().await;
}

#[tokio::test]
async fn a_request_one_policy_refuses_reaches_no_upstream_and_costs_the_others_nothing() {
    let upstream = upstream(ResponseTemplate::new(200), 4).await;
    let layer = per_peer(4).user(Quota::per_hour(2), key::header("x-api-key"));
    let proxy = Proxy::start(*upstream.address(), layer).await;
    for (user, status) in [("a", 200), ("a", 200), ("a", 429), ("a", 429), ("b", 200), ("b", 200), ("c", 429)] {
        let request = http::Request::get(proxy.uri("/")).header("x-api-key", user);
        assert_eq!(send(request.body(Full::default()).unwrap()).await.status, status, "{user}");
    }
    upstream.verify().await;
}

#[tokio::test]
async fn an_admitted_request_reaches_the_upstream_as_it_was_sent() {
    let upstream = MockServer::start().await;
    let expected = Mock::given(method("POST")).and(path("/orders")).and(query_param("dry", "1"));
    let expected = expected.and(header("x-trace", "7")).and(body_string("one pizza"));
    expected.respond_with(ResponseTemplate::new(201).insert_header("location", "/orders/9")).mount(&upstream).await;
    let proxy = Proxy::start(*upstream.address(), per_peer(5)).await;
    let request = http::Request::post(proxy.uri("/orders?dry=1")).header("x-trace", "7");
    let answer = send(request.body(Full::from("one pizza")).unwrap()).await;
    assert_eq!(answer.status, 201);
    expect(&answer, &[("location", "/orders/9"), ("ratelimit", "\"ip\";r=4;t=2880")]);
}

#[tokio::test]
async fn a_stricter_upstream_keeps_its_word_through_the_proxy() {
    let legacy = [("x-ratelimit-limit", "5"), ("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "1900000000")];
    let mut answer = ResponseTemplate::new(200).insert_header("ratelimit", "\"up\";r=3;t=40");
    answer = answer.insert_header("ratelimit-policy", "\"up\";q=5;w=60");
    answer = legacy.iter().fold(answer, |answer, (name, value)| answer.insert_header(*name, *value));
    let upstream = upstream(answer, 1).await;
    let proxy = Proxy::start(*upstream.address(), per_peer(100)).await;
    let answer = get(&proxy, "/").await;
    expect(&answer, &legacy);
    expect(&answer, &[("ratelimit", "\"up\";r=3;t=40, \"ip\";r=99;t=3564")]);
    expect(&answer, &[("ratelimit-policy", "\"up\";q=5;w=60, \"ip\";q=100;w=3600")]);
}

#[tokio::test]
async fn an_upstream_s_own_refusal_is_passed_on_as_it_is() {
    let fields = [("retry-after", "17"), ("ratelimit", "\"up\";r=0;t=17"), ("x-ratelimit-remaining", "0")];
    let answer = ResponseTemplate::new(429).set_body_string("slow down, says the upstream");
    let answer = fields.iter().fold(answer, |answer, (name, value)| answer.insert_header(*name, *value));
    let upstream = upstream(answer, 1).await;
    let proxy = Proxy::start(*upstream.address(), per_peer(100)).await;
    let answer = get(&proxy, "/").await;
    assert_eq!((answer.status, &answer.body[..]), (429, &b"slow down, says the upstream"[..]));
    expect(&answer, &fields);
}

#[tokio::test]
async fn an_upstream_that_is_away_is_not_the_limiter_s_business() {
    // Bound, so that no other test gets the port, and not listening, so that connections are refused.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = silent.local_addr().unwrap();
    let proxy = Proxy::start(nobody, per_peer(1)).await;
    let answer = get(&proxy, "/").await;
    assert_eq!(answer.status, 502);
    expect(&answer, &[("x-ratelimit-remaining", "0")]);
    assert_eq!(get(&proxy, "/").await.status, 429);
}
