//! gRPC: what calls are answered with, and what tonic's clients read over each transport.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate::policy::{AccessList, MissingKey};
use tollgate::store::SlotGuard;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, Key, Limiter, OnFailure, Policy, Quota, RateLimitHeaders, RateLimitLayer, Rule, key};
use tollgate_shed::{Class, FleetShedLayer, WorkerShedLayer};
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_web::{GrpcWebClientLayer, GrpcWebLayer};
use tower::util::{BoxCloneService, BoxCloneSyncServiceLayer};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};

use crate::rig::{self, call, expect, hello, layer, line, request, send, text, with};
use crate::support::doubles::unavailable;
use crate::support::soon::soon;
use crate::support::time::memory;

const HOURLY: Quota = Quota::per_hour(1);

fn calls(quota: Quota) -> Policy {
    Policy::new("calls", quota)
}

// What is sent.

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
        for (passed, pushback) in [(Duration::ZERO, pushback), (wait.saturating_sub(micros(1)), "1")] {
            clock.set(ManualClock::EPOCH + passed);
            let refused = send(&service, call());
            assert_eq!(refused.extensions().get().map(Decision::is_allowed), Some(false));
            expect(refused.headers(), &[("grpc-status", "8"), ("grpc-message", "rate limit exceeded")]);
            expect(refused.headers(), &[("grpc-retry-pushback-ms", pushback), ("cache-control", "no-store")]);
            if passed.is_zero() {
                expect(refused.headers(), &[("ratelimit", &format!("\"calls\";r=0;t={seconds}"))]);
            }
        }
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
    let versions = [Version::HTTP_11, Version::HTTP_2, Version::HTTP_3];
    for ((version, te), (method, kind, read)) in
        versions.into_iter().flat_map(|version| ["trailers", "gzip", ""].map(|te| (version, te))).flat_map(|how| {
            [
                (Method::POST, "application/grpc", "application/grpc"),
                (Method::POST, "application/grpc+proto", "application/grpc"),
                (Method::POST, "application/grpc; a=b", "application/grpc"),
                (Method::POST, "application/grpc-web", "application/grpc-web"),
                (Method::POST, "application/grpc-web+proto", "application/grpc-web"),
                (Method::POST, "application/grpc-web-text+proto", "application/grpc-web-text"),
                (Method::GET, "application/grpc", ""),
                (Method::POST, "application/json", ""),
                (Method::POST, "application/grpcx", ""),
                (Method::POST, "text/plain; application/grpc", ""),
            ]
            .map(|what| (how, what))
        })
    {
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

// What tonic reads.

const HOUR_MS: i64 = 3_600_000;

/// A layer on a tonic server, without its type.
type Boxed = BoxCloneSyncServiceLayer<Routes, Request<Body>, Response<Body>, Infallible>;

/// What carries the calls of a client.
type Transport = BoxCloneService<Request<Body>, Response<Body>, BoxError>;

fn boxed<L, R>(layer: L) -> Boxed
where
    L: Layer<Routes> + Send + Sync + 'static,
    L::Service: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone + Send + Sync + 'static,
    <L::Service as Service<Request<Body>>>::Future: Send + 'static,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    BoxCloneSyncServiceLayer::new(
        ServiceBuilder::new().map_response(|all: Response<R>| all.map(Body::new)).layer(layer),
    )
}

/// A layer inside of the one that translates gRPC-Web.
fn in_web(layer: Boxed) -> Boxed {
    boxed(ServiceBuilder::new().layer(GrpcWebLayer::new()).layer(layer))
}

/// The health service behind layers, stopped when dropped.
struct Health {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Health {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Health {
    /// Starts it behind a layer, which is around the one that translates gRPC-Web, or else inside of it.
    async fn start(layer: Boxed, is_around: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback device");
        let address = listener.local_addr().expect("it is bound");
        let (_, service) = tonic_health::server::health_reporter();
        let mut server = Server::builder().accept_http1(true).layer(if is_around { layer } else { in_web(layer) });
        let server = if is_around {
            server.add_service(GrpcWebLayer::new().layer(service))
        } else {
            server.add_service(service)
        };
        let serving = server.serve_with_incoming(TcpIncoming::from(listener));
        Self { address, task: tokio::spawn(async move { serving.await.expect("the server runs") }) }
    }

    fn client(&self, transport: Transport) -> HealthClient<Transport> {
        HealthClient::with_origin(transport, format!("http://{}", self.address).parse().expect("a URI"))
    }

    /// A client of its own connection, from an address.
    fn http2(&self, from: &str) -> Transport {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("an address");
        let endpoint = endpoint.local_address(Some(from.parse().expect("an address")));
        BoxCloneService::new(endpoint.connect_lazy().map_err(BoxError::from))
    }

