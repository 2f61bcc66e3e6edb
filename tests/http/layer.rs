//! The layer around small services: readiness, refusals, keys, cancellation, and stores that fail.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::mem;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures::FutureExt;
use futures::channel::oneshot;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
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

use crate::support::doubles::{away, unavailable};
use crate::support::time;

type Text = Full<Bytes>;
type Answered = Response<ResponseBody<Text>>;

const TWO: Quota = Quota::per_hour(2);
const MANY: Quota = Quota::per_hour(1_000);

fn request() -> Request<Text> {
    Request::new(Text::default())
}

/// A request of one user.
fn of(user: &'static str) -> Request<Text> {
    let mut request = request();
    request.headers_mut().insert("x-user", HeaderValue::from_static(user));
    request
}

/// A store whose clock stands still.
fn memory() -> MemoryStore {
    time::memory(&ManualClock::new())
}

fn layer(policy: Policy) -> RateLimitLayer {
    RateLimitLayer::new(memory(), policy).expose_decisions()
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

impl Service<Request<Text>> for Hello {
    type Response = Response<Text>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Text>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Text>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Response::new(Text::from("hello"))))
    }
}

/// The response of a service that answers at once.
#[track_caller]
fn send<S, B>(service: &S, request: Request<Text>) -> Response<B>
where
    S: Service<Request<Text>, Response = Response<B>, Error: fmt::Debug> + Clone,
{
    service.clone().oneshot(request).now_or_never().expect("an answer at once").expect("a response")
}

#[track_caller]
fn expect<S, B>(service: &S, request: Request<Text>, status: u16)
where
    S: Service<Request<Text>, Response = Response<B>, Error: fmt::Debug> + Clone,
{
    assert_eq!(send(service, request).status(), status);
}

#[track_caller]
fn text(response: Answered) -> String {
    let collected = response.into_body().collect().now_or_never().expect("a body at once").expect("a body");
    String::from_utf8(collected.to_bytes().into()).expect("text")
}

#[track_caller]
fn header<B>(response: &Response<B>, name: &str) -> String {
    let value = response.headers().get(name).unwrap_or_else(|| panic!("no {name}"));
    value.to_str().expect("ASCII").to_owned()
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

impl Service<Request<Text>> for Strict {
    type Response = Response<Text>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Text>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Text>) -> Self::Future {
        assert!(mem::take(&mut self.ready), "called without having been polled ready");
        std::future::ready(Ok(Response::default()))
    }
}

#[test]
fn the_instance_that_was_polled_ready_is_the_one_called() {
    let mut service = layer(Policy::new("all", MANY)).layer(Strict::default());
    for _ in 0..3 {
        let ready = service.ready().now_or_never().unwrap().unwrap();
        assert_eq!(ready.call(request()).now_or_never().unwrap().unwrap().status(), 200);
        assert!(!service.get_ref().ready, "what stays behind has to be polled again");
    }
}

#[test]
fn an_instance_that_was_polled_ready_is_not_kept_behind_a_refusal() {
    let mut service = layer(Policy::new("all", Quota::per_hour(1))).layer(Strict::default());
    for status in [200, 429, 429] {
        let ready = service.ready().now_or_never().unwrap().unwrap();
        assert_eq!(ready.call(request()).now_or_never().unwrap().unwrap().status(), status);
        assert!(!service.get_ref().ready, "what it holds while it is ready is held for nobody");
    }
}

#[test]
fn a_concurrency_limit_inside_is_called_with_the_permit_it_gave() {
    let (held, store) = slow(true);
    let inner = ConcurrencyLimit::new(Hello::default(), 1);
    let layer = RateLimitLayer::new(store, Policy::new("all", MANY));
    let mut service = mock::Spawn::new(layer.layer(inner));
    assert_ready_ok!(service.poll_ready());
    let mut first = task::spawn(service.call(request()));
    assert_pending!(first.poll());
    assert_pending!(service.poll_ready(), "the only permit is taken while the store decides");
    held.release();
    assert_eq!(assert_ready_ok!(first.poll()).status(), 200);
    drop(first);
    assert_ready_ok!(service.poll_ready());
    assert_eq!(service.call(request()).now_or_never().unwrap().unwrap().status(), 200);
}

#[test]
fn an_inner_service_that_is_not_ready_makes_the_layer_not_ready() {
    let (mut service, mut inner) =
        mock::spawn_layer::<Request<Text>, Response<Text>, _>(layer(Policy::new("all", TWO)));
    inner.allow(0);
    assert_pending!(service.poll_ready());
    inner.allow(1);
    assert_ready_ok!(service.poll_ready());
}

#[test]
fn an_inner_service_that_fails_to_become_ready_says_so() {
    let (mut service, mut inner) =
        mock::spawn_layer::<Request<Text>, Response<Text>, _>(layer(Policy::new("all", TWO)));
    inner.send_error("broken");
    assert_eq!(assert_ready_err!(service.poll_ready()).to_string(), "broken");
}

// Refusals.

