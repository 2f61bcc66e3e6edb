//! gRPC: what calls are answered with, and what tonic's clients read over each transport.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate::body::ResponseBody;
use tollgate::policy::{AccessList, MissingKey};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Key, OnFailure, Policy, Quota, RateLimitHeaders, RateLimitLayer, key};
use tonic::body::Body;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_web::{GrpcWebClientLayer, GrpcWebLayer};
use tower::util::{BoxCloneService, MapResponseLayer};
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt};

use crate::rig::{self, call, expect, hello, layer, line, request, send, text, with};
use crate::support::doubles::unavailable;
use crate::support::soon::soon;
use crate::support::time::memory;

const HOURLY: Quota = Quota::per_hour(1);

fn calls(quota: Quota) -> Policy {
    Policy::new("calls", quota)
}

#[test]
fn a_refused_call_is_resource_exhausted_with_the_true_wait() {
    let micros = Duration::from_micros;
    for (wait, pushback, seconds) in [
        (micros(100), "1", "1"),
        (micros(1_000), "1", "1"),
        (micros(1_001), "2", "1"),
        (micros(7_300_500), "7301", "8"),
        (Duration::from_secs(3_600), "3600000", "3600"),
    ] {
        let clock = ManualClock::new();
        let layer = RateLimitLayer::new(memory(&clock), calls(Quota::token_bucket(1, wait))).expose_decisions();
        let service = layer.layer(hello());
        expect(send(&service, call()).headers(), &[("grpc-status", ""), ("x-ratelimit-remaining", "0")]);
        let refused = send(&service, call());
        assert_eq!(refused.extensions().get().map(Decision::is_allowed), Some(false));
        expect(refused.headers(), &[("grpc-status", "8"), ("grpc-message", "rate limit exceeded")]);
        expect(refused.headers(), &[("grpc-retry-pushback-ms", pushback), ("cache-control", "no-store")]);
        expect(refused.headers(), &[("ratelimit", &format!("\"calls\";r=0;t={seconds}"))]);
        clock.set(ManualClock::EPOCH + wait.saturating_sub(micros(1)));
        expect(send(&service, call()).headers(), &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "1")]);
        clock.set(ManualClock::EPOCH + Duration::from_millis(pushback.parse().expect("a number")));
        assert!(!send(&service, call()).headers().contains_key("grpc-status"), "the wait is true");
    }
}

#[test]
fn jitter_is_added_to_the_wait_and_never_taken_from_it() {
    let layer = layer([calls(Quota::token_bucket(1, Duration::from_secs(10)))]);
    let service = layer.headers(RateLimitHeaders::both().jitter(Duration::from_secs(5))).layer(hello());
    send(&service, call());
    for _ in 0..20 {
        let refused = send(&service, call());
        let wait: u64 = line(refused.headers(), "grpc-retry-pushback-ms").parse().expect("a number");
        assert!((10_000..=15_000).contains(&wait), "{wait}");
        expect(refused.headers(), &[("ratelimit", &format!("\"calls\";r=0;t={}", wait.div_ceil(1_000)))]);
    }
}

