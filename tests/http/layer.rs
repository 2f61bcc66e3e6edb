//! The layer around small services: readiness, refusals, keys, cancellation, and stores that fail.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures::FutureExt;
use futures::channel::oneshot;
use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, StreamBody};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tollgate::body::{ResponseBody, ResponseFuture};
use tollgate::key::{self, Extracted, KeyExtractor, KeyInfo};
use tollgate::policy::{AccessList, Count, MissingKey, PolicyName};
use tollgate::response::{Denial, DenialReason};
use tollgate::status::StatusService;
use tollgate::store::{
    ChangeResult, Check, Counter, MaybeFuture, Receipt, ReceiptItem, Settlement, Store, StoreDecision,
};
use tollgate::test_util::{FailingStore, Held, ManualClock};
use tollgate::{
    Ban, Decision, Error, Key, Limiter, MemoryStore, OnFailure, Outcome, Policy, Quota, RateLimit, RateLimitHandle,
    RateLimitHeaders, RateLimitLayer, Rule, Source,
};
use tollgate_test::{Recorded, RecordingStore, StoreFn};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_test::mock;

use crate::rig::{self, Text, call, expect, line, of, request, responding, send, text, with};
use crate::support::doubles::{away, unavailable};
use crate::support::time::memory;

const ONE: Quota = Quota::per_hour(1);
const MANY: Quota = Quota::per_hour(1_000);
const HOUR: Duration = Duration::from_secs(3_600);

fn layer(policy: Policy) -> RateLimitLayer {
    rig::layer([policy]).expose_decisions()
}

fn all(quota: Quota) -> Policy {
    Policy::new("all", quota)
}

fn per_user(quota: Quota) -> Policy {
    Policy::new("user", quota).key(key::header("x-user"))
}

/// An inner service that counts its calls.
#[derive(Clone, Default)]
struct Hello {
    calls: Arc<AtomicUsize>,
}

impl Hello {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Service<Request<String>> for Hello {
    type Response = Response<Text>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Text>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Response::new(Text::from("hello"))))
    }
}

#[track_caller]
fn statuses<S, B>(service: &S, rows: impl IntoIterator<Item = (Request<String>, u16)>)
where
    S: Service<Request<String>, Response = Response<B>, Error: fmt::Debug> + Clone,
{
    for (place, (request, status)) in rows.into_iter().enumerate() {
        assert_eq!(send(service, request).status(), status, "request {place}");
    }
}

#[track_caller]
fn decision<B>(response: &Response<B>) -> &Decision {
    response.extensions().get().expect("a decision among the extensions")
}

/// A store that admits or refuses all, and records it.
fn recorded(fits: bool) -> RecordingStore<impl Store> {
    RecordingStore::new(StoreFn::new(move |_| fits))
}

/// The checks of each decision that a store was asked for.
fn asked(store: &RecordingStore<impl Store>) -> Vec<Vec<Check>> {
    let checks = |call| if let Recorded::Decide(checks) = call { Some(checks) } else { None };
    store.recorded().into_iter().filter_map(checks).collect()
}

/// How many decisions were settled.
fn settled(store: &RecordingStore<impl Store>) -> usize {
    store.recorded().iter().filter(|call| matches!(call, Recorded::Settle(..))).count()
}

/// A store that admits or refuses all, but does not answer before it is released.
fn slow(fits: bool) -> (Held, impl Store) {
    let store = FailingStore::new(StoreFn::new(move |_| fits));
    (store.hold(), store)
}

// Readiness.

/// A service whose clones are not ready, and which insists on being asked.
#[derive(Default)]
struct Strict {
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false }
    }
}

impl Service<Request<String>> for Strict {
    type Response = Response<Text>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Text>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        assert!(mem::take(&mut self.ready), "called without having been polled ready");
        std::future::ready(Ok(Response::default()))
    }
}

#[test]
fn the_instance_that_was_polled_ready_is_the_one_called_and_is_not_kept_behind_a_refusal() {
    let mut service = layer(all(Quota::per_hour(2))).layer(Strict::default());
    for status in [200, 200, 429, 429] {
        let ready = rig::now(service.ready());
        assert_eq!(rig::now(ready.call(request())).status(), status);
        assert!(!service.get_ref().ready, "what stays behind has to be polled again");
    }
}

