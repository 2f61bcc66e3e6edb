//! The layer around small services: readiness, refusals, keys, bodies, and stores that fail.

use std::convert::Infallible;
use std::fmt;
use std::iter::successors;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[cfg(feature = "axum")]
use axum::{body::Body, response::AppendHeaders};
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::channel::oneshot;
use futures::stream::{pending, repeat_with};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use tokio_test::{assert_pending, assert_ready_ok, task};
use tollgate::body::ResponseBody;
use tollgate::key::{self, Extracted, KeyExtractor, KeyLookup, Lookup};
use tollgate::policy::{AccessList, Count, MissingKey};
use tollgate::response::{Denial, DenialReason};
use tollgate::store::{BreakerState, LeaseStore};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{
    Ban, Decision, Key, OnFailure, Outcome, Policy, Quota, RateLimitHandle, RateLimitHeaders, RateLimitLayer, Source,
};
use tollgate_test::{Recorded, RecordingStore, StoreFn};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, service_fn};
use tower_test::mock;

use crate::rig::{self, Text, expect, hello, line, now, of, request, responding, send, text, with};
use crate::support::doubles::{away, unavailable};
use crate::support::time::memory;

const ONE: Quota = Quota::per_hour(1);
const MANY: Quota = Quota::per_hour(1_000);
const HOUR: Duration = Duration::from_secs(3_600);

fn layer(policy: Policy) -> RateLimitLayer {
    rig::layer([policy])
}

fn all(quota: Quota) -> Policy {
    Policy::new("all", quota)
}

fn per_user(quota: Quota) -> Policy {
    Policy::new("user", quota).key(key::header("x-user"))
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

/// The second response of a layer that admits one request.
#[track_caller]
fn refused(layer: &RateLimitLayer) -> Response<ResponseBody<Text>> {
    let service = layer.layer(hello());
    statuses(&service, [(request(), 200)]);
    send(&service, request())
}

#[test]
fn a_permit_of_the_service_inside_is_held_while_the_store_decides_and_only_who_is_admitted_uses_it() {
    for (end, waits) in
        [("admitted", true), ("admitted", false), ("refused", true), ("refused", false), ("dropped", true)]
    {
        let store = FailingStore::new(StoreFn::new(move |_| end != "refused"));
        let held = waits.then(|| store.hold());
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let inner = responding(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Response::new(Text::default())
        });
        // It panics if it is called without a permit.
        let services = RateLimitLayer::new(store, all(MANY)).layer(ConcurrencyLimit::new(inner, 1));
        let [mut service, mut other] = [mock::Spawn::new(services.clone()), mock::Spawn::new(services)];
        assert_ready_ok!(service.poll_ready());
        let mut response = task::spawn(service.call(request()));
        if let Some(held) = held {
            assert_pending!(response.poll());
            assert_pending!(other.poll_ready(), "{end}: the only permit is taken");
            if end != "dropped" {
                held.release();
                assert!(response.is_woken(), "{end}");
            }
        }
        if end != "dropped" {
            let status = assert_ready_ok!(response.poll()).status();
            assert_eq!(status, if end == "refused" { 429 } else { 200 });
        }
        drop(response);
        assert_ready_ok!(other.poll_ready(), "{end}: its permit is free");
        assert_eq!(calls.load(Ordering::Relaxed), usize::from(end == "admitted"), "{end}");
    }
}

// Refusals.

#[test]
fn a_request_refused_by_one_policy_costs_nothing_on_the_others() {
    let wide = || Policy::new("wide", Quota::per_hour(10));
    for policies in [[wide(), per_user(ONE)], [per_user(ONE), wide()]] {
        let service = rig::layer(policies).layer(hello());
        statuses(&service, [(of("ada"), 200)]);
        statuses(&service, (0..20).map(|_| (of("ada"), 429)));
        statuses(&service, ["b", "c", "d", "e", "f", "g", "h", "i", "j"].map(|user| (of(user), 200)));
        let refused = send(&service, of("k"));
        assert_eq!((refused.status().as_u16(), &line(refused.headers(), "ratelimit")[..6]), (429, "\"wide\""));
    }
}