#[test]
fn a_denied_request_never_reaches_the_inner_service() {
    let layer = layer(Policy::new("all", Quota::per_hour(1)));
    let (mut service, mut inner) = mock::spawn_layer::<Request<Text>, Response<Text>, _>(layer);
    assert_ready_ok!(service.poll_ready());
    let mut admitted = task::spawn(service.call(request()));
    assert_pending!(admitted.poll());
    let (_, answer) = assert_ready!(task::spawn(inner.next_request()).poll()).expect("the first request");
    answer.send_response(Response::default());
    assert_eq!(assert_ready_ok!(admitted.poll()).status(), 200);

    assert_ready_ok!(service.poll_ready());
    let mut denied = task::spawn(service.call(request()));
    assert_eq!(assert_ready_ok!(denied.poll()).status(), 429);
    assert_pending!(inner.poll_request());
}

#[test]
fn a_denied_request_is_not_passed_on_when_the_store_is_slow_to_deny() {
    let (held, store) = slow(false);
    let hello = Hello::default();
    let service = RateLimitLayer::new(store, Policy::new("all", MANY)).layer(hello.clone());
    let mut response = task::spawn(service.oneshot(request()));
    assert_pending!(response.poll());
    held.release();
    assert!(response.is_woken());
    assert_eq!(assert_ready_ok!(response.poll()).status(), 429);
    assert_eq!(hello.calls(), 0);
}

#[test]
fn a_denied_request_gives_back_the_readiness_it_was_given() {
    let inner = ConcurrencyLimit::new(Hello::default(), 1);
    let mut service = mock::Spawn::new(layer(Policy::new("all", Quota::per_hour(1))).layer(inner));
    for status in [200, 429, 429] {
        assert_ready_ok!(service.poll_ready());
        let mut response = task::spawn(service.call(request()));
        assert_eq!(assert_ready_ok!(response.poll()).status(), status);
    }
}

#[test]
fn a_request_refused_by_one_policy_costs_nothing_on_the_others() {
    let wide = || Policy::new("wide", Quota::per_hour(10));
    let narrow = || per_user(Quota::per_hour(1));
    for policies in [[wide(), narrow()], [narrow(), wide()]] {
        let service = RateLimitLayer::composite(memory()).policies(policies).layer(Hello::default());
        expect(&service, of("ada"), 200);
        for _ in 0..20 {
            expect(&service, of("ada"), 429);
        }
        for user in ["b", "c", "d", "e", "f", "g", "h", "i", "j"] {
            expect(&service, of(user), 200);
        }
        expect(&service, of("k"), 429);
        assert_eq!(header(&send(&service, of("k")), "ratelimit").split(';').next(), Some("\"wide\""));
    }
}

#[test]
fn a_refused_request_costs_nothing_on_the_policy_that_refuses() {
    let service = layer(Policy::new("all", Quota::per_hour(3)).cost(2)).layer(Hello::default());
    expect(&service, request(), 200);
    let first = decision(&send(&service, request())).retry_after().unwrap();
    let second = decision(&send(&service, request())).retry_after().unwrap();
    assert_eq!(first, second);
}

#[test]
fn all_policies_of_a_layer_are_one_question_to_the_store() {
    let store = recorded(true);
    let layer = RateLimitLayer::composite(store.clone()).user(TWO, key::header("x-user").plain()).global(MANY);
    expect(&layer.layer(Hello::default()), of("ada"), 200);
    let expected = [("user", "header x-user:ada"), ("global", "global:")];
    let [checks] = &asked(&store)[..] else { panic!("one question") };
    let names = checks.iter().map(|check| (check.counter.policy().to_string(), check.counter.key().to_string()));
    assert_eq!(names.collect::<Vec<_>>(), expected.map(|(policy, key)| (policy.to_owned(), key.to_owned())));
}

#[test]
fn a_layer_without_policies_admits_everything_and_adds_no_headers() {
    let service = RateLimitLayer::composite(memory()).layer(Hello::default());
    let response = send(&service, request());
    assert_eq!((response.status(), response.headers().len()), (StatusCode::OK, 0));
    assert_eq!(text(response), "hello");
}

#[test]
fn a_request_no_policy_applies_to_does_not_need_the_store() {
    let store = RecordingStore::new(unavailable());
    let layer = RateLimitLayer::new(store.clone(), per_user(TWO)).on_failure(OnFailure::Deny);
    let service = layer.layer(Hello::default());
    expect(&service, request(), 200);
    assert!(store.recorded().is_empty());
    expect(&service, of("ada"), 503);
}

#[test]
fn a_cost_of_zero_looks_and_takes_nothing() {
    let service = layer(Policy::new("all", Quota::per_hour(1)).cost_by(|_| 0)).layer(Hello::default());
    for _ in 0..5 {
        let response = send(&service, request());
        assert_eq!(decision(&response).outcomes()[0].remaining(), 1);
    }
}

#[test]
fn a_cost_above_the_capacity_is_refused_for_good() {
    let service = layer(Policy::new("all", Quota::per_hour(3)).cost_by(|_| 4)).layer(Hello::default());
    let response = send(&service, request());
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers().get(RETRY_AFTER), None);
    assert!(text(response).contains("Do not retry"));
}