#[test]
fn a_permit_of_the_service_inside_is_held_while_the_store_decides_and_free_after_that_or_a_drop() {
    for is_dropped in [false, true] {
        let (held, store) = slow(true);
        let hello = Hello::default();
        let inner = ConcurrencyLimit::new(hello.clone(), 1);
        let mut service = mock::Spawn::new(RateLimitLayer::new(store, all(MANY)).layer(inner));
        let (mut first, kept) = (request(), Arc::new(()));
        first.extensions_mut().insert(Arc::clone(&kept));
        assert_ready_ok!(service.poll_ready());
        let mut first = task::spawn(service.call(first));
        assert_pending!(first.poll());
        assert_pending!(service.poll_ready(), "the only permit is taken while the store decides");
        if is_dropped {
            drop(first);
            assert_eq!(Arc::strong_count(&kept), 1, "the request is gone");
            assert_ready_ok!(service.poll_ready(), "its place in the inner service is free");
            held.release();
            assert_eq!(hello.calls(), 0);
        } else {
            held.release();
            assert_eq!(assert_ready_ok!(first.poll()).status(), 200);
            drop(first);
            assert_ready_ok!(service.poll_ready());
            assert_eq!(rig::now(service.call(request())).status(), 200);
        }
    }
}

#[test]
fn a_layer_is_ready_when_the_service_inside_is_and_fails_as_that_does() {
    let (mut service, mut inner) = mock::spawn_layer::<Request<String>, Response<Text>, _>(layer(all(MANY)));
    inner.allow(0);
    assert_pending!(service.poll_ready());
    inner.allow(1);
    assert_ready_ok!(service.poll_ready());
    let (mut service, mut inner) = mock::spawn_layer::<Request<String>, Response<Text>, _>(layer(all(MANY)));
    inner.send_error("broken");
    assert_eq!(assert_ready_err!(service.poll_ready()).to_string(), "broken");
}

// Refusals.

#[test]
fn a_denied_request_never_reaches_the_inner_service() {
    let hello = Hello::default();
    let service = layer(all(ONE)).layer(hello.clone());
    statuses(&service, [(request(), 200), (request(), 429)]);
    assert_eq!(hello.calls(), 1);

    let (held, store) = slow(false);
    let service = RateLimitLayer::new(store, all(MANY)).layer(hello.clone());
    let mut response = task::spawn(service.oneshot(request()));
    assert_pending!(response.poll());
    held.release();
    assert!(response.is_woken());
    assert_eq!((assert_ready_ok!(response.poll()).status().as_u16(), hello.calls()), (429, 1));
}

#[test]
fn a_request_refused_by_one_policy_costs_nothing_on_the_others() {
    let wide = || Policy::new("wide", Quota::per_hour(10));
    for policies in [[wide(), per_user(ONE)], [per_user(ONE), wide()]] {
        let service = rig::layer(policies).layer(Hello::default());
        statuses(&service, [(of("ada"), 200)]);
        statuses(&service, (0..20).map(|_| (of("ada"), 429)));
        statuses(&service, ["b", "c", "d", "e", "f", "g", "h", "i", "j"].map(|user| (of(user), 200)));
        let refused = send(&service, of("k"));
        assert_eq!((refused.status().as_u16(), &line(refused.headers(), "ratelimit")[..6]), (429, "\"wide\""));
    }
}

#[test]
fn all_policies_of_a_layer_are_one_question_to_the_store() {
    let store = recorded(true);
    let layer = RateLimitLayer::composite(store.clone()).user(MANY, key::header("x-user").plain()).global(MANY);
    statuses(&layer.layer(Hello::default()), [(of("ada"), 200)]);
    let [checks] = &asked(&store)[..] else { panic!("one question") };
    let names = checks.iter().map(|check| format!("{} {}", check.counter.policy(), check.counter.key()));
    assert_eq!(names.collect::<Vec<_>>(), ["user header x-user:ada", "global global:"]);
}