#[test]
fn all_policies_of_a_layer_are_one_question_to_the_store() {
    let store = RecordingStore::new(StoreFn::new(|_| true));
    let layer = RateLimitLayer::composite(store.clone()).user(MANY, key::header("x-user").plain()).global(MANY);
    statuses(&layer.layer(hello()), [(of("ada"), 200)]);
    let [Recorded::Decide(checks)] = &store.recorded()[..] else { panic!("one question") };
    let names = checks.iter().map(|check| format!("{} {}", check.counter.policy(), check.counter.key()));
    assert_eq!(names.collect::<Vec<_>>(), ["user header x-user:ada", "global global:"]);
}

#[test]
fn a_request_that_no_policy_applies_to_needs_no_store_and_has_no_headers() {
    let none = RateLimitLayer::composite(unavailable()).on_failure(OnFailure::Deny);
    for layer in [none.clone(), none.clone().policy(per_user(MANY))] {
        let response = send(&layer.layer(hello()), request());
        assert_eq!((response.status(), response.headers().len()), (StatusCode::OK, 0));
        assert_eq!(text(response), "hello");
    }
    statuses(&none.policy(per_user(MANY)).layer(hello()), [(of("ada"), 503)]);
}

#[test]
fn the_rejection_closure_makes_every_response_of_the_layer_and_is_told_the_reason() {
    let closure = |parts: &Parts, denial: &Denial<'_>| {
        let reason = match denial.reason() {
            DenialReason::RateLimited(_) => "limited",
            DenialReason::Banned(_) => "banned",
            DenialReason::MissingKey => "no key",
            DenialReason::AmbiguousKey => "ambiguous",
            DenialReason::DenyListed => "listed",
            DenialReason::Unavailable => "unavailable",
            other => panic!("{other:?} is new"),
        };
        let binding = denial.decision().and_then(Decision::binding).map(Outcome::policy);
        let (status, wait) = (denial.status().as_u16(), denial.retry_after_secs());
        assert_eq!(denial.retry_after().is_some(), wait.is_some());
        let text = format!("{reason} {status} by {binding:?}: {} {} {wait:?}", parts.method, parts.uri);
        Response::builder().status(StatusCode::IM_A_TEAPOT).body(text).expect("a response")
    };
    let denies = || per_user(ONE).missing_key(MissingKey::Deny);
    let banning = denies().ban(Ban::new(1, HOUR, Duration::from_secs(60)).of_verified_keys());
    let listed = denies().deny(AccessList::default().key("ada"));
    let down = RateLimitLayer::new(unavailable(), denies()).on_failure(OnFailure::Deny);
    let two = with(of("ada"), "x-user", "bob");
    for (layer, second, expected, least) in [
        (layer(denies()), of("ada"), "limited 429 by Some(\"user\")", Some(3_600)),
        // Its clock stands, half a second before there is a unit again.
        (layer(all(Quota::per_second(2).burst(1))), of("ada"), "limited 429 by Some(\"all\")", Some(1)),
        (layer(denies().cost_by(|_| 3)), of("ada"), "limited 429 by Some(\"user\")", None),
        (layer(banning), of("ada"), "banned 429 by Some(\"user\")", Some(3_600)),
        (layer(denies()), request(), "no key 403 by None", None),
        (layer(denies()), two, "ambiguous 400 by None", None),
        (layer(listed), of("ada"), "listed 403 by None", None),
        (down, of("ada"), "unavailable 503 by None", Some(1)),
    ] {
        for jitter in [0, 30] {
            let headers = RateLimitHeaders::both().jitter(Duration::from_secs(jitter));
            let service = layer.clone().headers(headers).on_denied_http(closure).layer(hello());
            send(&service, of("ada"));
            for _ in 0..20 {
                let response = send(&service, second.clone());
                assert_eq!(response.status(), StatusCode::IM_A_TEAPOT, "{expected}");
                expect(response.headers(), &[("cache-control", "no-store"), ("content-type", "")]);
                let wait: Option<u64> = line(response.headers(), "retry-after").parse().ok();
                assert!((least..=least.map(|least| least + jitter)).contains(&wait), "{expected}: {wait:?}");
                assert_eq!(text(response), format!("{expected}: GET / {wait:?}"));
            }
        }
    }
}

