//! Refused HEAD requests over real sockets: the length of a body, and none.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate::policy::AccessList;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
use tower::{Layer, service_fn};

use crate::support::soon::soon;

/// A server without a router, as the layer is around the service itself. Stopped when dropped.
struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(layer: RateLimitLayer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback device");
        let address = listener.local_addr().expect("it is bound");
        let service = layer.layer(service_fn(async |_| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let service = TowerToHyperService::new(service.clone());
                tokio::spawn(async move {
                    Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await
                });
            }
        });
        Self { address, task }
    }

    /// The responses to requests on one connection.
    async fn send(&self, version: Version, methods: &[Method]) -> Vec<Response<Bytes>> {
        let client = Client::builder(TokioExecutor::new()).http2_only(version == Version::HTTP_2).build_http();
        let mut responses = Vec::new();
        for method in methods {
            let request = Request::builder().method(method).uri(format!("http://{}/", self.address));
            let request = request.header("x-user", "eve").body(Empty::<Bytes>::new()).expect("a request");
            let (parts, body) = soon(client.request(request)).await.expect("a response").into_parts();
            let body = soon(body.collect()).await.expect("the response ends as it should").to_bytes();
            assert_eq!(parts.version, version);
            responses.push(Response::from_parts(parts, body));
        }
        responses
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Expects HEAD to be refused as GET is, but for the body, and connections to go on.
async fn refused_alike(layer: RateLimitLayer, status: StatusCode) {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let server = Server::start(layer.clone()).await;
        let responses = server.send(version, &[Method::GET, Method::HEAD, Method::HEAD, Method::GET]).await;
        let [_, head, again, get] = responses.as_slice() else { panic!("four responses") };
        assert_eq!([head.status(), again.status(), get.status()], [status; 3], "{version:?}");
        assert!(head.body().is_empty() && !get.body().is_empty(), "{version:?}");
        assert_eq!(head.headers()["content-length"], get.body().len().to_string(), "{version:?}");
        assert_eq!(get.headers()["content-length"], get.body().len().to_string(), "{version:?}");
        let others = |response: &Response<Bytes>| {
            let mut names: Vec<_> = response.headers().keys().map(ToString::to_string).collect();
            names.sort();
            names
        };
        assert_eq!(others(head), others(get), "{version:?}");
    }
}

fn layer(policy: Policy) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), policy)
}

#[tokio::test]
async fn a_head_request_over_the_limit_gets_no_body() {
    refused_alike(layer(Policy::new("all", Quota::per_hour(1))), StatusCode::TOO_MANY_REQUESTS).await;
}

#[tokio::test]
async fn a_head_request_of_a_denied_client_gets_no_body() {
    let eve = AccessList::parse(["eve"]).expect("a key");
    let policy = Policy::new("user", Quota::per_hour(9)).key(key::header("x-user")).deny(eve);
    refused_alike(layer(policy), StatusCode::FORBIDDEN).await;
}

#[tokio::test]
async fn a_head_request_gets_no_body_from_a_rejection_of_one_s_own() {
    let layer = layer(Policy::new("all", Quota::per_hour(1))).on_denied_http(|_, _| {
        let mut response = Response::new("later, please");
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    });
    refused_alike(layer, StatusCode::IM_A_TEAPOT).await;
}
