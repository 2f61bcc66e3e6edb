//! A gRPC server behind the layer, over a real socket: what its clients are told.

mod responses;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate::key;
use tollgate::policy::{AccessList, Count, MissingKey};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, OnFailure, Policy, Quota, RateLimitHeaders, RateLimitLayer};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::doubles::unavailable;
use crate::support::soon::soon;
use crate::support::time::{at, memory};

const S: u64 = 1_000_000;

/// The health service behind a layer, stopped when dropped.
struct Health {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Health {
    async fn start(layer: RateLimitLayer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback device");
        let address = listener.local_addr().expect("it is bound");
        let (_, service) = tonic_health::server::health_reporter();
        let server = Server::builder().accept_http1(true).layer(layer).add_service(service);
        let serving = server.serve_with_incoming(TcpIncoming::from(listener));
        Self { address, task: tokio::spawn(async move { serving.await.expect("the server runs") }) }
    }

    async fn client(&self) -> HealthClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("an address");
        HealthClient::new(soon(endpoint.connect()).await.expect("the server listens"))
    }

    /// A request as it is written, over HTTP/1.1 or 2.
    async fn post(&self, version: Version, fields: &[(&str, &str)]) -> Response<Bytes> {
        let uri = format!("http://{}/grpc.health.v1.Health/Check", self.address);
        let request = fields.iter().fold(Request::post(uri), |request, (name, value)| request.header(*name, *value));
        let is_2 = version == Version::HTTP_2;
        let client = Client::builder(TokioExecutor::new()).http2_only(is_2).build_http();
        let request = request.body(Empty::<Bytes>::new()).expect("a request");
        let (parts, body) = soon(client.request(request)).await.expect("a response").into_parts();
        assert_eq!(parts.version, version);
        Response::from_parts(parts, soon(body.collect()).await.expect("a body").to_bytes())
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A call, with metadata if there is any; its metadata and what the server says of itself.
async fn call(client: &mut HealthClient<Channel>, user: Option<&'static str>) -> Result<(HeaderMap, i32), Status> {
    let mut request = tonic::Request::new(HealthCheckRequest { service: String::new() });
    if let Some(user) = user {
        request.metadata_mut().insert("x-user", user.parse().expect("ASCII"));
    }
    let response = soon(client.check(request)).await?;
    let metadata = response.metadata().clone().into_headers();
    Ok((metadata, response.into_inner().status))
}

async fn refused(client: &mut HealthClient<Channel>) -> Status {
    call(client, None).await.expect_err("the call is refused")
}

/// A layer of one policy, and the clock of its store.
fn limited(policy: Policy) -> (RateLimitLayer, ManualClock) {
    let clock = ManualClock::new();
    let store = memory(&clock);
    (RateLimitLayer::new(store, policy).expose_decisions(), clock)
}

#[track_caller]
fn metadata<'a>(status: &'a Status, name: &str) -> &'a str {
    status.metadata().get(name).unwrap_or_else(|| panic!("no {name}: {status:?}")).to_str().expect("ASCII")
}

/// What the client is told to wait when the second call is refused.
async fn pushback(quota: Quota, expected: &str) {
    let server = Health::start(limited(Policy::new("calls", quota)).0).await;
    let mut client = server.client().await;
    assert!(call(&mut client, None).await.is_ok());
    assert_eq!(metadata(&refused(&mut client).await, "grpc-retry-pushback-ms"), expected, "{quota}");
}

#[tokio::test]
async fn an_admitted_call_works_and_carries_the_limits() {
    let server = Health::start(limited(Policy::new("calls", Quota::per_hour(2))).0).await;
    let (headers, status) = call(&mut server.client().await, None).await.expect("the call is admitted");
    assert_eq!(status, ServingStatus::Serving as i32);
    assert_eq!(headers["ratelimit"], r#""calls";r=1;t=1800"#);
    assert_eq!(headers["ratelimit-policy"], r#""calls";q=2;w=3600"#);
    assert_eq!(headers["x-ratelimit-remaining"], "1");
}

#[tokio::test]
async fn a_refused_call_is_resource_exhausted_with_the_true_wait() {
    let quota = Quota::token_bucket(1, Duration::from_micros(7_300_500));
    let (layer, clock) = limited(Policy::new("calls", quota));
    let server = Health::start(layer).await;
    let mut client = server.client().await;
    assert!(call(&mut client, None).await.is_ok());
    let status = refused(&mut client).await;
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "rate limit exceeded"));
    assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), "7301");
    assert_eq!(metadata(&status, "ratelimit"), r#""calls";r=0;t=8"#);
    assert_eq!(metadata(&status, "cache-control"), "no-store");
    clock.set(at(7_300_500 - 1));
    assert_eq!(metadata(&refused(&mut client).await, "grpc-retry-pushback-ms"), "1");
    clock.set(at(7_301_000));
    assert!(call(&mut client, None).await.is_ok(), "the wait is true");
}