#[test]
fn a_refusal_without_a_wait_is_told_as_a_second_not_as_zero() {
    let store = StoreFn::new(|_| false).retry_after(Duration::ZERO);
    let response = send(&RateLimitLayer::new(store, Policy::new("all", MANY)).layer(Hello::default()), request());
    assert_eq!(header(&response, "retry-after"), "1");
    assert_eq!(header(&response, "ratelimit"), "\"all\";r=0;t=1");
}

// The response to a refused request.

#[test]
fn the_rejection_closure_sees_the_head_and_the_decision() {
    let layer = layer(Policy::new("all", Quota::per_hour(1))).on_denied_http(|parts: &Parts, denial: &Denial<'_>| {
        let name = denial.decision().and_then(Decision::binding).expect("a binding policy").policy();
        let response = Response::builder().status(StatusCode::IM_A_TEAPOT).header("x-mine", "yes");
        response.body(format!("{} {} over {name}", parts.method, parts.uri)).expect("a response")
    });
    let service = layer.layer(Hello::default());
    expect(&service, request(), 200);
    let mut request = request();
    *request.uri_mut() = "/search?q=1".parse().unwrap();
    let response = send(&service, request);
    assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
    assert_eq!(header(&response, "x-mine"), "yes");
    assert_eq!(header(&response, "cache-control"), "no-store");
    assert_eq!(header(&response, "retry-after"), "3600");
    assert_eq!(header(&response, "ratelimit"), "\"all\";r=0;t=3600");
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
    let denies = || per_user(Quota::per_hour(1)).missing_key(MissingKey::Deny);
    let banning = denies().ban(Ban::new(1, Duration::from_secs(3_600), Duration::from_secs(60)).of_verified_keys());
    let listed = denies().deny(AccessList::default().key("ada"));
    let down = RateLimitLayer::new(unavailable(), denies()).on_failure(OnFailure::Deny);
    let (one, two) = (of("ada"), {
        let mut request = of("ada");
        request.headers_mut().append("x-user", HeaderValue::from_static("bob"));
        request
    });
    for (layer, requests, expected) in [
        (layer(denies()), [one.clone(), one.clone()], "limited 429 Some(3600) true"),
        (layer(banning), [one.clone(), one.clone()], "banned 429 Some(3600) true"),
        (layer(denies()), [one.clone(), request()], "no key 403 None false"),
        (layer(denies()), [one.clone(), two], "ambiguous 400 None false"),
        (layer(listed), [one.clone(), one.clone()], "listed 403 None false"),
        (down, [one.clone(), one], "unavailable 503 Some(1) false"),
    ] {
        let service = layer.clone().on_denied_http(closure).layer(Hello::default());
        let [first, second] = requests;
        send(&service, first);
        let mut call = second.clone();
        let response = send(&service, second);
        assert_eq!(response.status(), StatusCode::IM_A_TEAPOT, "{expected}");
        assert_eq!(header(&response, "cache-control"), "no-store", "{expected}");
        let wait = response.headers().get(RETRY_AFTER).map(|wait| wait.to_str().expect("digits").to_owned());
        assert_eq!(wait.is_some(), expected.contains("Some"), "{expected}");
        assert_eq!(response.headers().get(CONTENT_TYPE), None, "{expected}");
        assert_eq!(text(response), expected);
        // Clients of gRPC read nothing but its status.
        *call.method_mut() = http::Method::POST;
        call.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let response = send(&service, call);
        assert_eq!((response.status(), response.headers().contains_key("grpc-status")), (StatusCode::OK, true));
        // What an extractor rejects is its own.
        let rejects = key::from_fn(|_| {
            let response = Response::builder().status(451).body(Bytes::new()).expect("a response");
            Err::<&str, _>(Box::new(response))
        });
        let service =
            layer.policy(Policy::new("other", MANY).key(rejects)).on_denied_http(closure).layer(Hello::default());
        assert_eq!(send(&service, of("bob")).status(), 451, "{expected}");
    }
}

#[test]
fn a_denial_has_the_very_number_of_its_retry_after() {
    let closure = |_: &Parts, denial: &Denial<'_>| Response::new(format!("{:?}", denial.retry_after_secs()));
    let ban = Ban::new(1, Duration::from_secs(3_600), Duration::from_secs(60)).of_verified_keys();
    // Its clock stands, half a second before there is a unit again.
    let halves = layer(Policy::new("all", Quota::per_second(2).burst(1)));
    for (layer, least) in [
        (halves, Some(1)),
        (layer(per_user(Quota::per_hour(1))), Some(3_600)),
        (layer(per_user(Quota::per_hour(1)).ban(ban)), Some(3_600)),
        (layer(per_user(TWO).cost_by(|_| 3)), None),
        (RateLimitLayer::new(unavailable(), per_user(TWO)).on_failure(OnFailure::Deny), Some(1)),
    ] {
        for jitter in [0, 30] {
            let headers = RateLimitHeaders::both().jitter(Duration::from_secs(jitter));
            let service = layer.clone().headers(headers).on_denied_http(closure).layer(Hello::default());
            send(&service, of("ada"));
            for _ in 0..20 {
                let response = send(&service, of("ada"));
                let wait: Option<u64> = response
                    .headers()
                    .get(RETRY_AFTER)
                    .map(|wait| wait.to_str().expect("ASCII").parse().expect("digits"));
                assert!((least..=least.map(|least| least + jitter + 1)).contains(&wait), "{wait:?} of {least:?}");
                assert_eq!(text(response), format!("{wait:?}"));
            }
        }
    }
}

