//! A reverse proxy behind the layer: what reaches the upstream, and what becomes of its headers.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpSocket;
use tollgate::{MemoryStore, Quota, RateLimitLayer};
use wiremock::matchers::{any, body_string, header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::rig::{Text, expect};
use crate::sockets::{Http, Server};

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

/// A proxy behind a layer.
pub(super) async fn proxy(upstream: SocketAddr, layer: RateLimitLayer) -> Server {
    let client = Client::builder(TokioExecutor::new()).build_http();
    Server::start(Router::new().fallback(forward).with_state(Upstream { client, address: upstream }).layer(layer)).await
}

fn per_peer(limit: u64) -> RateLimitLayer {
    RateLimitLayer::composite(MemoryStore::new()).ip(Quota::per_hour(limit))
}

#[tokio::test]
async fn a_request_reaches_the_upstream_as_it_was_sent_if_it_is_not_refused() {
    let upstream = MockServer::start().await;
    let expected = Mock::given(method("POST")).and(path("/orders")).and(query_param("dry", "1"));
    let expected = expected.and(header("x-trace", "7")).and(body_string("one pizza"));
    expected.respond_with(ResponseTemplate::new(201).insert_header("location", "/orders/9")).mount(&upstream).await;
    let proxy = proxy(*upstream.address(), per_peer(3)).await;
    for sent in 0..10 {
        let request = http::Request::post(proxy.uri("/orders?dry=1")).header("x-trace", "7");
        let answer = Http::new().request(request.body(Text::from("one pizza")).expect("a request")).await;
        assert_eq!(answer.status(), if sent < 3 { 201 } else { 429 });
        if sent == 0 {
            expect(answer.headers(), &[("location", "/orders/9"), ("ratelimit", "\"ip\";r=2;t=2400")]);
        }
    }
    assert_eq!(upstream.received_requests().await.expect("requests are recorded").len(), 3);
}

#[tokio::test]
async fn a_stricter_upstream_keeps_its_word_and_its_refusal_through_the_proxy() {
    let merged = "\"up\";r=3;t=40, \"ip\";r=99;t=3564";
    for (status, theirs, expected) in [(200, "\"up\";r=3;t=40", merged), (429, "\"up\";r=0;t=17", "\"up\";r=0;t=17")] {
        let answer = ResponseTemplate::new(status).set_body_string("from afar").insert_header("ratelimit", theirs);
        let legacy = [("x-ratelimit-limit", "5"), ("x-ratelimit-remaining", &theirs[7..8]), ("retry-after", "17")];
        let answer = legacy.iter().fold(answer, |answer, (name, value)| answer.insert_header(*name, *value));
        let upstream = MockServer::start().await;
        Mock::given(any()).respond_with(answer).mount(&upstream).await;
        let proxy = proxy(*upstream.address(), per_peer(100)).await;
        let answer = Http::new().get(proxy.uri("/")).await;
        assert_eq!((answer.status().as_u16(), &answer.body()[..]), (status, &b"from afar"[..]));
        expect(answer.headers(), &legacy);
        expect(answer.headers(), &[("ratelimit", expected)]);
    }
}

#[tokio::test]
async fn an_upstream_that_is_away_is_not_the_limiter_s_business() {
    // Bound, so that no other test gets the port, and not listening, so that connections are refused.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = proxy(silent.local_addr().unwrap(), per_peer(1)).await;
    let answer = Http::new().get(proxy.uri("/")).await;
    assert_eq!(answer.status(), 502);
    expect(answer.headers(), &[("x-ratelimit-remaining", "0")]);
    assert_eq!(Http::new().get(proxy.uri("/")).await.status(), 429);
}
