//! Refused HEAD requests over real sockets: the length of a body, and none.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tollgate::policy::AccessList;
use tollgate::{Policy, Quota, RateLimitLayer, key};
use tower::{Layer, service_fn};

use crate::rig::{Text, layer};
use crate::support::soon::soon;

/// The responses to requests on one connection to a server without a router, as the layer is around the service itself.
async fn responses(layer: &RateLimitLayer, version: Version, methods: [Method; 4]) -> Vec<Response<Bytes>> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback device");
    let address = listener.local_addr().expect("it is bound");
    let service = layer.layer(service_fn(async |_: Request<Incoming>| Ok::<_, String>(Response::new(Text::default()))));
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        let serving = Builder::new(TokioExecutor::new());
        serving.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await
    });
    let client = Client::builder(TokioExecutor::new()).http2_only(version == Version::HTTP_2).build_http();
    let mut responses = Vec::new();
    for method in methods {
        let request = Request::builder().method(method).uri(format!("http://{address}/"));
        let request = request.header("x-user", "eve").body(Text::default()).expect("a request");
        let (parts, body) = soon(client.request(request)).await.expect("a response").into_parts();
        let body = soon(body.collect()).await.expect("the response ends as it should").to_bytes();
        assert_eq!(parts.version, version);
        responses.push(Response::from_parts(parts, body));
    }
    server.abort();
    responses
}

#[tokio::test]
async fn a_refused_head_request_is_answered_as_get_is_but_for_the_body_and_its_connection_goes_on() {
    let all = || layer([Policy::new("all", Quota::per_hour(1))]);
    let eve = AccessList::parse(["eve"]).expect("a key");
    let denied = layer([Policy::new("user", Quota::per_hour(9)).key(key::header("x-user")).deny(eve)]);
    let own = all().on_denied_http(|_, _| {
        let mut response = Response::new("later, please");
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    });
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for (layer, status) in [(all(), 429), (denied.clone(), 403), (own.clone(), 418)] {
            let what = format!("{status} over {version:?}");
            let responses = responses(&layer, version, [Method::GET, Method::HEAD, Method::HEAD, Method::GET]).await;
            let [_, head, again, get] = &responses[..] else { panic!("four responses") };
            assert_eq!([head, again, get].map(|response| response.status().as_u16()), [status; 3], "{what}");
            assert!(head.body().is_empty() && !get.body().is_empty(), "{what}");
            let names = |response: &Response<Bytes>| {
                assert_eq!(response.headers()["content-length"], get.body().len().to_string(), "{what}");
                let mut names: Vec<_> = response.headers().keys().map(ToString::to_string).collect();
                names.sort();
                names
            };
            assert_eq!(names(head), names(get), "{what}");
        }
    }
}