#[test]
fn a_request_that_no_policy_applies_to_needs_no_store_and_has_no_headers() {
    let store = RecordingStore::new(unavailable());
    let none = RateLimitLayer::composite(store.clone()).on_failure(OnFailure::Deny);
    for layer in [none.clone(), none.clone().policy(per_user(MANY))] {
        let response = send(&layer.layer(Hello::default()), request());
        assert_eq!((response.status(), response.headers().len()), (StatusCode::OK, 0));
        assert_eq!(text(response), "hello");
    }
    assert!(store.recorded().is_empty());
    statuses(&none.policy(per_user(MANY)).layer(Hello::default()), [(of("ada"), 503)]);
}

#[test]
fn a_refusal_without_a_wait_is_told_as_a_second_not_as_zero() {
    let store = StoreFn::new(|_| false).retry_after(Duration::ZERO);
    let response = send(&RateLimitLayer::new(store, all(MANY)).layer(Hello::default()), request());
    expect(response.headers(), &[("retry-after", "1"), ("ratelimit", "\"all\";r=0;t=1")]);
}

// The response to a refused request.

#[test]
fn the_rejection_closure_sees_the_head_and_the_decision() {
    let layer = layer(all(ONE)).on_denied_http(|parts: &Parts, denial: &Denial<'_>| {
        let name = denial.decision().and_then(Decision::binding).expect("a binding policy").policy();
        let response = Response::builder().status(StatusCode::IM_A_TEAPOT).header("x-mine", "yes");
        response.body(format!("{} {} over {name}", parts.method, parts.uri)).expect("a response")
    });
    let service = layer.layer(Hello::default());
    statuses(&service, [(request(), 200)]);
    let mut request = request();
    *request.uri_mut() = "/search?q=1".parse().unwrap();
    let response = send(&service, request);
    assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
    let ours = [("retry-after", "3600"), ("ratelimit", "\"all\";r=0;t=3600"), ("content-type", "")];
    expect(response.headers(), &[("x-mine", "yes"), ("cache-control", "no-store"), ours[0], ours[1], ours[2]]);
    assert_eq!(text(response), "GET /search?q=1 over all");
}

#[test]
fn the_rejection_closure_makes_every_response_of_the_layer_and_is_told_the_reason() {
    let closure = |_: &Parts, denial: &Denial<'_>| {
        let reason = match denial.reason() {
            DenialReason::RateLimited(_) => "limited",
            DenialReason::Banned(_) => "banned",
            DenialReason::MissingKey => "no key",
            DenialReason::AmbiguousKey => "ambiguous",
            DenialReason::DenyListed => "listed",
            DenialReason::Unavailable => "unavailable",
            other => panic!("{other:?} is new"),
        };
        let (status, wait) = (denial.status().as_u16(), denial.retry_after().map(|wait| wait.as_secs()));
        let text = format!("{reason} {status} {wait:?} {}", denial.decision().is_some());
        Response::builder().status(StatusCode::IM_A_TEAPOT).body(text).expect("a response")
    };
    let denies = || per_user(ONE).missing_key(MissingKey::Deny);
    let banning = denies().ban(Ban::new(1, HOUR, Duration::from_secs(60)).of_verified_keys());
    let listed = denies().deny(AccessList::default().key("ada"));
    let down = RateLimitLayer::new(unavailable(), denies()).on_failure(OnFailure::Deny);
    let two = with(of("ada"), "x-user", "bob");
    for (layer, second, expected) in [
        (layer(denies()), of("ada"), "limited 429 Some(3600) true"),
        (layer(banning), of("ada"), "banned 429 Some(3600) true"),
        (layer(denies()), request(), "no key 403 None false"),
        (layer(denies()), two, "ambiguous 400 None false"),
        (layer(listed), of("ada"), "listed 403 None false"),
        (down, of("ada"), "unavailable 503 Some(1) false"),
    ] {
        let service = layer.clone().on_denied_http(closure).layer(Hello::default());
        send(&service, of("ada"));
        let response = send(&service, second.clone());
        assert_eq!(response.status(), StatusCode::IM_A_TEAPOT, "{expected}");
        expect(response.headers(), &[("cache-control", "no-store"), ("content-type", "")]);
        assert_eq!(response.headers().contains_key(RETRY_AFTER), expected.contains("Some"), "{expected}");
        assert_eq!(text(response), expected);
        // Clients of gRPC read nothing but its status.
        let mut grpc = call();
        grpc.headers_mut().extend(second.headers().clone());
        let response = send(&service, grpc);
        assert_eq!((response.status(), response.headers().contains_key("grpc-status")), (StatusCode::OK, true));
        // What an extractor rejects is its own.
        let rejects = key::from_fn(|_| {
            let response = Response::builder().status(451).body(Bytes::new()).expect("a response");
            Err::<&str, _>(Box::new(response))
        });
        let layer = layer.policy(Policy::new("other", MANY).key(rejects)).on_denied_http(closure);
        assert_eq!(send(&layer.layer(Hello::default()), of("bob")).status(), 451, "{expected}");
    }
}