#[test]
fn a_post_of_a_kind_of_grpc_is_answered_with_a_status_over_any_version_and_all_else_in_the_terms_of_http() {
    let service = layer([calls(HOURLY)]).layer(hello());
    send(&service, request());
    let hows =
        [(Version::HTTP_11, ""), (Version::HTTP_2, "trailers"), (Version::HTTP_2, "gzip"), (Version::HTTP_3, "")];
    let kinds = [
        (Method::POST, "application/grpc", "application/grpc"),
        (Method::POST, "application/grpc+proto", "application/grpc"),
        (Method::POST, "application/grpc; a=b", "application/grpc"),
        (Method::POST, "application/grpc-web", "application/grpc-web"),
        (Method::POST, "application/grpc-web-text+proto", "application/grpc-web-text"),
        (Method::GET, "application/grpc", ""),
        (Method::POST, "application/json", ""),
        (Method::POST, "application/grpcx", ""),
        (Method::POST, "text/plain; application/grpc", ""),
    ];
    for ((version, te), (method, kind, read)) in hows.iter().flat_map(|how| kinds.clone().map(|kind| (*how, kind))) {
        let mut request = with(with(rig::by(method.clone()), "content-type", kind), "te", te);
        *request.version_mut() = version;
        let refused = send(&service, request);
        if read.is_empty() {
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{version:?} {method} {kind}");
            expect(refused.headers(), &[("content-type", "application/problem+json"), ("grpc-status", "")]);
            assert!(text(refused).ends_with("\"violated-policies\":[\"calls\"]}"), "{kind}");
        } else {
            assert_eq!(refused.status(), StatusCode::OK, "{version:?} {method} {kind}");
            expect(refused.headers(), &[("content-type", read), ("grpc-status", "8"), ("retry-after", "")]);
            assert!(text(refused).is_empty(), "{kind}");
        }
    }
}

/// A layer whose keys are this response.
fn rejecting(response: Response<Bytes>) -> RateLimitLayer {
    layer([calls(HOURLY).key(move |_: &Parts| Err::<Key, _>(Box::new(response.clone())))])
}

/// The same with a status and a body.
fn rejecting_with(status: u16) -> RateLimitLayer {
    rejecting(Response::builder().status(status).header("content-length", "4").body("who?".into()).expect("a response"))
}

#[test]
fn each_response_of_a_layer_is_a_status_that_tonic_reads() {
    let all = || layer([calls(HOURLY)]);
    let user = || calls(HOURLY).key(key::header("x-user")).missing_key(MissingKey::Deny);
    let denied = user().deny(AccessList::parse(["eve"]).expect("a key"));
    let of = |user| with(call(), "x-user", user);
    let (refused, hour) = ("rate limit exceeded", "3600000");
    let expensive = "the call costs more than the limit ever admits";
    let ambiguous = "The request does not identify its client or its cost unambiguously: what does must be present once and well-formed.";
    let no_store = RateLimitLayer::new(unavailable(), calls(HOURLY)).on_failure(OnFailure::Deny);
    let rejected = |status, code, message| (rejecting_with(status), call(), code, message, "");
    for (layer, call, code, message, pushback) in [
        (all(), call(), Code::ResourceExhausted, refused, hour),
        (all().on_denied(|_, _| (StatusCode::IM_A_TEAPOT, "no")), call(), Code::ResourceExhausted, refused, hour),
        (all().on_denied_http(|_, _| Response::new("no")), call(), Code::ResourceExhausted, refused, hour),
        (layer([calls(HOURLY).cost_by(|_| 3)]), call(), Code::ResourceExhausted, expensive, "-1"),
        (no_store, call(), Code::Unavailable, "temporarily reduced capacity", "1000"),
        (layer([user()]), call(), Code::PermissionDenied, "The request does not identify its client.", ""),
        (layer([user()]), with(of("a"), "x-user", "b"), Code::InvalidArgument, ambiguous, ""),
        (layer([denied]), of("eve"), Code::PermissionDenied, "This client is not allowed.", ""),
        rejected(400, Code::InvalidArgument, "Bad Request"),
        rejected(401, Code::Unauthenticated, "Unauthorized"),
        rejected(403, Code::PermissionDenied, "Forbidden"),
        rejected(429, Code::ResourceExhausted, "Too Many Requests"),
        rejected(503, Code::Unavailable, "Service Unavailable"),
        rejected(418, Code::Unknown, "I'm a teapot"),
        (rejecting(Status::aborted("not now").into_http()), call(), Code::Aborted, "not now", ""),
    ] {
        let service = layer.layer(hello());
        send(&service, call.clone());
        let response = send(&service, call);
        let status = Status::from_header_map(response.headers()).expect(message);
        assert_eq!((response.status(), status.code(), status.message()), (StatusCode::OK, code, message));
        // That of tonic says nothing to caches.
        let cached = if code == Code::Aborted { "" } else { "no-store" };
        expect(response.headers(), &[("grpc-retry-pushback-ms", pushback), ("cache-control", cached)]);
        assert!(matches!(line(response.headers(), "content-length"), "" | "0"), "{message}");
        assert!(text(response).is_empty(), "{message}");
    }
}