#[test]
fn what_the_rejection_closure_sets_is_kept() {
    let layer = layer(Policy::new("all", Quota::per_hour(1))).on_denied_http(|_: &Parts, _: &Denial<'_>| {
        let response = Response::builder().status(429).header(RETRY_AFTER, "9000").header(CACHE_CONTROL, "private");
        let response = response.header("x-ratelimit-limit", "mine").header("set-cookie", "a=1");
        response.header("set-cookie", "b=2").body("").expect("a response")
    });
    let service = layer.layer(Hello::default());
    expect(&service, request(), 200);
    let response = send(&service, request());
    assert_eq!(header(&response, "retry-after"), "9000");
    assert_eq!(header(&response, "cache-control"), "private");
    assert_eq!(header(&response, "x-ratelimit-limit"), "mine");
    assert_eq!(header(&response, "x-ratelimit-remaining"), "0");
    assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
}

#[cfg(feature = "axum")]
#[test]
fn a_rejection_may_be_whatever_axum_makes_a_response_of() {
    let layer = layer(Policy::new("all", Quota::per_hour(1))).on_denied(|parts, denial| {
        let wait = denial.retry_after().map_or(0, |wait| wait.as_secs());
        (StatusCode::IM_A_TEAPOT, [("x-path", parts.uri.path().to_owned())], axum::Json([wait]))
    });
    let service = layer.layer(Hello::default());
    expect(&service, request(), 200);
    let response = send(&service, request());
    assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
    let headers = ["content-type", "x-path", "retry-after", "cache-control"].map(|name| header(&response, name));
    assert_eq!(headers, ["application/json", "/", "3600", "no-store"]);
    assert_eq!(text(response), "[3600]");
}

#[cfg(feature = "axum")]
#[test]
fn a_rejection_whose_body_is_streamed_is_left_to_the_layer() {
    let layer = layer(Policy::new("all", Quota::per_hour(1))).on_denied(|_, _| {
        let chunks = futures::stream::pending::<Result<Bytes, Infallible>>();
        (StatusCode::IM_A_TEAPOT, axum::body::Body::from_stream(chunks))
    });
    let service = layer.layer(Hello::default());
    expect(&service, request(), 200);
    let response = send(&service, request());
    assert_eq!((response.status().as_u16(), header(&response, "retry-after").as_str()), (429, "3600"));
    assert_eq!(header(&response, "content-type"), "application/problem+json");
}

#[cfg(feature = "axum")]
#[test]
fn a_rejection_whose_body_has_no_end_is_left_to_the_layer() {
    let layer = layer(Policy::new("all", Quota::per_hour(1))).on_denied(|_, _| {
        let chunks = futures::stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(b"more")));
        axum::body::Body::from_stream(chunks)
    });
    let service = layer.layer(Hello::default());
    expect(&service, request(), 200);
    assert_eq!(send(&service, request()).status(), 429);
}

#[cfg(feature = "axum")]
#[test]
fn a_rejection_cannot_have_another_length_than_its_body() {
    let layer = layer(Policy::new("all", Quota::per_hour(1)))
        .on_denied(|_, _| ([("content-length", "99"), ("transfer-encoding", "chunked")], "later"));
    let service = layer.layer(Hello::default());
    expect(&service, request(), 200);
    let response = send(&service, request());
    assert!(!response.headers().contains_key("transfer-encoding"));
    assert!(!response.headers().contains_key("content-length"));
    assert_eq!(text(response), "later");
}

// The decision.

#[test]
fn the_inner_service_and_outer_layers_see_the_decision() {
    let inner = service_fn(|request: Request<Text>| async move {
        let decision = request.extensions().get::<RateLimitHandle>().expect("a handle").decision();
        let left = decision.outcomes()[0].remaining().to_string();
        Ok::<_, Infallible>(Response::new(Text::from(left)))
    });
    let service = layer(Policy::new("all", TWO)).layer(inner);
    let response = send(&service, request());
    assert!(decision(&response).is_allowed());
    assert_eq!(decision(&response).source(), Source::Store);
    assert_eq!(decision(&response).binding().unwrap().policy(), "all");
    assert_eq!(text(response), "1");
}

#[test]
fn a_refusal_carries_its_decision() {
    let service = layer(Policy::new("all", Quota::per_hour(1))).layer(Hello::default());
    expect(&service, request(), 200);
    let response = send(&service, request());
    assert!(!decision(&response).is_allowed());
    assert_eq!(decision(&response).denied_by().map(Outcome::policy).collect::<Vec<_>>(), ["all"]);
}

#[derive(Debug, PartialEq)]
struct Broken(u8);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken {}", self.0)
    }
}

impl std::error::Error for Broken {}

#[test]
fn errors_of_the_inner_service_pass_through_as_they_are() {
    let inner = service_fn(|_: Request<Text>| async { Err::<Response<Text>, _>(Broken(7)) });
    let service = layer(Policy::new("all", TWO)).layer(inner);
    let error: Broken = service.oneshot(request()).now_or_never().unwrap().unwrap_err();
    assert_eq!(error, Broken(7));
}