#[test]
fn a_denial_has_the_very_number_of_its_retry_after() {
    let closure = |_: &Parts, denial: &Denial<'_>| Response::new(format!("{:?}", denial.retry_after_secs()));
    let ban = Ban::new(1, HOUR, Duration::from_secs(60)).of_verified_keys();
    // Its clock stands, half a second before there is a unit again.
    let halves = layer(all(Quota::per_second(2).burst(1)));
    for (layer, least) in [
        (halves, Some(1)),
        (layer(per_user(ONE)), Some(3_600)),
        (layer(per_user(ONE).ban(ban)), Some(3_600)),
        (layer(per_user(ONE).cost_by(|_| 3)), None),
        (RateLimitLayer::new(unavailable(), per_user(ONE)).on_failure(OnFailure::Deny), Some(1)),
    ] {
        for jitter in [0, 30] {
            let headers = RateLimitHeaders::both().jitter(Duration::from_secs(jitter));
            let service = layer.clone().headers(headers).on_denied_http(closure).layer(Hello::default());
            send(&service, of("ada"));
            for _ in 0..20 {
                let response = send(&service, of("ada"));
                let wait: Option<u64> = line(response.headers(), "retry-after").parse().ok();
                assert!((least..=least.map(|least| least + jitter + 1)).contains(&wait), "{wait:?} of {least:?}");
                assert_eq!(text(response), format!("{wait:?}"));
            }
        }
    }
}

#[test]
fn what_the_rejection_closure_sets_is_kept() {
    let fields = [("retry-after", "9000"), ("cache-control", "private"), ("x-ratelimit-limit", "mine")];
    let layer = layer(all(ONE)).on_denied_http(move |_: &Parts, _: &Denial<'_>| {
        let response =
            fields.iter().fold(Response::builder().status(429), |all, (name, value)| all.header(*name, *value));
        response.header("set-cookie", "a=1").header("set-cookie", "b=2").body("").expect("a response")
    });
    let service = layer.layer(Hello::default());
    statuses(&service, [(request(), 200)]);
    let response = send(&service, request());
    expect(response.headers(), &fields);
    expect(response.headers(), &[("x-ratelimit-remaining", "0")]);
    assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
    let body = response.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true), "it ends at once");
}

#[cfg(feature = "axum")]
#[test]
fn a_rejection_may_be_whatever_axum_makes_a_response_of_if_its_body_is_there_and_ends() {
    use axum::Json;
    use axum::body::Body;
    use futures::stream::{pending, repeat_with};

    let layer = || layer(all(ONE));
    let last = |layer: RateLimitLayer| {
        let service = layer.layer(Hello::default());
        statuses(&service, [(request(), 200)]);
        send(&service, request())
    };
    let response = last(layer().on_denied(|parts, denial| {
        let wait = denial.retry_after().map_or(0, |wait| wait.as_secs());
        (StatusCode::IM_A_TEAPOT, [("x-path", parts.uri.path().to_owned())], Json([wait]))
    }));
    assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
    expect(response.headers(), &[("content-type", "application/json"), ("x-path", "/"), ("cache-control", "no-store")]);
    assert_eq!(text(response), "[3600]");

    let wrong_length = [("content-length", "99"), ("transfer-encoding", "chunked")];
    let response = last(layer().on_denied(move |_, _| (wrong_length, "later")));
    expect(response.headers(), &[("content-length", ""), ("transfer-encoding", "")]);
    assert_eq!(text(response), "later");

    // The layer responds itself where a body is streamed, or has no end.
    let more = || Ok::<_, Infallible>(Bytes::from_static(b"more"));
    let streamed = || Body::from_stream(pending::<Result<Bytes, Infallible>>());
    let endless = move || Body::from_stream(repeat_with(more));
    for layer in [layer().on_denied(move |_, _| streamed()), layer().on_denied(move |_, _| endless())] {
        let response = last(layer);
        assert_eq!(response.status(), 429);
        expect(response.headers(), &[("retry-after", "3600"), ("content-type", "application/problem+json")]);
    }
}