#[cfg(feature = "axum")]
#[test]
fn what_the_rejection_closure_sets_is_kept() {
    let response = refused(&layer(all(ONE)).on_denied(|_, _| {
        let fields = [("retry-after", "9000"), ("cache-control", "private"), ("x-ratelimit-limit", "mine")];
        let wrong = [("content-length", "99"), ("transfer-encoding", "chunked")];
        let cookies = AppendHeaders([("set-cookie", "a=1"), ("set-cookie", "b=2")]);
        (StatusCode::IM_A_TEAPOT, fields, wrong, cookies, axum::Json("later"))
    }));
    assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
    let kept = [("retry-after", "9000"), ("cache-control", "private"), ("x-ratelimit-limit", "mine")];
    let added = [("x-ratelimit-remaining", "0"), ("ratelimit", "\"all\";r=0;t=3600")];
    let others = [("content-type", "application/json"), ("content-length", ""), ("transfer-encoding", "")];
    expect(response.headers(), &[&kept[..], &added, &others].concat());
    assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
    assert_eq!(text(response), "\"later\"");
}

#[cfg(feature = "axum")]
#[test]
fn a_layer_responds_itself_where_the_body_of_a_rejection_is_streamed_or_has_no_end() {
    let more = || Ok::<_, Infallible>(Bytes::from_static(b"more"));
    let streamed = |_: &Parts, _: &Denial<'_>| Body::from_stream(pending::<Result<Bytes, Infallible>>());
    let endless = move |_: &Parts, _: &Denial<'_>| Body::from_stream(repeat_with(more));
    for layer in [layer(all(ONE)).on_denied(streamed), layer(all(ONE)).on_denied(endless)] {
        let response = refused(&layer);
        assert_eq!(response.status(), 429);
        expect(response.headers(), &[("retry-after", "3600"), ("content-type", "application/problem+json")]);
    }
}

#[test]
fn a_refused_head_request_is_answered_as_get_is_but_for_the_body() {
    let listed = per_user(MANY).deny(AccessList::default().key("ada"));
    let rejects = |_: &Parts| Err::<Key, _>(Box::new(Response::new(Bytes::from_static(b"who are you?"))));
    let closure = |_: &Parts, _: &Denial<'_>| Response::new("later, please");
    for layer in [
        layer(all(ONE).cost_by(|_| 2)),
        layer(listed),
        layer(all(MANY).key(key::from_fn(rejects))),
        layer(all(ONE).cost_by(|_| 2)).on_denied_http(closure),
    ] {
        let service = layer.layer(hello());
        let [get, head] = [Method::GET, Method::HEAD].map(|method| {
            let mut request = of("ada");
            *request.method_mut() = method;
            send(&service, request)
        });
        let mut headers = get.headers().clone();
        headers.insert("content-length", get.into_body().size_hint().exact().expect("an exact size").into());
        assert_eq!(head.headers(), &headers);
        assert_eq!(text(head), "");
    }
}

#[test]
fn a_request_is_settled_once_if_it_gives_something_back_and_else_not_at_all() {
    for (what, fits, policy, is_sent, settled) in [
        ("it keeps what it took", true, all(MANY), true, 0),
        ("it is refused", false, all(MANY).metered(), true, 0),
        ("it does not count", true, all(MANY).count(Count::failures()), true, 1),
        ("it is dropped before it is polled", true, all(MANY).refund_dropped(), false, 1),
    ] {
        let store = RecordingStore::new(StoreFn::new(move |_| fits));
        let response = RateLimitLayer::new(store.clone(), policy).layer(hello()).call(request());
        if is_sent {
            now(response);
        } else {
            drop(response);
        }
        let is_decision: Vec<_> = store.recorded().iter().map(|call| matches!(call, Recorded::Decide(_))).collect();
        assert_eq!(is_decision, [true, false][..=settled], "{what}");
    }
}

// Decisions.

/// The policies of a decision and of those of outer layers, in this order, and whether they admitted the request.
fn found(innermost: &Decision) -> String {
    let all = successors(Some(innermost), |decision| decision.outer());
    let each: Vec<_> = all.map(|one| format!("{} {} ", one.outcomes()[0].policy(), one.is_allowed())).collect();
    each.concat()
}