#[test]
fn what_is_given_back_is_settled_once_whatever_becomes_of_the_request() {
    let of = |policy: fn(Policy) -> Policy| {
        let store = recorded(true);
        (RateLimitLayer::new(store.clone(), policy(Policy::new("all", MANY))), store)
    };
    let (layer, store) = of(|policy| policy.count(Count::failures()));
    expect(&layer.layer(Hello::default()), request(), 200);
    assert_eq!(settled(&store), 1, "answered");

    let (layer, store) = of(|policy| policy.count(Count::successes()));
    let failing = service_fn(|_: Request<Text>| async { Err::<Response<Text>, _>(Broken(0)) });
    layer.layer(failing).oneshot(request()).now_or_never().unwrap().unwrap_err();
    assert_eq!(settled(&store), 1, "failed");

    let (layer, store) = of(Policy::refund_dropped);
    let stuck = service_fn(|_: Request<Text>| std::future::pending::<Result<Response<Text>, Broken>>());
    assert!(layer.layer(stuck).oneshot(request()).now_or_never().is_none());
    assert_eq!(settled(&store), 1, "dropped while the inner service worked");

    let mut unpolled = layer.layer(Hello::default());
    drop(unpolled.call(request()));
    assert_eq!(settled(&store), 2, "dropped before it was polled");
}

#[test]
fn a_request_that_keeps_what_it_took_has_nothing_to_settle() {
    let store = recorded(true);
    expect(&RateLimitLayer::new(store.clone(), Policy::new("all", MANY)).layer(Hello::default()), request(), 200);
    assert_eq!((asked(&store).len(), settled(&store)), (1, 0));
}

#[test]
fn a_refused_request_has_nothing_to_settle() {
    let store = recorded(false);
    let layer = RateLimitLayer::new(store.clone(), Policy::new("all", MANY).metered());
    expect(&layer.layer(Hello::default()), request(), 429);
    assert_eq!((asked(&store).len(), settled(&store)), (1, 0));
}

// Cancellation.

#[test]
fn a_request_dropped_while_it_is_checked_leaves_nothing_behind() {
    let (open, store) = slow(true);
    let hello = Hello::default();
    let layer = RateLimitLayer::new(store, Policy::new("all", MANY));
    let mut service = mock::Spawn::new(layer.layer(ConcurrencyLimit::new(hello.clone(), 1)));
    let held = Arc::new(());
    let mut request = request();
    request.extensions_mut().insert(Arc::clone(&held));

    assert_ready_ok!(service.poll_ready());
    let mut response = task::spawn(service.call(request));
    assert_pending!(response.poll());
    assert_pending!(service.poll_ready());
    drop(response);
    assert_eq!(Arc::strong_count(&held), 1, "the request is gone");
    assert_ready_ok!(service.poll_ready(), "its place in the inner service is free");
    open.release();
    assert_eq!(hello.calls(), 0);
}

#[test]
fn a_request_dropped_while_its_key_is_looked_up_leaves_nothing_behind() {
    let (_open, lookup) = Later::new(|user| Extracted::Key(Key::new("user", user)));
    let store = recorded(true);
    let hello = Hello::default();
    let layer = RateLimitLayer::new(store.clone(), Policy::new("user", MANY).key(lookup));
    let mut service = mock::Spawn::new(layer.layer(ConcurrencyLimit::new(hello.clone(), 1)));
    assert_ready_ok!(service.poll_ready());
    let mut response = task::spawn(service.call(of("ada")));
    assert_pending!(response.poll());
    drop(response);
    assert_ready_ok!(service.poll_ready());
    assert!(store.recorded().is_empty());
    assert_eq!(hello.calls(), 0);
}

// Keys.

#[test]
fn each_key_has_a_counter_of_its_own() {
    let service = layer(per_user(TWO)).layer(Hello::default());
    for (user, status) in [("ada", 200), ("ada", 200), ("ada", 429), ("bob", 200), ("bob", 200), ("bob", 429)] {
        expect(&service, of(user), status);
    }
}

#[test]
fn a_request_without_a_key_is_skipped_refused_or_counted_as_the_policy_says() {
    let skip = layer(per_user(Quota::per_hour(1))).layer(Hello::default());
    expect(&skip, request(), 200);
    expect(&skip, request(), 200);
    assert_eq!(send(&skip, request()).headers().len(), 0);

    let hello = Hello::default();
    let deny = layer(per_user(Quota::per_hour(1)).missing_key(MissingKey::Deny)).layer(hello.clone());
    let response = send(&deny, request());
    assert_eq!(response.status(), 403);
    assert_eq!(header(&response, "content-type"), "application/problem+json");
    assert_eq!(header(&response, "cache-control"), "no-store");
    assert_eq!(hello.calls(), 0);
    expect(&deny, of("ada"), 200);

    let share = layer(per_user(Quota::per_hour(1)).missing_key(MissingKey::Share)).layer(Hello::default());
    expect(&share, request(), 200);
    expect(&share, request(), 429);
    expect(&share, of("ada"), 200);
}