// The decision.

#[test]
fn the_inner_service_and_outer_layers_see_the_decision() {
    let inner = responding(|request| {
        let decision = request.extensions().get::<RateLimitHandle>().expect("a handle").decision();
        Response::new(Text::from(decision.outcomes()[0].remaining().to_string()))
    });
    let service = layer(all(ONE)).layer(inner);
    let (admitted, refused) = (send(&service, request()), send(&service, request()));
    for (response, is_allowed) in [(&admitted, true), (&refused, false)] {
        let decision = decision(response);
        assert_eq!((decision.is_allowed(), decision.source()), (is_allowed, Source::Store));
        assert_eq!(decision.binding().map(Outcome::policy), Some("all"));
        assert_eq!(decision.denied_by().count(), usize::from(!is_allowed));
    }
    assert_eq!(text(admitted), "0");
}

#[derive(Debug, PartialEq)]
struct Broken(u8);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken {}", self.0)
    }
}

impl StdError for Broken {}

#[test]
fn what_is_given_back_is_settled_once_whatever_becomes_of_the_request() {
    let of = |policy: fn(Policy) -> Policy| {
        let store = recorded(true);
        (RateLimitLayer::new(store.clone(), policy(all(MANY))), store)
    };
    let (layer, store) = of(|policy| policy.count(Count::failures()));
    statuses(&layer.layer(Hello::default()), [(request(), 200)]);
    assert_eq!(settled(&store), 1, "answered");

    let (layer, store) = of(|policy| policy.count(Count::successes()));
    let failing = service_fn(|_: Request<String>| async { Err::<Response<Text>, _>(Broken(7)) });
    let error = layer.layer(failing).oneshot(request()).now_or_never().expect("at once").map(drop);
    assert_eq!((error, settled(&store)), (Err(Broken(7)), 1), "errors of the inner service pass as they are");

    let (layer, store) = of(Policy::refund_dropped);
    let stuck = service_fn(|_: Request<String>| pending::<Result<Response<Text>, Broken>>());
    assert!(layer.layer(stuck).oneshot(request()).now_or_never().is_none());
    assert_eq!(settled(&store), 1, "dropped while the inner service worked");
    drop(layer.layer(Hello::default()).call(request()));
    assert_eq!(settled(&store), 2, "dropped before it was polled");
}

#[test]
fn a_request_that_keeps_what_it_took_or_is_refused_has_nothing_to_settle() {
    for (fits, policy, status) in [(true, all(MANY), 200), (false, all(MANY).metered(), 429)] {
        let store = recorded(fits);
        statuses(&RateLimitLayer::new(store.clone(), policy).layer(Hello::default()), [(request(), status)]);
        assert_eq!((asked(&store).len(), settled(&store)), (1, 0), "{status}");
    }
}

// Keys.

/// An extractor that looks the user up once its gate is opened.
#[derive(Clone)]
struct Later {
    gate: futures::future::Shared<oneshot::Receiver<()>>,
    find: fn(String) -> Extracted,
}

impl Later {
    fn new(find: fn(String) -> Extracted) -> (oneshot::Sender<()>, Self) {
        let (open, gate) = oneshot::channel();
        (open, Self { gate: gate.shared(), find })
    }

    /// Finds each user.
    fn user() -> (oneshot::Sender<()>, Self) {
        Self::new(|user| Extracted::Key(Key::new("user", user)))
    }
}

