//! Slots of requests through layers: taken by decisions, held by bodies and guards, released once.

use std::convert::Infallible;
use std::future::pending;
use std::hint::spin_loop;
use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{FutureExt, StreamExt};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tokio::time::sleep;
use tollgate::body::ResponseBody;
use tollgate::policy::Count;
use tollgate::response::ActualCost;
use tollgate::store::SlotGuard;
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule, key};
use tower::util::BoxCloneService;
use tower::{Layer, Service as _, ServiceExt, service_fn};

use crate::rig::{self, call, everybody, hello, now, of, request, responding};

type Inner = UnsyncBoxBody<Bytes, io::Error>;
type Answer = Response<ResponseBody<Inner>>;
type Service = BoxCloneService<Request<String>, Answer, Infallible>;
type Frames = UnboundedSender<Result<Frame<Bytes>, io::Error>>;

/// Two at once.
const TWO: Quota = Quota::concurrency(2);

fn streams(quota: Quota) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), Policy::new("streams", quota))
}

fn full(text: &'static str) -> Inner {
    Full::from(text).map_err(|never| match never {}).boxed_unsync()
}

fn empty() -> Inner {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A layer around what `respond` makes of each request.
fn around(
    layer: &RateLimitLayer,
    respond: impl Fn(Request<String>) -> Response<Inner> + Clone + Send + 'static,
) -> Service {
    BoxCloneService::new(layer.layer(responding(respond)))
}

#[track_caller]
fn send(service: &Service) -> Answer {
    rig::send(service, request())
}

/// The response to a request, and the sender of its body, which ends when that is dropped.
#[track_caller]
fn open_with(layer: &RateLimitLayer, request: Request<String>) -> (Answer, Frames) {
    let (senders, mut receiver) = unbounded();
    let service = around(layer, move |_| {
        let (sender, frames) = unbounded();
        senders.unbounded_send(sender).expect("the test waits");
        Response::new(StreamBody::new(frames).boxed_unsync())
    });
    let response = rig::send(&service, request);
    assert_eq!(response.status(), 200);
    (response, receiver.next().now_or_never().flatten().expect("the service was called"))
}

#[track_caller]
fn open(layer: &RateLimitLayer) -> (Answer, Frames) {
    open_with(layer, request())
}

fn is_refused(layer: &RateLimitLayer) -> bool {
    send(&around(layer, |_| Response::new(full("hello")))).status() == 429
}

/// What a body has next, or its end, if it is there.
#[allow(clippy::option_option, reason = "it is what a poll returns, and what a body does")]
fn next(response: &mut Answer) -> Option<Option<Result<Frame<Bytes>, impl Sized + use<>>>> {
    response.body_mut().frame().now_or_never()
}

/// What is left of the one rule of a limiter.
#[track_caller]
fn left_of(limiter: &Limiter, key: &Key) -> u64 {
    rig::left(limiter, key)[0]
}

#[track_caller]
fn left(layer: &RateLimitLayer) -> u64 {
    left_of(&layer.clone().live().limiter(), &everybody())
}

// Bodies.

#[test]
fn more_than_the_limit_are_refused_until_one_has_ended() {
    let layer = streams(TWO);
    let (mut first, sender) = open(&layer);
    let (_second, _sender) = open(&layer);
    assert!(is_refused(&layer));
    sender.unbounded_send(Ok(Frame::data(Bytes::from("hello")))).expect("it is read");
    assert!(matches!(next(&mut first), Some(Some(Ok(_)))));
    assert!(next(&mut first).is_none() && is_refused(&layer), "it goes on");
    drop(sender);
    assert!(matches!(next(&mut first), Some(None)));
    let (_third, _sender) = open(&layer);
    drop(first);
    assert!(is_refused(&layer), "it was released once");
}

#[test]
fn a_body_that_fails_is_dropped_unread_or_has_ended_holds_nothing() {
    let layer = streams(TWO);
    let (mut response, sender) = open(&layer);
    sender.unbounded_send(Err(io::Error::other("it broke"))).expect("it is read");
    assert!(matches!(next(&mut response), Some(Some(Err(_)))));
    assert_eq!(left(&layer), 2, "the body is still there");
    let (response, _sender) = open(&layer);
    assert_eq!(left(&layer), 1);
    drop(response);
    assert_eq!(left(&layer), 2);

    let response = send(&around(&layer, |_| Response::new(empty())));
    assert_eq!((response.status(), left(&layer)), (StatusCode::OK, 2));
    let mut response = send(&around(&layer, |_| Response::new(full("hello"))));
    assert_eq!(left(&layer), 1);
    // A body that reports its end is not polled again.
    assert!(matches!(next(&mut response), Some(Some(Ok(_)))));
    assert_eq!(left(&layer), 2);
}

#[test]
fn a_call_holds_its_slot_until_its_trailers_have_been_sent() {
    let failures = Policy::new("failures", Quota::per_hour(5)).count(Count::failures());
    let layer = streams(TWO).policy(failures);
    let (mut response, sender) = open_with(&layer, call());
    let trailers = HeaderMap::from_iter([("grpc-status".parse().expect("a name"), "0".parse().expect("a value"))]);
    for (frame, held) in [(Frame::data(Bytes::from("message")), 1), (Frame::trailers(trailers), 1)] {
        sender.unbounded_send(Ok(frame)).expect("it is read");
        assert_eq!(left(&layer), 2 - held);
        assert!(matches!(next(&mut response), Some(Some(Ok(_)))));
    }
    drop(sender);
    assert!(matches!(next(&mut response), Some(None)));
    assert_eq!(left(&layer), 2);
}

#[tokio::test]
async fn a_service_that_fails_or_panics_releases_all_slots_that_the_request_cost() {
    let policy = Policy::new("streams", Quota::concurrency(5)).cost(3);
    let layer = RateLimitLayer::new(MemoryStore::new(), policy);
    let failing = layer.layer(service_fn(async |_: Request<String>| Err::<Response<String>, _>("it failed")));
    failing.oneshot(request()).await.expect_err("it fails");
    assert_eq!(left(&layer), 5);

    let panicking = layer.layer(service_fn(async |request: Request<String>| {
        assert!(request.uri().path() == "/never", "it panics, as the test wants");
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    assert!(tokio::spawn(panicking.oneshot(request())).await.is_err_and(|error| error.is_panic()));
    assert_eq!(left(&layer), 5);
}

// Guards, which handlers move into tasks that go on after the response.

/// The response of a connection that is upgraded, or has a body, and what a handler kept of its handle.
fn keeping<T: Send + 'static>(layer: &RateLimitLayer, upgrades: bool, keep: fn(&RateLimitHandle) -> T) -> (Answer, T) {
    let (keeps, kept) = channel();
    let service = around(layer, move |request| {
        let handle = request.extensions().get::<RateLimitHandle>().expect("the layer gives it");
        keeps.send(keep(handle)).expect("the test receives it");
        let body = if upgrades { empty() } else { full("hello") };
        Response::builder().status(if upgrades { 101 } else { 200 }).body(body).expect("a response")
    });
    (send(&service), kept.try_recv().expect("it was called"))
}

#[test]
fn a_guard_keeps_the_slots_of_an_upgraded_connection_until_all_its_clones_are_dropped() {
    let layer = streams(TWO);
    let (response, guard) = keeping(&layer, true, RateLimitHandle::slots);
    drop(response);
    let clone = guard.clone();
    assert_eq!((left(&layer), guard.is_empty()), (1, false));
    drop(guard);
    assert_eq!(left(&layer), 1);
    drop(clone);
    assert_eq!(left(&layer), 2);
    // A handle keeps none, and neither does a guard where there are none.
    let (response, handle) = keeping(&layer, true, RateLimitHandle::clone);
    drop(response);
    assert_eq!((left(&layer), handle.slots().is_empty()), (2, true));
    assert!(keeping(&streams(Quota::per_hour(10)), true, RateLimitHandle::slots).1.is_empty());
    assert!(SlotGuard::default().is_empty());
}

#[test]
fn a_guard_that_is_made_while_the_body_is_sent_holds_its_slots_on() {
    let layer = streams(TWO);
    let (response, handle) = keeping(&layer, false, RateLimitHandle::clone);
    let guard = handle.slots();
    drop(response);
    assert_eq!(left(&layer), 1);
    drop(guard);
    assert_eq!(left(&layer), 2);
}

#[test]
fn what_a_handler_checks_is_held_until_its_body_ends_and_not_at_all_after_that() {
    let check = |handle: &RateLimitHandle| {
        let exports = Policy::new("exports", Quota::concurrency(3));
        assert!(now(handle.check(&exports, &everybody())).is_allowed());
        handle.clone()
    };
    let layer = streams(TWO);
    let (response, handle) = keeping(&layer, false, check);
    let left = || now(handle.check(&Policy::new("exports", Quota::concurrency(3)).cost(0), &everybody()));
    assert_eq!(left().outcomes()[0].remaining(), 2);
    drop(response);
    assert_eq!(left().outcomes()[0].remaining(), 3);
    check(&handle);
    assert_eq!(left().outcomes()[0].remaining(), 3);
}

/// Futures of responses are dropped after fewer turns than this, another number each time, so that drops meet checks of
/// their handlers, on another thread, at any point.
const TURNS: u32 = 900;

#[test]
fn a_handle_keeps_no_slot_that_it_took_while_its_response_was_dropped() {
    const SLOTS: Quota = Quota::concurrency(1_000_000);
    let all = || Policy::new("all", Quota::per_hour(1_000_000));
    for policy in [all(), all().metered()] {
        let (called, calls) = channel();
        let service = service_fn(move |request: Request<String>| {
            called.send(request.extensions().get::<RateLimitHandle>().cloned()).expect("the test receives it");
            pending::<Result<Response<String>, Infallible>>()
        });
        let store = MemoryStore::new();
        let mut service = RateLimitLayer::new(store.clone(), policy).layer(service);
        let limiter = Limiter::new(store, [Rule::new("exports", SLOTS)]);
        let ((to_check, handles), (begun, begins), (checked, ends)) = (channel(), channel(), channel());
        let checks = thread::spawn(move || {
            let handles: Receiver<RateLimitHandle> = handles;
            for handle in handles {
                begun.send(()).expect("the test receives it");
                assert!(now(handle.check(&Policy::new("exports", SLOTS), &everybody())).is_allowed());
                checked.send(handle).expect("the test receives it");
            }
        });
        for number in 0..5_000 {
            let response = service.call(Request::new(String::new()));
            let handle = calls.try_recv().expect("a plain request is passed on at once").expect("the layer inserts it");
            to_check.send(handle).expect("the thread runs");
            begins.recv().expect("the thread runs");
            (0..number * 7 % TURNS).for_each(|_| spin_loop());
            drop(response);
            let _handle = ends.recv().expect("the check was allowed");
            assert_eq!(left_of(&limiter, &everybody()), SLOTS.limit(), "request {number}");
        }
        drop(to_check);
        checks.join().expect("all checks were allowed");
    }
}

// Slots beside other policies: in nested layers, replaced policies, tiers, and options that make no sense.

#[test]
fn each_of_nested_layers_holds_its_slots_until_the_body_ends() {
    let (outer, inner) = (streams(TWO), streams(Quota::concurrency(1)));
    let nested = outer.layer(inner.layer(hello()));
    let response = rig::send(&nested, request());
    assert_eq!((left(&outer), left(&inner)), (1, 0));
    let refused = rig::send(&nested, request());
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    // The refusal of the inner layer is a response like others to the outer one.
    assert_eq!(left(&outer), 0);
    drop(refused);
    drop(response);
    assert_eq!((left(&outer), left(&inner)), (2, 1));
}

#[test]
fn slots_are_released_where_they_were_taken_though_policies_were_replaced() {
    let layer = streams(TWO);
    let old = open(&layer);
    let replace = |name, quota| layer.clone().live().replace_policies([Policy::new(name, quota)]).expect("valid");
    replace("streams", Quota::concurrency(5));
    assert_eq!(left(&layer), 4, "the slot counts on");
    let new = open(&layer);
    drop(old);
    assert_eq!(left(&layer), 4);
    replace("other", TWO);
    drop(new);
    replace("streams", TWO);
    assert_eq!(left(&layer), 2);
}

#[tokio::test]
async fn a_slot_is_renewed_while_its_body_lasts_and_held_no_longer_than_it_may() {
    let life = Duration::from_secs(4);
    let quota = Quota::concurrency(1).slot_ttl(life).max_hold(5 * life);
    let store = MemoryStore::builder().clock(ManualClock::paused()).build();
    let layer = RateLimitLayer::new(store, Policy::new("streams", quota));
    let (slow, _frames) = open(&layer);
    for second in 1..20 {
        sleep(life / 4).await;
        assert_eq!(left(&layer), 0, "after {second} s");
    }
    sleep(life / 2).await;
    assert_eq!(left(&layer), 1, "the body is still there");

    let (_other, _frames) = open(&layer);
    drop(slow);
    assert_eq!(left(&layer), 0, "the slot of the other is not released");
    sleep(3 * life).await;
    assert_eq!(left(&layer), 0, "nor does it expire");
}

#[test]
fn a_slot_is_not_settled_by_a_real_cost_nor_by_charges_of_the_handler() {
    let four = Quota::concurrency(4);
    let policy = Policy::new("streams", Quota::per_hour(10)).metered().count(Count::failures());
    let store = MemoryStore::new();
    let limiter = Limiter::new(store.clone(), [Rule::new("streams", four)]);
    let policy = policy.tier(move |_| Some(four)).key(key::header("x-user").plain());
    let service = around(&RateLimitLayer::new(store, policy), |request| {
        request.extensions().get::<RateLimitHandle>().expect("the layer gives it").charge(2);
        let mut response = Response::new(full("hello"));
        response.extensions_mut().insert(ActualCost(3));
        response
    });
    let (response, ada) = (rig::send(&service, of("ada")), Key::new("header x-user", "ada"));
    assert_eq!(left_of(&limiter, &ada), 3);
    drop(response);
    assert_eq!(left_of(&limiter, &ada), 4);
}