#[test]
fn a_policy_that_is_skipped_leaves_the_others_in_force() {
    let layer = layer(per_user(MANY)).policy(Policy::new("all", Quota::per_hour(1)));
    let service = layer.layer(Hello::default());
    let response = send(&service, request());
    assert_eq!(header(&response, "ratelimit-policy"), "\"all\";q=1;w=3600");
    expect(&service, of("ada"), 429);
}

#[test]
#[allow(clippy::result_large_err, reason = "a response as it is made is what users return")]
fn an_extractor_can_refuse_a_request_and_then_no_policy_is_charged() {
    let token = key::from_fn(|parts| match parts.headers.get("x-user") {
        Some(user) => Ok(Key::hashed("user", user)),
        None => Err(Response::builder().status(401).body(Bytes::from_static(b"who are you?")).expect("a response")),
    });
    let layer = layer(Policy::new("all", Quota::per_hour(1))).user(MANY, token);
    let hello = Hello::default();
    let service = layer.layer(hello.clone());
    for _ in 0..3 {
        let response = send(&service, request());
        assert_eq!((response.status(), text(response).as_str()), (StatusCode::UNAUTHORIZED, "who are you?"));
    }
    assert_eq!(hello.calls(), 0);
    expect(&service, of("ada"), 200);
}

#[test]
fn a_bare_closure_is_an_extractor() {
    let by_path = |parts: &Parts| parts.uri.path().to_owned();
    let service = layer(Policy::new("path", Quota::per_hour(1)).key(by_path)).layer(Hello::default());
    let to = |path: &str| Request::builder().uri(path).body(Text::default()).expect("a request");
    for (path, status) in [("/a", 200), ("/a?x", 429), ("/b", 200)] {
        expect(&service, to(path), status);
    }
}

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

#[test]
fn a_key_that_has_to_be_looked_up_is_waited_for() {
    let (open, lookup) = Later::new(|user| Extracted::Key(Key::new("user", user)));
    let hello = Hello::default();
    let first = Policy::new("first", MANY).key(key::header("x-user").plain());
    let last = Policy::new("last", MANY).key(key::header("x-user").plain());
    let layer = layer(first).policy(Policy::new("later", Quota::per_hour(1)).key(lookup)).policy(last);
    let service = layer.layer(hello.clone());
    let mut response = task::spawn(service.clone().oneshot(of("ada")));
    assert_pending!(response.poll());
    assert_eq!(hello.calls(), 0);
    open.send(()).unwrap();
    let response = assert_ready_ok!(response.poll());
    let names: Vec<&str> = decision(&response).outcomes().iter().map(Outcome::policy).collect();
    assert_eq!(names, ["first", "later", "last"]);
    expect(&service, of("ada"), 429);
    expect(&service, of("bob"), 200);
    expect(&service, request(), 200);
}

#[test]
fn a_lookup_that_refuses_keeps_the_store_from_being_asked_for_more_than_a_look() {
    let refuse = |_| Extracted::Rejected(Box::new(Response::builder().status(401).body(Bytes::new()).unwrap()));
    let (open, lookup) = Later::new(refuse);
    open.send(()).unwrap();
    let store = recorded(true);
    let layer =
        RateLimitLayer::composite(store.clone()).global(MANY).user(MANY, lookup).policy(Policy::new("all", MANY));
    let hello = Hello::default();
    expect(&layer.layer(hello.clone()), of("ada"), 401);
    let [checks] = &asked(&store)[..] else { panic!("one look") };
    assert!(checks.iter().all(|check| check.cost == 0), "{checks:?}");
    assert_eq!(hello.calls(), 0);
}

#[test]
fn joined_keys_count_each_pair() {
    let pair = (key::header("x-user"), key::path());
    let service = layer(Policy::new("pair", Quota::per_hour(1)).key(pair)).layer(Hello::default());
    let to = |user, path: &str| {
        let mut request = of(user);
        *request.uri_mut() = path.parse().expect("a path");
        request
    };
    for (user, path, status) in
        [("ada", "/a", 200), ("ada", "/a", 429), ("ada", "/b", 200), ("bob", "/a", 200), ("bob", "/a", 429)]
    {
        expect(&service, to(user, path), status);
    }
    expect(&service, request(), 200);
    expect(&service, request(), 200);
}

#[test]
fn joined_keys_wait_for_the_one_that_is_late() {
    let (open, lookup) = Later::new(|user| Extracted::Key(Key::new("user", user)));
    let layer = layer(Policy::new("pair", Quota::per_hour(1)).key((key::path(), lookup)));
    let service = layer.layer(Hello::default());
    let mut response = task::spawn(service.clone().oneshot(of("ada")));
    assert_pending!(response.poll());
    open.send(()).unwrap();
    assert_eq!(assert_ready_ok!(response.poll()).status(), 200);
    expect(&service, of("ada"), 429);
    expect(&service, of("bob"), 200);
}