    /// The gRPC-Web client of tonic-web.
    fn web(version: Version) -> Transport {
        let client = Client::builder(TokioExecutor::new()).http2_only(version == Version::HTTP_2).build_http();
        let service = ServiceBuilder::new().layer(GrpcWebClientLayer::new()).service(client);
        BoxCloneService::new(service.map_response(|response| response.map(Body::new)).map_err(BoxError::from))
    }
}

/// Calls the service as clients with these values of `x-user`; returns the status, if it is not a success.
async fn check(client: &mut HealthClient<Transport>, users: &[&'static str]) -> Result<(), Status> {
    let mut request = tonic::Request::new(HealthCheckRequest { service: String::new() });
    for user in users {
        request.metadata_mut().append("x-user", user.parse().expect("ASCII"));
    }
    soon(client.check(request)).await.map(drop)
}

/// A layer that refuses calls, and what the client reads.
struct Case {
    name: String,
    layer: Boxed,
    users: &'static [&'static str],
    /// How many calls come before the one that is looked at.
    before: u32,
    code: Code,
    message: &'static str,
    pushback: Option<RangeInclusive<i64>>,
    _slots: SlotGuard,
}

fn case(name: impl Into<String>, layer: Boxed, code: Code, message: &'static str) -> Case {
    let (users, slots) = (&[] as &[_], SlotGuard::default());
    Case { name: name.into(), layer, users, before: 0, code, message, pushback: None, _slots: slots }
}

/// By policies that refuse; the calls before are admitted, and begin a ban.
fn refusals() -> Vec<Case> {
    let ban = Ban::new(1, Duration::from_secs(60), Duration::from_secs(7_200));
    let all = |policy| layer([policy]);
    let custom = || (StatusCode::IM_A_TEAPOT, "slow down");
    let refused = "rate limit exceeded";
    let expensive = "the call costs more than the limit ever admits";
    [
        ("a policy", all(calls(HOURLY)), 1, refused, HOUR_MS),
        ("on_denied", all(calls(HOURLY)).on_denied(move |_, _| custom()), 1, refused, HOUR_MS),
        ("on_denied", all(calls(HOURLY)).on_denied_http(|_, _| Response::new("slow down")), 1, refused, HOUR_MS),
        ("a ban", all(calls(HOURLY).key(key::peer_ip()).ban(ban)), 2, "banned for a time", 2 * HOUR_MS),
        ("the cost", all(calls(HOURLY).cost_by(|_| 3)), 0, expensive, -1),
    ]
    .map(|(name, layer, before, message, pushback)| Case {
        before,
        pushback: Some(pushback..=pushback),
        ..case(name, boxed(layer), Code::ResourceExhausted, message)
    })
    .into()
}

/// By keys and lists.
fn keys() -> Vec<Case> {
    let user = || Policy::new("user", Quota::per_hour(5)).key(key::header("x-user")).missing_key(MissingKey::Deny);
    let list = AccessList::parse(["eve"]).expect("a key");
    let of = |policy| boxed(layer([policy]));
    let no_key = "The request does not identify its client.";
    let ambiguous = "The request does not identify its client or its cost unambiguously: what does must be present once and well-formed.";
    let denied = of(user().deny(list));
    vec![
        case("no key", of(user()), Code::PermissionDenied, no_key),
        Case { users: &["a", "b"], ..case("two", of(user()), Code::InvalidArgument, ambiguous) },
        Case { users: &["eve"], ..case("a list", denied, Code::PermissionDenied, "This client is not allowed.") },
    ]
}

/// By a response of a key extractor.
fn rejections() -> Vec<Case> {
    let by = |response: Response<Bytes>| {
        let key = move |_: &Parts| Err::<Key, _>(Box::new(response.clone()));
        boxed(layer([Policy::new("user", Quota::per_hour(5)).key(key)]))
    };
    let of = |status: u16, code: Code, message: &'static str| {
        let response = Response::builder().status(status).header("content-length", "4").body("who?".into());
        case(status.to_string(), by(response.expect("a response")), code, message)
    };
    vec![
        of(400, Code::InvalidArgument, "Bad Request"),
        of(401, Code::Unauthenticated, "Unauthorized"),
        of(403, Code::PermissionDenied, "Forbidden"),
        of(429, Code::ResourceExhausted, "Too Many Requests"),
        of(503, Code::Unavailable, "Service Unavailable"),
        of(418, Code::Unknown, "I'm a teapot"),
        case("tonic", by(Status::aborted("not now").into_http()), Code::Aborted, "not now"),
    ]
}

/// By shedders, and as there is no store.
fn unavailable_ones() -> Vec<Case> {
    let store = memory(&ManualClock::new());
    let slots = Limiter::new(store.clone(), [Rule::new("fleet.others", Quota::concurrency(1))]);
    let slots = slots.acquire(&Key::new("global", "")).now_or_never().expect("at once").expect("a decision").1;
    let fleet = FleetShedLayer::new(store, "fleet", Quota::concurrency(2), 0.5);
    let clock = ManualClock::new();
    let worker = WorkerShedLayer::measured("worker", || 1.0).clock(clock.clone()).classify(|_| Class::Test);
    let sampled = worker.layer(hello());
    for _ in 0..15 {
        clock.advance(Duration::from_secs(10));
        send(&sampled, request());
    }
    let deny = RateLimitLayer::new(unavailable(), calls(HOURLY)).on_failure(OnFailure::Deny);
    let of = |name: &str, layer, pushback| Case {
        pushback: Some(pushback),
        ..case(name, layer, Code::Unavailable, "temporarily reduced capacity")
    };
    vec![
        of("no store", boxed(deny), 1_000..=1_000),
        of("the worker", boxed(worker), 5_000..=10_000),
        Case { _slots: slots, ..of("the fleet", boxed(fleet), 1_000..=3_000) },
    ]
}

#[tokio::test]
async fn each_response_of_the_layers_is_a_status_that_tonic_reads_over_each_transport() {
    let transports = [("gRPC", None), ("web 1", Some(Version::HTTP_11)), ("web 2", Some(Version::HTTP_2))];
    for ((transport, version), is_around) in transports.into_iter().flat_map(|all| [(all, false), (all, true)]) {
        for case in [refusals(), keys(), rejections(), unavailable_ones()].into_iter().flatten() {
            let what = format!("{} by {transport}, around: {is_around}", case.name);
            let server = Health::start(case.layer, is_around).await;
            let mut client = server.client(version.map_or_else(|| server.http2("127.0.0.1"), Health::web));
            for _ in 0..case.before {
                drop(check(&mut client, case.users).await);
            }
            let status = check(&mut client, case.users).await.expect_err(&what);
            assert_eq!((status.code(), status.message()), (case.code, case.message), "{what}");
            let field = |name| status.metadata().get(name).map(|value| value.to_str().expect("ASCII"));
            let pushback: Option<i64> = field("grpc-retry-pushback-ms").map(|wait| wait.parse().expect("a number"));
            let is_right = |range: &RangeInclusive<i64>| pushback.is_some_and(|wait| range.contains(&wait));
            assert!(case.pushback.as_ref().map_or(pushback.is_none(), is_right), "{what}: {pushback:?}");
            assert_eq!(field("cache-control"), cached(case.code), "{what}");
        }
    }
}

/// What a response says to caches; that of tonic says nothing.
fn cached(code: Code) -> Option<&'static str> {
    (code != Code::Aborted).then_some("no-store")
}