impl KeyExtractor for Later {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        let Some(user) = parts.headers.get("x-user") else { return MaybeFuture::Ready(Extracted::Missing) };
        let (user, gate, find) = (user.to_str().expect("ASCII").to_owned(), self.gate.clone(), self.find);
        MaybeFuture::pending(async move {
            gate.await.expect("the gate is opened");
            find(user)
        })
    }
}

/// A key that no request has, and which they share then.
#[derive(Clone)]
struct Shared;

impl KeyExtractor for Shared {
    fn extract(&self, _: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(Extracted::Missing)
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::default().missing_key(MissingKey::Share)
    }
}

/// Users, paths and the statuses of their responses.
type Requests<'a> = &'a [(&'a str, &'a str, u16)];

#[test]
fn each_value_of_a_key_has_a_counter_of_its_own() {
    let user = || key::header("x-user");
    let by_path = |parts: &Parts| parts.uri.path().to_owned();
    let (open, later) = Later::user();
    open.send(()).expect("it waits");
    let rows: [(&str, Arc<dyn KeyExtractor>, Requests<'_>); 5] = [
        ("a header", Arc::new(user()), &[("ada", "/", 200), ("ada", "/b", 429), ("bob", "/", 200), ("", "/", 200)]),
        ("a closure", Arc::new(by_path), &[("ada", "/a", 200), ("bob", "/a?x", 429), ("ada", "/b", 200)]),
        (
            "a pair",
            Arc::new((user(), key::path())),
            &[
                ("ada", "/a", 200),
                ("ada", "/a", 429),
                ("ada", "/b", 200),
                ("bob", "/a", 200),
                ("", "/", 200),
                ("", "/", 200),
            ],
        ),
        (
            "a pair with one that is late",
            Arc::new((key::path(), later)),
            &[("ada", "/", 200), ("ada", "/", 429), ("bob", "/", 200)],
        ),
        ("a pair that is shared", Arc::new((user(), Shared)), &[("ada", "/", 200), ("bob", "/", 429)]),
    ];
    for (name, key, requests) in rows {
        let service = layer(Policy::new("all", ONE).key(key)).layer(Hello::default());
        for (user, path, status) in requests {
            let mut request = if user.is_empty() { request() } else { of(user) };
            *request.uri_mut() = path.parse().expect("a path");
            assert_eq!(send(&service, request).status(), *status, "{name}: {user} at {path}");
        }
    }
}

#[test]
fn a_request_without_a_key_is_skipped_refused_or_counted_as_the_policy_says() {
    let skips = layer(per_user(MANY)).policy(all(ONE)).layer(Hello::default());
    let response = send(&skips, request());
    expect(response.headers(), &[("ratelimit-policy", "\"all\";q=1;w=3600")]);
    statuses(&skips, [(of("ada"), 429)]);

    let hello = Hello::default();
    let denies = layer(per_user(ONE).missing_key(MissingKey::Deny)).layer(hello.clone());
    let response = send(&denies, request());
    assert_eq!((response.status().as_u16(), hello.calls()), (403, 0));
    expect(response.headers(), &[("content-type", "application/problem+json"), ("cache-control", "no-store")]);
    statuses(&denies, [(of("ada"), 200)]);

    let shares = layer(per_user(ONE).missing_key(MissingKey::Share)).layer(Hello::default());
    statuses(&shares, [(request(), 200), (request(), 429), (of("ada"), 200)]);
}

#[test]
#[allow(clippy::result_large_err, reason = "a response as it is made is what users return")]
fn an_extractor_can_refuse_a_request_at_once_or_later_and_then_no_policy_is_charged() {
    let token = key::from_fn(|parts| match parts.headers.get("x-user") {
        Some(user) => Ok(Key::hashed("user", user)),
        None => Err(Response::builder().status(401).body(Bytes::from_static(b"who are you?")).expect("a response")),
    });
    let hello = Hello::default();
    let service = layer(all(ONE)).user(MANY, token).layer(hello.clone());
    for _ in 0..3 {
        let response = send(&service, request());
        assert_eq!((response.status(), text(response).as_str()), (StatusCode::UNAUTHORIZED, "who are you?"));
    }
    assert_eq!(hello.calls(), 0);
    statuses(&service, [(of("ada"), 200)]);

    let refuse = |_| Extracted::Rejected(Box::new(Response::builder().status(401).body(Bytes::new()).unwrap()));
    let (open, lookup) = Later::new(refuse);
    open.send(()).expect("it waits");
    let store = recorded(true);
    let layer = RateLimitLayer::composite(store.clone()).global(MANY).user(MANY, lookup).policy(all(MANY));
    statuses(&layer.layer(hello.clone()), [(of("ada"), 401)]);
    let [checks] = &asked(&store)[..] else { panic!("one look") };
    assert!(checks.iter().all(|check| check.cost == 0), "{checks:?}");
    assert_eq!(hello.calls(), 1);
}

#[test]
fn a_key_that_has_to_be_looked_up_is_waited_for() {
    let (open, lookup) = Later::user();
    let hello = Hello::default();
    let [first, last] = ["first", "last"].map(|name| Policy::new(name, MANY).key(key::header("x-user").plain()));
    let layer = layer(first).policy(Policy::new("later", ONE).key(lookup)).policy(last);
    let service = layer.layer(hello.clone());
    let mut response = task::spawn(service.clone().oneshot(of("ada")));
    assert_pending!(response.poll());
    assert_eq!(hello.calls(), 0);
    open.send(()).expect("it waits");
    let response = assert_ready_ok!(response.poll());
    let names: Vec<&str> = decision(&response).outcomes().iter().map(Outcome::policy).collect();
    assert_eq!(names, ["first", "later", "last"]);
    statuses(&service, [(of("ada"), 429), (of("bob"), 200), (request(), 200)]);
}

// Types.

fn assert_kind<T: Clone + Send + Sync + 'static>() {}
fn assert_shared<T: fmt::Debug + Send + Sync + 'static>() {}
fn assert_send<T: Send>() {}

#[test]
fn what_users_keep_can_be_cloned_sent_shared_and_printed() {
    assert_kind::<(RateLimitLayer, RateLimit<Hello>, Decision, Policy)>();
    assert_send::<(ResponseFuture<Hello, String>, ResponseBody<Text>, MaybeFuture<StoreDecision>)>();
    assert_shared::<(Counter, Check, Settlement, ReceiptItem, ChangeResult, Outcome)>();
    assert_shared::<(Decision, StoreDecision, Receipt, Error, RateLimitHandle, RateLimitHeaders)>();
    assert_shared::<(Key, PolicyName, Quota, Rule, Policy, Extracted)>();
    assert_shared::<(RateLimitLayer, RateLimit<()>, StatusService, Limiter, MemoryStore)>();
    let service = layer(all(MANY)).layer(Hello::default());
    statuses(&service, [(request(), 200)]);
    assert_eq!(service.into_inner().calls(), 1);
}

/// A chunk of a body that is not `Bytes`.
struct Chunk(VecDeque<u8>);

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        Self(VecDeque::from(Vec::from(bytes)))
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.0.remaining()
    }
    fn chunk(&self) -> &[u8] {
        self.0.chunk()
    }
    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }
}