#[test]
fn a_join_with_a_key_that_is_shared_when_missing_is_shared_too() {
    #[derive(Clone)]
    struct Address;
    impl KeyExtractor for Address {
        fn extract(&self, _: &Parts) -> MaybeFuture<Extracted> {
            MaybeFuture::Ready(Extracted::Missing)
        }
        fn info(&self) -> KeyInfo {
            KeyInfo::default().missing_key(MissingKey::Share)
        }
    }
    let service =
        layer(Policy::new("pair", Quota::per_hour(1)).key((key::header("x-user"), Address))).layer(Hello::default());
    expect(&service, of("ada"), 200);
    expect(&service, of("bob"), 429);
}

// Types.

fn assert_kind<T: Clone + Send + Sync + 'static>() {}
fn assert_shared<T: fmt::Debug + Send + Sync + 'static>() {}
fn assert_send<T: Send>() {}

/// A layer can be a field, and what it makes too.
struct App {
    layer: RateLimitLayer,
    service: RateLimit<Hello>,
}

#[test]
fn the_layer_and_its_service_can_be_named_cloned_sent_and_shared() {
    assert_kind::<RateLimitLayer>();
    assert_kind::<RateLimit<Hello>>();
    assert_kind::<Decision>();
    assert_kind::<Policy>();
    assert_send::<ResponseFuture<Hello, Text>>();
    assert_send::<ResponseBody<Text>>();
    let layer = layer(Policy::new("all", TWO));
    let app = App { service: layer.layer(Hello::default()), layer };
    expect(&app.service, request(), 200);
    expect(&app.layer.layer(Hello::default()), request(), 200);
    expect(&app.layer.clone().layer(Hello::default()), request(), 429);
    assert_eq!(app.service.into_inner().calls(), 1);
}

#[test]
fn what_stores_read_and_return_can_be_sent_and_shared_and_printed() {
    assert_shared::<(Counter, Check, Settlement, ReceiptItem, ChangeResult, Outcome)>();
    assert_shared::<(Decision, StoreDecision, Receipt, Error)>();
    assert_shared::<(Key, PolicyName, Quota, Rule, Policy, Extracted)>();
    assert_shared::<(
        RateLimitLayer,
        RateLimit<()>,
        StatusService,
        Limiter,
        MemoryStore,
        RateLimitHandle,
        RateLimitHeaders,
    )>();
    assert_send::<MaybeFuture<StoreDecision>>();
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

/// A body of one chunk that then breaks.
struct Breaking {
    chunk: Option<Chunk>,
}

impl Body for Breaking {
    type Data = Chunk;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, Broken>>> {
        Poll::Ready(Some(self.chunk.take().map(Frame::data).ok_or(Broken(9))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(1_234)
    }
}

#[test]
fn any_body_that_can_hold_bytes_will_do() {
    let inner = service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(Breaking { chunk: Some(Chunk::from(Bytes::from_static(b"ab"))) }))
    });
    let service = layer(Policy::new("all", Quota::per_hour(1))).layer(inner);
    let send = || service.clone().oneshot(Request::new(String::new())).now_or_never().unwrap().unwrap();

    let mut body = send().into_body();
    assert_eq!(body.size_hint().exact(), Some(1_234));
    let frame = body.frame().now_or_never().unwrap().unwrap().unwrap();
    assert_eq!(frame.into_data().ok().unwrap().chunk(), b"ab");
    let error = body.frame().now_or_never().unwrap().unwrap().err().unwrap();
    assert_eq!(error.source().and_then(<dyn StdError>::downcast_ref), Some(&Broken(9)));

    let refusal = send();
    assert_eq!(refusal.status(), 429);
    let collected = refusal.into_body().collect().now_or_never().unwrap().unwrap();
    assert!(collected.to_bytes().starts_with(b"{\"type\":"));
}