#[test]
fn a_handler_and_a_response_have_the_decisions_of_all_layers_innermost_first() {
    let named = |name, quota| layer(Policy::new(name, quota));
    let handler = responding(|request| {
        let handle: &RateLimitHandle = request.extensions().get().expect("the layer gives it");
        assert_eq!(found(&handle.decision()), "inner true middle true outer true ");
        assert_eq!(successors(Some(handle), |handle| handle.outer()).count(), 3);
        let head = (request.method().as_str(), request.uri().path(), &request.headers()["x-user"]);
        assert_eq!((head.0, head.1, head.2.as_bytes(), &**request.body()), ("PUT", "/a", &b"ada"[..], "a body"));
        Response::new(Text::default())
    });
    let inner = named("middle", MANY).layer(named("inner", ONE).expose_decisions().layer(handler));
    let service = named("outer", MANY).layer(inner);
    for is_allowed in [true, false] {
        let mut request = of("ada").map(|_| "a body".to_owned());
        (*request.method_mut(), *request.uri_mut()) = (Method::PUT, "/a".parse().expect("a path"));
        let response = send(&service, request);
        assert_eq!(response.status() == 200, is_allowed);
        let decision: &Decision = response.extensions().get().expect("the inner one gives it, and others add theirs");
        assert_eq!(found(decision), format!("inner {is_allowed} middle true outer true "));
        expect(response.headers(), &[("retry-after", if is_allowed { "" } else { "3600" })]);
    } // Where none exposes its decision, there is none.
    let silent = named("silent", ONE).layer(hello());
    let responses = [send(&silent, request()), send(&silent, request())];
    assert!(responses.iter().all(|response| response.extensions().get::<Decision>().is_none()));
}

// Keys.

fn user_of(user: &[u8]) -> Extracted {
    if user == b"eve" {
        let response = Response::builder().status(401).body(Bytes::from_static(b"who are you?"));
        return Extracted::Rejected(Box::new(response.expect("a response")));
    }
    Extracted::Key(Key::new("user", user))
}

/// A lookup of users that waits for a gate to be opened.
fn later() -> (oneshot::Sender<()>, KeyLookup) {
    let (open, gate) = oneshot::channel();
    let gate = gate.shared();
    let user = key::lookup(key::header("x-user"), move |user: Lookup| {
        gate.clone().map(move |_| Ok::<_, Infallible>(user_of(user.text().unwrap_or_default().as_bytes())))
    });
    (open, user)
}

/// Users, paths and the statuses of their responses.
type Requests<'a> = &'a [(&'a str, &'a str, u16)];