#[test]
fn any_body_that_can_hold_bytes_will_do() {
    let inner = service_fn(|_: Request<Text>| async {
        let chunk = Frame::data(Chunk::from(Bytes::from_static(b"ab")));
        Ok::<_, Infallible>(Response::new(StreamBody::new(futures::stream::iter([Ok(chunk), Err(Broken(9))]))))
    });
    let service = layer(all(ONE)).layer(inner);
    let mut body = send(&service, Request::new(Text::default())).into_body();
    let frame = body.frame().now_or_never().unwrap().unwrap().unwrap();
    assert_eq!(frame.into_data().ok().unwrap().chunk(), b"ab");
    let error = body.frame().now_or_never().unwrap().unwrap().err().unwrap();
    assert_eq!(error.source().and_then(<dyn StdError>::downcast_ref), Some(&Broken(9)));

    let refusal = send(&service, Request::new(Text::default()));
    assert_eq!(refusal.status(), 429);
    assert!(text(refusal).starts_with("{\"type\":"));
}

#[test]
fn bodies_know_their_size_and_their_end_and_pass_trailers_on() {
    let inner = responding(|_| {
        let trailers = HeaderMap::from_iter([("x-sum".parse().expect("a name"), HeaderValue::from_static("42"))]);
        Response::new(Text::from("hello").with_trailers(std::future::ready(Some(Ok::<_, Infallible>(trailers)))))
    });
    let collected = rig::now(send(&layer(all(ONE)).layer(inner), request()).into_body().collect());
    assert_eq!(collected.trailers().map(|trailers| line(trailers, "x-sum")), Some("42"));

    let service = layer(all(ONE)).layer(Hello::default());
    let inner = send(&service, request()).into_body();
    assert_eq!((inner.size_hint().exact(), inner.is_end_stream()), (Some(5), false));
    let mut own = send(&service, request()).into_body();
    let size = own.size_hint().exact().expect("an exact size");
    assert!(!own.is_end_stream());
    let frame = own.frame().now_or_never().unwrap().unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap().len() as u64, size);
    assert_eq!((own.size_hint().exact(), own.is_end_stream()), (Some(0), true));
    assert!(own.frame().now_or_never().unwrap().is_none());
}