#[cfg(feature = "tonic")]
#[tokio::test]
async fn a_tonic_server_counts_each_peer() {
    let server = Health::start(boxed(layer([calls(HOURLY).key(key::peer_ip())])), false).await;
    for peer in ["127.0.0.1", "127.0.0.2"] {
        let mut client = server.client(server.http2(peer));
        let admitted = soon(client.check(tonic::Request::new(HealthCheckRequest::default()))).await.expect(peer);
        expect(&admitted.metadata().clone().into_headers(), &[("ratelimit", "\"calls\";r=0;t=3600")]);
        let refused = check(&mut client, &[]).await.expect_err("it is the second");
        assert_eq!(refused.code(), Code::ResourceExhausted, "{peer}");
    }
}

#[tokio::test]
async fn methods_of_tonic_are_told_apart_by_their_path_and_not_by_routes() {
    const CHECK: &str = "/grpc.health.v1.Health/Check";
    let policy = || calls(HOURLY);
    for (policy, checks, watches) in [
        (policy().when(|parts| parts.uri.path() == CHECK), [true, false], [true, true]),
        (policy().key(key::path()), [true, false], [true, false]),
        (policy().routes([CHECK]), [true, true], [true, true]),
        (policy().key(key::route()), [true, false], [false, false]),
    ] {
        let server = Health::start(boxed(layer([policy])), false).await;
        let mut client = server.client(server.http2("127.0.0.1"));
        for is_ok in checks {
            assert_eq!(check(&mut client, &[]).await.is_ok(), is_ok);
        }
        for is_ok in watches {
            let request = tonic::Request::new(HealthCheckRequest { service: String::new() });
            assert_eq!(soon(client.watch(request)).await.is_ok(), is_ok);
        }
    }
}