#[test]
fn each_value_of_a_key_has_a_counter_of_its_own() {
    let user = || key::header("x-user");
    let by_path = |parts: &Parts| parts.uri.path().to_owned();
    let (opens, later) = later();
    opens.send(()).expect("it waits");
    let rows: [(&str, Arc<dyn KeyExtractor>, Requests<'_>); 5] = [
        ("a header", Arc::new(user()), &[("ada", "/", 200), ("ada", "/b", 429), ("bob", "/", 200), ("", "/", 200)]),
        ("a closure", Arc::new(by_path), &[("ada", "/a", 200), ("bob", "/a?x", 429), ("ada", "/b", 200)]),
        (
            "a pair",
            Arc::new((user(), key::path())),
            &[("ada", "/a", 200), ("ada", "/a", 429), ("ada", "/b", 200), ("bob", "/a", 200), ("", "/", 200)],
        ),
        (
            "a pair with one that is late",
            Arc::new((key::path(), later)),
            &[("ada", "/", 200), ("ada", "/", 429), ("bob", "/", 200)],
        ),
        (
            "a pair with one whose requests without a key share a counter",
            Arc::new((key::client_ip(), user())),
            &[("ada", "/", 200), ("ada", "/", 429), ("", "/", 200), ("", "/b", 429)],
        ),
    ];
    for (name, key, requests) in rows {
        let service = layer(Policy::new("all", ONE).key(key)).layer(hello());
        for (user, path, status) in requests {
            let mut request = if user.is_empty() { request() } else { of(user) };
            *request.uri_mut() = path.parse().expect("a path");
            assert_eq!(send(&service, request).status(), *status, "{name}: {user} at {path}");
        }
    }
}

#[test]
fn an_extractor_can_refuse_a_request_at_once_or_later_and_then_no_policy_is_charged() {
    let (opens, later) = later();
    opens.send(()).expect("it waits");
    let at_once =
        |parts: &Parts| parts.headers.get("x-user").map_or(Extracted::Missing, |user| user_of(user.as_bytes()));
    for key in [Arc::new(key::from_fn(at_once)) as Arc<dyn KeyExtractor>, Arc::new(later)] {
        let limits = layer(all(ONE)).user(MANY, key);
        // What an extractor responds is not replaced.
        let service = limits.on_denied_http(|_: &Parts, _: &Denial<'_>| Response::new("denied")).layer(hello());
        for _ in 0..3 {
            let response = send(&service, of("eve"));
            assert_eq!((response.status(), text(response).as_str()), (StatusCode::UNAUTHORIZED, "who are you?"));
        }
        statuses(&service, [(of("ada"), 200)]);
    }
}

#[test]
fn a_key_that_has_to_be_looked_up_is_waited_for() {
    let (open, lookup) = later();
    let [first, last] = ["first", "last"].map(|name| Policy::new(name, MANY).key(key::header("x-user").plain()));
    let layer = layer(first).policy(Policy::new("later", ONE).key(lookup)).policy(last).expose_decisions();
    let mut service = layer.layer(hello());
    let mut response = task::spawn(service.call(of("ada")));
    assert_pending!(response.poll());
    open.send(()).expect("it waits");
    let response = assert_ready_ok!(response.poll());
    let decision: &Decision = response.extensions().get().expect("it is exposed");
    let names: Vec<&str> = decision.outcomes().iter().map(Outcome::policy).collect();
    assert_eq!(names, ["first", "later", "last"]);
    statuses(&service, [(of("ada"), 429), (of("bob"), 200), (request(), 200)]);
}

#[test]
fn bodies_of_any_bytes_know_their_size_and_their_end() {
    let inner =
        service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Full::new(BytesMut::from("hello")))));
    let service = layer(all(ONE)).layer(inner);
    for (status, start) in [(200, "hello"), (429, "{\"type\":")] {
        let response = send(&service, request());
        assert_eq!(response.status(), status);
        let mut body = response.into_body();
        let size = body.size_hint().exact();
        assert!(!body.is_end_stream());
        let frame = body.frame().now_or_never().flatten().expect("a frame").expect("no error");
        let data = frame.into_data().expect("no trailers");
        assert!(data.starts_with(start.as_bytes()), "{data:?}");
        assert_eq!(Some(data.len() as u64), size);
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    }
}

#[test]
fn while_its_store_fails_a_layer_counts_separately() {
    let store = FailingStore::new(memory(&ManualClock::new()));
    let service = RateLimitLayer::new(store.clone(), per_user(ONE)).expose_decisions().layer(hello());
    for (is_away, user, status, source) in [
        (false, "ada", 200, Source::Store),
        (false, "ada", 429, Source::Store),
        (true, "ada", 200, Source::Fallback),
        (true, "ada", 429, Source::Fallback),
        (true, "bob", 200, Source::Fallback),
        (false, "ada", 429, Source::Store),
        (false, "bob", 200, Source::Store),
    ] {
        if is_away {
            store.fail_with(away);
        } else {
            store.work();
        }
        let response = send(&service, of(user));
        let decision: &Decision = response.extensions().get().expect("it is exposed");
        assert_eq!((response.status().as_u16(), decision.source()), (status, source), "{user}, {is_away}");
    }
}

#[test]
fn what_this_process_could_decide_follows_the_rules_while_the_store_fails() {
    let (clock, failing) = (ManualClock::new(), FailingStore::new(memory(&ManualClock::new())));
    let leases = LeaseStore::builder(failing.clone()).clock(clock).build();
    let layer = RateLimitLayer::new(leases.clone(), per_user(Quota::fixed_window(100_000, HOUR)));
    let layer = layer.on_failure(OnFailure::Deny);
    let service = layer.layer(hello());
    statuses(&service, (0..200).map(|_| (of("ada"), 200)));
    failing.fail();
    statuses(&service, [(of("ada"), 200)]);
    let failed = (0..100).take_while(|_| layer.clone().live().breaker_state() == BreakerState::Closed);
    assert!(failed.inspect(|_| statuses(&service, [(of("bob"), 503)])).count() < 100, "it opens");
    statuses(&service, [(of("ada"), 503)]);
    assert!(leases.counts().held() > 0, "a lease would cover it");
}