// Stores that fail.

#[tokio::test(start_paused = true)]
async fn without_its_store_a_layer_keeps_a_limit_of_its_own() {
    let fallback = (OnFailure::default(), [200, 200, 429], Source::Fallback);
    for (rule, statuses, source) in [fallback, (OnFailure::Allow, [200, 200, 200], Source::FailOpen)] {
        for is_late in [false, true] {
            let store = unavailable();
            if is_late {
                store.delay(Duration::from_millis(1));
            }
            let layer = RateLimitLayer::new(store, per_user(Quota::per_hour(2))).on_failure(rule);
            let service = layer.expose_decisions().layer(Hello::default());
            for status in statuses {
                let response = service.clone().oneshot(of("ada")).await.expect("a response");
                assert_eq!((response.status().as_u16(), decision(&response).source()), (status, source));
            }
            assert_eq!(service.clone().oneshot(of("bob")).await.expect("a response").status(), 200);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_can_refuse_everything_without_its_store() {
    for is_late in [false, true] {
        let (hello, store) = (Hello::default(), unavailable());
        if is_late {
            store.delay(Duration::from_millis(1));
        }
        let layer = RateLimitLayer::new(store, per_user(MANY)).on_failure(OnFailure::Deny);
        let response = layer.layer(hello.clone()).oneshot(of("ada")).await.expect("a response");
        assert_eq!((response.status().as_u16(), hello.calls()), (503, 0));
        expect(response.headers(), &[("content-type", "application/problem+json"), ("cache-control", "no-store")]);
        assert!(line(response.headers(), "retry-after").parse::<u64>().expect("a number") >= 1);
        let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
        let body = text(response);
        assert!(body.starts_with(&format!("{{\"type\":\"{kind}\",\"title\":")), "{body}");
        assert!(body.contains("\"status\":503"), "{body}");
    }
}

#[test]
fn a_retry_is_decided_by_the_fallback_if_the_store_failed_meanwhile() {
    let store = FailingStore::new(memory(&ManualClock::new()));
    let service = RateLimitLayer::new(store.clone(), per_user(ONE)).expose_decisions().layer(Hello::default());
    statuses(&service, [(of("ada"), 200), (of("ada"), 429)]);
    store.fail_with(away);
    let response = send(&service, of("ada"));
    assert_eq!((response.status(), decision(&response).source()), (StatusCode::OK, Source::Fallback));
}

#[test]
fn a_store_that_recovers_decides_again() {
    let store = FailingStore::new(memory(&ManualClock::new()));
    store.fail_with(away);
    let service = RateLimitLayer::new(store.clone(), per_user(ONE)).expose_decisions().layer(Hello::default());
    statuses(&service, [(of("ada"), 200), (of("ada"), 429)]);
    store.work();
    let response = send(&service, of("ada"));
    assert_eq!((response.status(), decision(&response).source()), (StatusCode::OK, Source::Store));
    statuses(&service, [(of("ada"), 429)]);
}