#[tokio::test]
async fn the_wait_is_in_milliseconds_rounded_up_and_at_least_one() {
    pushback(Quota::token_bucket(1, Duration::from_micros(100)), "1").await;
    pushback(Quota::token_bucket(1, Duration::from_millis(1)), "1").await;
    pushback(Quota::token_bucket(1, Duration::from_micros(1_001)), "2").await;
    pushback(Quota::token_bucket(1, Duration::from_secs(3_600)), "3600000").await;
}

#[tokio::test]
async fn a_call_that_no_wait_can_help_is_not_to_be_retried() {
    let server = Health::start(limited(Policy::new("calls", Quota::per_hour(2)).cost_by(|_| 3)).0).await;
    let status = refused(&mut server.client().await).await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "the call costs more than the limit ever admits");
    assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), "-1");
}

#[cfg(feature = "tonic")]
#[tokio::test]
async fn a_tonic_server_counts_each_peer() {
    let server = Health::start(limited(Policy::new("calls", Quota::per_hour(1)).key(key::peer_ip())).0).await;
    for peer in ["127.0.0.1", "127.0.0.2"] {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
        let endpoint = endpoint.local_address(Some(peer.parse().expect("an address")));
        let mut client = HealthClient::new(soon(endpoint.connect()).await.expect("the server listens"));
        assert!(call(&mut client, None).await.is_ok(), "{peer}");
        assert_eq!(refused(&mut client).await.code(), Code::ResourceExhausted, "{peer}");
    }
}

#[tokio::test]
async fn jitter_is_added_to_the_wait_and_never_taken_from_it() {
    let (layer, _) = limited(Policy::new("calls", Quota::token_bucket(1, Duration::from_secs(10))));
    let server = Health::start(layer.headers(RateLimitHeaders::both().jitter(Duration::from_secs(5)))).await;
    let mut client = server.client().await;
    assert!(call(&mut client, None).await.is_ok());
    for _ in 0..20 {
        let status = refused(&mut client).await;
        let wait: u64 = metadata(&status, "grpc-retry-pushback-ms").parse().expect("a number");
        assert!((10_000..=15_000).contains(&wait), "{wait}");
        let seconds = wait.div_ceil(1_000);
        assert_eq!(metadata(&status, "ratelimit"), format!(r#""calls";r=0;t={seconds}"#), "of {wait} ms");
    }
}

#[tokio::test]
async fn a_denied_client_has_no_permission() {
    let list = AccessList::parse(["eve"]).expect("a key");
    let user = || Policy::new("user", Quota::per_hour(5)).key(key::header("x-user"));
    let server = Health::start(limited(user().deny(list).missing_key(MissingKey::Deny)).0).await;
    let mut client = server.client().await;
    let denied = call(&mut client, Some("eve")).await.expect_err("she is on the list");
    assert_eq!((denied.code(), denied.message()), (Code::PermissionDenied, "This client is not allowed."));
    let keyless = refused(&mut client).await;
    assert_eq!(keyless.code(), Code::PermissionDenied);
    assert_eq!(keyless.message(), "The request does not identify its client.");
    assert!(call(&mut client, Some("ada")).await.is_ok());
}

#[tokio::test]
async fn without_its_store_a_layer_that_denies_is_unavailable_for_a_second() {
    let layer =
        RateLimitLayer::new(unavailable(), Policy::new("calls", Quota::per_hour(5))).on_failure(OnFailure::Deny);
    let server = Health::start(layer).await;
    let status = refused(&mut server.client().await).await;
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "temporarily reduced capacity"));
    assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), "1000");
}

#[track_caller]
fn expect_problem(refused: &Response<Bytes>, what: &str) {
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{what}");
    assert_eq!(refused.headers()["content-type"], "application/problem+json", "{what}");
    assert_eq!(refused.headers()["retry-after"], "3600", "{what}");
    assert!(!refused.headers().contains_key("grpc-status"), "{what}");
    assert!(refused.body().ends_with(b"\"violated-policies\":[\"calls\"]}"), "{what}");
}

/// A server whose next calls are refused.
async fn spent() -> Health {
    let server = Health::start(limited(Policy::new("calls", Quota::per_hour(1))).0).await;
    assert!(call(&mut server.client().await, None).await.is_ok());
    server
}

#[tokio::test]
async fn plain_http_to_the_same_server_is_answered_in_its_own_terms() {
    let server = spent().await;
    for kind in ["application/json", "application/grpcx", "text/plain; application/grpc"] {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let refused = server.post(version, &[("content-type", kind), ("te", "trailers")]).await;
            expect_problem(&refused, kind);
        }
    }
}