#[test]
fn bodies_know_their_size_and_their_end() {
    let service = layer(Policy::new("all", Quota::per_hour(1))).layer(Hello::default());
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

#[test]
fn a_refusal_without_a_body_ends_at_once() {
    let layer = layer(Policy::new("all", Quota::per_hour(1)));
    let service = layer.on_denied_http(|_: &Parts, _: &Denial<'_>| Response::new("")).layer(Hello::default());
    expect(&service, request(), 200);
    let own = send(&service, request()).into_body();
    assert_eq!((own.size_hint().exact(), own.is_end_stream()), (Some(0), true));
}

#[test]
fn trailers_pass_through() {
    let inner = service_fn(|_: Request<Text>| async {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("42"));
        let body = Text::from("hello").with_trailers(std::future::ready(Some(Ok(trailers))));
        Ok::<_, Infallible>(Response::new(body))
    });
    let response = send(&layer(Policy::new("all", TWO)).layer(inner), request());
    let collected = response.into_body().collect().now_or_never().unwrap().unwrap();
    let trailers = collected.trailers().expect("trailers");
    assert_eq!((trailers.get("x-sum").unwrap().as_bytes(), trailers.len()), (&b"42"[..], 1));
}

// Stores that fail.

/// A refusal until so many seconds after the test began, give or take a slow machine's ten.
#[track_caller]
fn waits(response: &Answered, seconds: u64) {
    let wait: u64 = header(response, "retry-after").parse().expect("a number");
    assert!(response.status() == 429 && (seconds - 10..=seconds).contains(&wait), "{wait}");
    assert_eq!(header(response, "ratelimit"), format!("\"user\";r=0;t={wait}"));
}

/// A layer over a store that fails, at once or later.
fn failing(later: bool, policy: Policy) -> RateLimitLayer {
    let store = unavailable();
    if later {
        store.delay(Duration::from_millis(1));
    }
    RateLimitLayer::new(store, policy).expose_decisions()
}

/// The response of a service that may have to wait for its store.
async fn later<S>(service: &S, request: Request<Text>) -> Answered
where
    S: Service<Request<Text>, Response = Answered, Error: fmt::Debug> + Clone,
{
    service.clone().oneshot(request).await.expect("a response")
}

#[tokio::test(start_paused = true)]
async fn without_its_store_a_layer_keeps_a_limit_of_its_own() {
    for is_late in [false, true] {
        let service = failing(is_late, per_user(Quota::per_hour(3))).layer(Hello::default());
        for status in [200, 200, 200, 429, 429] {
            let response = later(&service, of("ada")).await;
            assert_eq!(response.status(), status);
            assert_eq!(decision(&response).source(), Source::Fallback);
        }
        assert_eq!(later(&service, of("bob")).await.status(), 200);
    }
}

#[test]
fn without_its_store_each_instance_admits_its_share_rounded_up_and_shows_the_whole() {
    let policy = per_user(Quota::per_hour(10).burst(5));
    let layer = failing(false, policy).instances(NonZeroU32::new(4).unwrap());
    let service = layer.layer(Hello::default());
    for remaining in ["1", "0"] {
        let response = send(&service, of("ada"));
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, "ratelimit-policy"), "\"user\";q=10;w=3600");
        assert_eq!(header(&response, "x-ratelimit-limit"), "10");
        assert_eq!(header(&response, "x-ratelimit-remaining"), remaining);
    }
    let response = send(&service, of("ada"));
    assert_eq!(response.status(), 429);
    assert_eq!(header(&response, "ratelimit-policy"), "\"user\";q=10;w=3600");
    waits(&response, 1_200);
}

#[test]
fn a_share_is_never_less_than_one() {
    let layer = failing(false, per_user(TWO)).instances(NonZeroU32::new(1_000).unwrap());
    let service = layer.layer(Hello::default());
    expect(&service, of("ada"), 200);
    expect(&service, of("ada"), 429);
}

#[test]
fn a_cost_above_a_share_needs_all_of_it_and_leaves_a_debt() {
    let layer = failing(false, per_user(Quota::per_hour(8)).cost(4)).instances(NonZeroU32::new(4).unwrap());
    let service = layer.layer(Hello::default());
    expect(&service, of("ada"), 200);
    let response = send(&service, of("ada"));
    waits(&response, 7_200);
}

#[test]
fn a_cost_that_is_never_admitted_is_not_admitted_without_the_store_either() {
    let layer = failing(false, per_user(TWO).cost_by(|_| 3)).instances(NonZeroU32::new(2).unwrap());
    expect(&layer.layer(Hello::default()), of("ada"), 429);
}

#[tokio::test(start_paused = true)]
async fn a_layer_can_admit_everything_without_its_store() {
    for is_late in [false, true] {
        let layer = failing(is_late, per_user(Quota::per_hour(1))).on_failure(OnFailure::Allow);
        let service = layer.layer(Hello::default());
        for _ in 0..3 {
            let response = later(&service, of("ada")).await;
            assert_eq!(response.status(), 200);
            assert_eq!(decision(&response).source(), Source::FailOpen);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_can_refuse_everything_without_its_store() {
    for is_late in [false, true] {
        let hello = Hello::default();
        let layer = failing(is_late, per_user(TWO)).on_failure(OnFailure::Deny);
        let response = later(&layer.layer(hello.clone()), of("ada")).await;
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        assert!(header(&response, "retry-after").parse::<u64>().unwrap() >= 1);
        let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
        let body = text(response);
        assert!(body.starts_with(&format!("{{\"type\":\"{kind}\",\"title\":")), "{body}");
        assert!(body.contains("\"status\":503"), "{body}");
        assert_eq!(hello.calls(), 0);
    }
}

#[test]
fn a_retry_is_decided_by_the_fallback_if_the_store_failed_meanwhile() {
    let store = FailingStore::new(memory());
    let layer = RateLimitLayer::new(store.clone(), per_user(Quota::per_hour(1))).expose_decisions();
    let service = layer.layer(Hello::default());
    expect(&service, of("ada"), 200);
    expect(&service, of("ada"), 429);
    store.fail_with(away);
    let response = send(&service, of("ada"));
    assert_eq!((response.status(), decision(&response).source()), (StatusCode::OK, Source::Fallback));
}

#[test]
fn a_store_that_recovers_decides_again() {
    let store = FailingStore::new(memory());
    store.fail_with(away);
    let layer = RateLimitLayer::new(store.clone(), per_user(Quota::per_hour(1))).expose_decisions();
    let service = layer.layer(Hello::default());
    expect(&service, of("ada"), 200);
    expect(&service, of("ada"), 429);
    store.work();
    let response = send(&service, of("ada"));
    assert_eq!((response.status(), decision(&response).source()), (StatusCode::OK, Source::Store));
    expect(&service, of("ada"), 429);
}