/// Starts the health service behind a layer, which is around the one that translates gRPC-Web, or else inside of it.
async fn serve(limits: RateLimitLayer, is_around: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback device");
    let address = listener.local_addr().expect("it is bound");
    let (_, service) = tonic_health::server::health_reporter();
    let (incoming, server) = (TcpIncoming::from(listener), Server::builder().accept_http1(true));
    let (web, body) =
        (GrpcWebLayer::new(), MapResponseLayer::new(|all: Response<ResponseBody<Body>>| all.map(Body::new)));
    if is_around {
        tokio::spawn(server.layer(limits).layer(web).add_service(service).serve_with_incoming(incoming));
    } else {
        tokio::spawn(server.layer(web).layer(body).layer(limits).add_service(service).serve_with_incoming(incoming));
    }
    address
}

/// A client of its own connection, from an address.
fn client(server: SocketAddr, from: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{server}")).expect("an address");
    endpoint.local_address(Some(from.parse().expect("an address"))).connect_lazy()
}

/// What carries the calls of a client.
type Transport = BoxCloneService<Request<Body>, Response<Body>, BoxError>;

/// The gRPC-Web client of tonic-web.
fn web(version: Version) -> Transport {
    let client = Client::builder(TokioExecutor::new()).http2_only(version == Version::HTTP_2).build_http();
    let service = ServiceBuilder::new().layer(GrpcWebClientLayer::new()).service(client);
    BoxCloneService::new(service.map_response(|response| response.map(Body::new)).map_err(BoxError::from))
}

fn health() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

type Make = fn() -> RateLimitLayer;

#[tokio::test]
async fn a_response_of_a_layer_is_a_status_that_tonic_reads_over_each_transport() {
    let grpc = |server| BoxCloneService::new(client(server, "127.0.0.1").map_err(BoxError::from));
    let transports: [(&str, &dyn Fn(SocketAddr) -> Transport); 3] =
        [("gRPC", &grpc), ("web 1", &|_| web(Version::HTTP_11)), ("web 2", &|_| web(Version::HTTP_2))];
    // One of ours, and one that had a body.
    let layers: [(Make, Code, &str); 2] = [
        (|| layer([calls(HOURLY).cost_by(|_| 3)]), Code::ResourceExhausted, "-1"),
        (|| rejecting_with(403), Code::PermissionDenied, ""),
    ];
    for (name, transport) in transports {
        for ((layer, code, pushback), is_around) in layers.into_iter().flat_map(|one| [(one, false), (one, true)]) {
            let server = serve(layer(), is_around).await;
            let origin = format!("http://{server}").parse().expect("a URI");
            let mut client = HealthClient::with_origin(transport(server), origin);
            let status = soon(client.check(health())).await.expect_err(name);
            assert_eq!(status.code(), code, "{name}, around: {is_around}: {status}");
            expect(&status.metadata().clone().into_headers(), &[("grpc-retry-pushback-ms", pushback)]);
        }
    }
}

#[cfg(feature = "tonic")]
#[tokio::test]
async fn a_tonic_server_counts_each_peer() {
    let server = serve(layer([calls(HOURLY).key(key::peer_ip())]), false).await;
    for peer in ["127.0.0.1", "127.0.0.2"] {
        let mut client = HealthClient::new(client(server, peer));
        let admitted = soon(client.check(health())).await.expect(peer);
        expect(&admitted.metadata().clone().into_headers(), &[("ratelimit", "\"calls\";r=0;t=3600")]);
        let refused = soon(client.check(health())).await.expect_err("it is the second");
        assert_eq!(refused.code(), Code::ResourceExhausted, "{peer}");
    }
}