#[tokio::test]
async fn every_kind_of_grpc_is_answered_with_a_status_and_without_a_body() {
    let server = spent().await;
    for (kind, read) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("application/grpc; a=b", "application/grpc"),
        ("application/grpc-web", "application/grpc-web"),
        ("application/grpc-web+proto", "application/grpc-web"),
        ("application/grpc-web-text+proto", "application/grpc-web-text"),
    ] {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let refused = server.post(version, &[("content-type", kind)]).await;
            assert_eq!(refused.status(), StatusCode::OK, "{kind}");
            assert_eq!(refused.headers()["content-type"], read, "{kind}");
            assert_eq!(refused.headers()["grpc-status"], "8", "{kind}");
            assert!(refused.body().is_empty(), "{kind}");
        }
    }
}

/// A service that answers every request, and the status of its refusal to one of these.
fn status_of_a_refusal(method: &Method, version: Version, te: &'static str) -> u16 {
    let inner = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())));
    let service = limited(Policy::new("calls", Quota::per_hour(1))).0.layer(inner);
    let send = || {
        let request = Request::builder().method(method.clone()).version(version).header("te", te);
        let request = request.header("content-type", "application/grpc").body(String::new()).expect("a request");
        service.clone().oneshot(request).now_or_never().expect("an answer at once").expect("a response")
    };
    send();
    send().status().as_u16()
}

#[test]
fn a_post_is_a_call_whatever_carries_it() {
    for version in [Version::HTTP_11, Version::HTTP_2, Version::HTTP_3] {
        for te in ["trailers", "gzip", ""] {
            assert_eq!(status_of_a_refusal(&Method::POST, version, te), 200, "{version:?} {te}");
            assert_eq!(status_of_a_refusal(&Method::GET, version, te), 429, "{version:?} {te}");
        }
    }
}

#[tokio::test]
async fn an_outer_policy_of_failures_counts_nothing_that_an_inner_one_refuses_however_it_is_asked() {
    for (version, te) in [(Version::HTTP_11, "gzip"), (Version::HTTP_2, "trailers")] {
        let (outer, _) = limited(Policy::new("outer", Quota::per_hour(5)).count(Count::failures()));
        let (inner, _) = limited(Policy::new("inner", Quota::per_hour(1)));
        let service = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())));
        let service = outer.layer(inner.layer(service));
        let send = || {
            let request = Request::post("/").version(version).header("te", te);
            let request = request.header("content-type", "application/grpc").body(String::new()).expect("a request");
            service.clone().oneshot(request).now_or_never().expect("an answer at once").expect("a response")
        };
        let left = |response: &Response<_>| {
            let decision: &Decision = response.extensions().get().expect("a decision");
            decision.outer().expect("the outer layer's").outcomes()[0].remaining()
        };
        let all: Vec<_> = (0..4).map(|_| left(&send())).collect();
        assert_eq!(all, [5, 5, 5, 5], "{version:?}: the first is served");
    }
}

#[tokio::test]
async fn calls_that_fail_count_as_failures_for_real_clients() {
    let server = Health::start(limited(Policy::new("logins", Quota::per_hour(5)).count(Count::failures())).0).await;
    let mut client = server.client().await;
    for _ in 0..7 {
        assert!(call(&mut client, None).await.is_ok(), "successes cost nothing");
    }
    let mut guess = async || {
        let request = tonic::Request::new(HealthCheckRequest { service: "nobody".into() });
        soon(client.check(request)).await.expect_err("there is no such service").code()
    };
    for _ in 0..5 {
        assert_eq!(guess().await, Code::NotFound);
    }
    assert_eq!(guess().await, Code::ResourceExhausted);
}

#[test]
fn a_refused_call_had_no_decision_for_outer_layers() {
    let inner = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())));
    let service = limited(Policy::new("calls", Quota::per_hour(1))).0.layer(inner);
    let send = || {
        let request = Request::post("/").version(Version::HTTP_2).header("te", "trailers");
        let request = request.header("content-type", "application/grpc").body(String::new()).expect("a request");
        service.clone().oneshot(request).now_or_never().expect("an answer at once").expect("a response")
    };
    for allowed in [true, false, false] {
        let response = send();
        assert_eq!(response.headers().contains_key("grpc-status"), !allowed);
        assert_eq!(response.extensions().get().map(Decision::is_allowed), Some(allowed));
    }
}

#[tokio::test]
async fn calls_are_admitted_again_when_the_wait_is_over_on_the_same_connection() {
    let (layer, clock) = limited(Policy::new("calls", Quota::fixed_window(3, Duration::from_secs(60))));
    let server = Health::start(layer).await;
    let mut client = server.client().await;
    for round in 0..3 {
        clock.set(at(round * 60 * S));
        for _ in 0..3 {
            assert!(call(&mut client, None).await.is_ok());
        }
        let status = refused(&mut client).await;
        assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), "60000");
    }
}
