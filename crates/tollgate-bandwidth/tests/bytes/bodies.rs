//! Bodies of responses, without sockets.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tokio::time::{Instant, sleep};
use tollgate::body::BodyError;
use tollgate::policy::Count;
use tollgate::store::{DenyCache, LeaseStore, Store};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Key, Limiter, MemoryStore, OnFailure, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule, key};
use tollgate_bandwidth::{BandwidthLayer, FlowError, LimitedBody, OnLimit};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{Inner, Rig, body, left, once, pattern, serve};
use crate::support::time::memory;

const SECOND: Quota = Quota::per_second(1_000);
const HOUR: Quota = Quota::fixed_window(1_000, Duration::from_secs(3_600));

fn bytes(quota: Quota) -> Policy {
    Policy::new("bytes", quota)
}

/// Sends a request through two layers, the outer one first, whose response has this body.
async fn through([outer, inner]: [&Rig; 2], body: Inner) -> Response<impl Body<Data = Bytes, Error = BodyError>> {
    let service = outer.layer.layer(inner.layer.layer(serve(once(body))));
    service.oneshot(Request::new(String::new())).await.expect("a response")
}

/// The cause of an error, which is of this type.
#[track_caller]
fn cause<E: Error + 'static>(error: &BodyError) -> &E {
    error.source().and_then(<dyn Error>::downcast_ref).unwrap_or_else(|| panic!("{error:?}"))
}

#[tokio::test(start_paused = true)]
async fn a_paced_body_passes_whole_with_its_trailers_at_the_rate_of_the_quota() {
    let rig = Rig::new([bytes(SECOND)], OnLimit::Throttle);
    let all = pattern(5_000);
    let chunks = [all.slice(..3_000), Bytes::new(), all.slice(3_000..3_010), all.slice(3_010..)];
    let response = rig.send(body(chunks, true)).await;
    assert_eq!(response.headers()["ratelimit-policy"], "\"bytes\";q=1000;w=1;qu=\"content-bytes\"");
    assert_eq!(response.headers()["ratelimit"], "\"bytes\";r=1000;t=1");
    let start = Instant::now();
    let read = response.into_body().collect().await.expect("it is paced");
    let elapsed = start.elapsed();
    assert_eq!(read.trailers().expect("trailers")["x-sum"], "42");
    assert_eq!(read.to_bytes(), all);
    assert!((Duration::from_secs(4)..Duration::from_millis(4_400)).contains(&elapsed), "{elapsed:?}");
    assert_eq!(rig.taken(), 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_body_with_a_known_size_keeps_it_and_its_end() {
    let rig = Rig::new([bytes(SECOND)], OnLimit::Throttle);
    let inner = Full::new(pattern(2_500)).map_err(|never| match never {}).boxed_unsync();
    let mut body = Box::pin(rig.send(inner).await.into_body());
    let mut left = 2_500;
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left), false));
    while let Some(frame) = body.frame().await {
        left -= frame.expect("it is paced").into_data().expect("data").len() as u64;
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left), left == 0));
    }
    assert_eq!(left, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cut_body_fails_with_the_limit_and_later_requests_are_refused() {
    let rig = Rig::new([bytes(HOUR)], OnLimit::Abort);
    let first = rig.send(body([pattern(600)], false)).await;
    assert_eq!(first.into_body().collect().await.expect("it fits").to_bytes().len(), 600);
    assert_eq!(left(&rig, "bytes", HOUR).await, 400);

    let mut second = Box::pin(rig.send(body([pattern(300), pattern(300)], false)).await.into_body());
    let mut passed = 0;
    let error = loop {
        match second.frame().await.expect("it does not end") {
            Ok(frame) => passed += frame.into_data().expect("data").len(),
            Err(error) => break error,
        }
    };
    assert_eq!(passed, 400, "all that was left has passed");
    let error = cause::<FlowError>(&error);
    assert!(error.is_denied() && error.policy() == Some("bytes") && error.quota() == Some(&HOUR), "{error}");
    assert!(second.frame().await.is_none() && second.is_end_stream(), "nothing comes after an error");

    let refused = rig.send(body([], false)).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(left(&rig, "bytes", HOUR).await, 0);
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_request_whose_body_would_be_cut_is_never_early() {
    let minute = Duration::from_secs(60);
    let windows = [Quota::fixed_window, Quota::sliding_window, Quota::sliding_log].map(|of| of(10_000, minute));
    for quota in windows.into_iter().chain([Quota::per_minute(10_000)]) {
        for left in [0, 1, 10] {
            let rig = Rig::new([bytes(quota)], OnLimit::Abort);
            let limiter = Limiter::new(rig.store.clone(), [Rule::new("bytes", quota)]);
            let _ = limiter.check_n(&Key::new("global", ""), 4_000).await.expect("memory decides");
            sleep(Duration::from_millis(5_300)).await;
            let rest = limiter.peek(&Key::new("global", "")).await.expect("memory decides").outcomes()[0].remaining();
            let _ = limiter.check_n(&Key::new("global", ""), rest - left).await.expect("memory decides");
            let refused = rig.send(body([], false)).await;
            if refused.status() == StatusCode::OK {
                assert!(left > 0, "{quota}");
                continue;
            }
            let wait = refused.headers()["retry-after"].to_str().expect("text").parse().expect("a number");
            assert!(wait <= 120, "{wait} s of {quota}");
            sleep(Duration::from_secs(wait)).await;
            assert_eq!(rig.send(body([], false)).await.status(), StatusCode::OK, "{quota}, {left} left, {wait} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_body_that_one_layer_paces_and_another_cuts_each_does_its_own() {
    for is_cut_inside in [false, true] {
        let day = Policy::new("day", Quota::fixed_window(5_000, Duration::from_secs(86_400)));
        let (slow, day) = (Rig::new([Policy::new("slow", SECOND)], OnLimit::Throttle), Rig::new([day], OnLimit::Abort));
        let layers = if is_cut_inside { [&slow, &day] } else { [&day, &slow] };
        let start = Instant::now();
        let answer = through(layers, body([pattern(4_000)], false)).await;
        let mut policies = answer.headers().get_all("ratelimit-policy").iter().map(|value| value.to_str());
        assert!(policies.any(|all| all.is_ok_and(|all| all.contains("slow") && all.contains("day"))), "both");
        let read = answer.into_body().collect().await.expect("it fits");
        assert_eq!(read.to_bytes().len(), 4_000);
        assert!(start.elapsed() >= Duration::from_secs(3), "{:?}", start.elapsed());
        let answer = through(layers, body([pattern(4_000)], false)).await;
        let error = answer.into_body().collect().await.map(drop).expect_err("5000 a day");
        assert_eq!(cause::<FlowError>(&error).policy(), Some("day"));
        let refused = through(layers, body([], false)).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_body_would_be_cut_is_counted_by_the_layer_outside_unless_that_counts_what_is_served() {
    for (served, left_of_requests) in [(false, 7), (true, 8)] {
        let requests = Policy::new("requests", Quota::fixed_window(10, Duration::from_secs(3_600)));
        let requests = if served { requests.count(Count::served()) } else { requests };
        let outer = RateLimitLayer::new(memory(&ManualClock::paused()), requests);
        let rig = Rig::new([bytes(HOUR)], OnLimit::Abort);
        let send = async || {
            let inner = rig.layer.layer(serve(|| body([pattern(1_000)], false)));
            outer.layer(inner).oneshot(Request::new(String::new())).await.expect("a response")
        };
        for (status, left) in [(200, 9), (429, if served { 9 } else { 8 })] {
            let answer = send().await;
            assert_eq!(answer.status(), status);
            let decision = outer.clone().live().limiter().peek(&Key::new("global", "")).await.expect("memory decides");
            assert_eq!(decision.outcomes()[0].remaining(), left, "{status}");
            drop(answer.into_body().collect().await);
        }
        rig.layer.limits().limiter().reset(&Key::new("global", "")).await.expect("memory decides");
        assert_eq!(send().await.status(), 200);
        let decision = outer.clone().live().limiter().peek(&Key::new("global", "")).await.expect("memory decides");
        assert_eq!(decision.outcomes()[0].remaining(), left_of_requests);
    }
}

#[tokio::test(start_paused = true)]
async fn of_policies_of_several_keys_the_strictest_holds_and_each_client_has_its_own() {
    let user = Policy::new("user", Quota::fixed_window(1_000, Duration::from_secs(3_600))).key(key::header("x-user"));
    let rig =
        Rig::new([user, Policy::new("all", Quota::fixed_window(1_500, Duration::from_secs(3_600)))], OnLimit::Abort);
    let get = async |user: &'static str| {
        let inner = serve(|| body([pattern(900)], false));
        let request = Request::builder().header("x-user", user).body(String::new()).expect("valid");
        let answer = rig.layer.layer(inner).oneshot(request).await.expect("a response");
        let error = answer.into_body().collect().await.map(drop).err();
        error.map(|error| cause::<FlowError>(&error).policy().map(str::to_owned))
    };
    assert_eq!(get("ada").await, None);
    assert_eq!(get("ada").await, Some(Some("user".to_owned())));
    assert_eq!(get("bob").await, Some(Some("all".to_owned())), "500 of all are left, less what ada has read");
}

#[tokio::test(start_paused = true)]
async fn stores_around_a_store_cut_bodies_too() {
    async fn cuts(store: impl Store) {
        let layer = BandwidthLayer::responses(RateLimitLayer::new(store, bytes(HOUR)), OnLimit::Abort);
        let get = async |size| {
            let answer =
                layer.layer(serve(move || body([pattern(size)], false))).oneshot(Request::new(String::new())).await;
            answer.expect("a response").into_body().collect().await.is_ok()
        };
        assert_eq!((get(900).await, get(200).await), (true, false));
    }
    let clock = ManualClock::paused();
    cuts(LeaseStore::new(memory(&clock))).await;
    cuts(DenyCache::new(memory(&clock))).await;
}

#[tokio::test(start_paused = true)]
async fn handlers_find_the_handle_of_the_layer_outside() {
    let outer = RateLimitLayer::new(memory(&ManualClock::paused()), Policy::new("requests", Quota::per_hour(10)));
    for is_outside in [true, false] {
        let rig = Rig::new([bytes(HOUR)], OnLimit::Throttle);
        let inner = service_fn(move |request: Request<LimitedBody<String>>| {
            let handle = request.extensions().get::<RateLimitHandle>();
            let names = handle.map(|handle| handle.decision().outcomes()[0].policy().to_owned());
            assert_eq!(names.as_deref(), is_outside.then_some("requests"));
            std::future::ready(Ok::<_, Infallible>(Response::new(body([], false))))
        });
        let inner = rig.layer.layer(inner);
        if is_outside {
            outer.layer(inner).oneshot(Request::new(String::new())).await.expect("a response");
        } else {
            inner.oneshot(Request::new(String::new())).await.expect("a response");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_grpc_call_whose_body_would_be_cut_is_refused_in_its_terms() {
    let rig = Rig::new([bytes(HOUR)], OnLimit::Abort);
    rig.send(body([pattern(1_000)], false)).await.into_body().collect().await.expect("it fits");
    let call = Request::post("/a.B/c").header("content-type", "application/grpc").body(String::new()).expect("valid");
    let answer = rig.layer.layer(serve(|| panic!("it is refused"))).oneshot(call).await.expect("a response");
    assert_eq!((answer.status(), &answer.headers()["grpc-status"]), (StatusCode::OK, &HeaderValue::from_static("8")));
}

#[tokio::test(start_paused = true)]
async fn while_the_store_fails_the_rule_of_the_layer_decides() {
    for rule in [OnFailure::Deny, OnFailure::Allow, OnFailure::Fallback] {
        let failing = FailingStore::new(MemoryStore::new());
        failing.fail();
        let limits = RateLimitLayer::new(failing.clone(), bytes(HOUR)).on_failure(rule);
        let layer = BandwidthLayer::responses(limits, OnLimit::Abort);
        let inner = serve(|| body([pattern(5_000)], false));
        let answer = layer.layer(inner).oneshot(Request::new(String::new())).await.expect("a response");
        let status = if rule == OnFailure::Deny { 503 } else { 200 };
        assert_eq!(answer.status(), status, "{rule:?}");
        let read = answer.into_body().collect().await;
        assert_eq!(read.is_ok(), rule != OnFailure::Fallback, "{rule:?}: a local store cuts");
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_without_bytes_take_nothing() {
    for over in [OnLimit::Throttle, OnLimit::Abort] {
        let rig = Rig::new([bytes(HOUR)], over);
        let empty = Empty::new().map_err(|never| match never {}).boxed_unsync();
        rig.send(empty).await.into_body().collect().await.expect("nothing");
        rig.send(body([Bytes::new()], true)).await.into_body().collect().await.expect("no bytes");
        assert_eq!(left(&rig, "bytes", HOUR).await, 1_000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_never_read_takes_nothing_and_one_that_is_left_returns_what_it_holds() {
    let rig = Rig::new([bytes(HOUR)], OnLimit::Throttle);
    let never = rig.send(body([pattern(600)], false)).await;
    assert_eq!(left(&rig, "bytes", HOUR).await, 1_000);
    let mut once = Box::pin(rig.send(body([pattern(1), pattern(600)], false)).await.into_body());
    once.frame().await.expect("a byte").expect("it passes");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(left(&rig, "bytes", HOUR).await, 999);
    drop((never, once));
    assert_eq!(left(&rig, "bytes", HOUR).await, 999);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_vanishes_at_any_await_takes_what_has_passed() {
    for polls in 0..12 {
        let rig = Rig::new([bytes(Quota::fixed_window(1_000, Duration::from_secs(5)))], OnLimit::Throttle);
        let mut body = Box::pin(rig.send(body((0..10).map(|_| pattern(300)), false)).await.into_body());
        let mut passed = 0;
        for poll in 0..polls {
            match body.frame().now_or_never() {
                Some(frame) => {
                    passed += frame.map_or(0, |frame| frame.expect("paced").into_data().expect("data").len());
                }
                None => sleep(Duration::from_millis(700 * poll)).await,
            }
        }
        drop(body);
        tokio::task::yield_now().await;
        assert_eq!(rig.taken(), passed as u64, "{polls} polls");
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_paced_body_reads_one_frame_ahead_at_most() {
    let rig = Rig::new([bytes(SECOND)], OnLimit::Throttle);
    let read = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = read.clone();
    let frames = stream::iter(0..20).map(move |_| {
        counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok::<_, io::Error>(Frame::data(pattern(400)))
    });
    let mut body = Box::pin(rig.send(StreamBody::new(frames).boxed_unsync()).await.into_body());
    let mut passed = 0;
    while let Some(frame) = body.frame().await {
        passed += frame.expect("paced").into_data().expect("data").len();
        let read = read.load(std::sync::atomic::Ordering::SeqCst);
        assert!(read * 400 < passed + 400, "{read} frames for {passed} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_inner_body_pass() {
    let rig = Rig::new([bytes(SECOND)], OnLimit::Throttle);
    let frames = stream::iter([Ok(Frame::data(pattern(10))), Err(io::Error::other("it broke"))]);
    let mut body = Box::pin(rig.send(StreamBody::new(frames).boxed_unsync()).await.into_body());
    body.frame().await.expect("data").expect("it passes");
    let error = body.frame().await.expect("an error").expect_err("it broke");
    assert_eq!(cause::<io::Error>(&error).to_string(), "it broke");
    assert_eq!(error.to_string(), "it broke");
}

#[tokio::test(start_paused = true)]
async fn a_policy_in_shadow_mode_or_of_other_requests_limits_nothing() {
    let shadow = bytes(HOUR).shadow();
    let other = Policy::new("posts", HOUR).methods([http::Method::POST]);
    let rig = Rig::new([shadow, other], OnLimit::Abort);
    for _ in 0..3 {
        let read = rig.send(body([pattern(5_000)], false)).await.into_body().collect().await.expect("no limit");
        assert_eq!(read.to_bytes().len(), 5_000);
    }
}

#[tokio::test(start_paused = true)]
async fn policies_that_are_replaced_pace_bodies_that_are_being_read() {
    let rig = Rig::new([bytes(Quota::per_second(100))], OnLimit::Throttle);
    let mut body = Box::pin(rig.send(body([pattern(10_000)], false)).await.into_body());
    sleep_read(&mut body, 200).await;
    rig.layer.limits().replace_policies([bytes(Quota::per_second(10_000))]).expect("it is valid");
    let start = Instant::now();
    sleep_read(&mut body, 9_800).await;
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

/// Reads at least so many bytes.
async fn sleep_read<B>(body: &mut Pin<Box<B>>, bytes: usize)
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let mut read = 0;
    while read < bytes {
        let Some(frame) = body.frame().await else { return };
        read += frame.expect("paced").into_data().expect("data").len();
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_read_again_all_at_once_pass_no_more_than_a_burst() {
    let rig = Rig::new([bytes(SECOND)], OnLimit::Throttle);
    let mut idle = Vec::new();
    for _ in 0..60 {
        idle.push(Box::pin(rig.send(body((0..3).map(|_| pattern(1_000)), false)).await.into_body()));
    }
    let mut reads = || {
        let frames = idle.iter_mut().filter_map(|body| body.frame().now_or_never().flatten());
        frames.map(|frame| frame.expect("it is paced").into_data().expect("data").len()).sum::<usize>()
    };
    assert_eq!(reads(), 1_000, "the burst");
    for _ in 0..5 {
        sleep(Duration::from_millis(9_700)).await;
        let passed = reads();
        assert!(passed <= 2_250, "{passed} at once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_reserve_refuses_nobody_while_enough_is_left() {
    let quota = Quota::per_second(40_000);
    let rig = Rig::new([bytes(quota).reserve(0.8, |_| false)], OnLimit::Abort);
    for _ in 0..5 {
        let answer = rig.send(body([pattern(1_000)], false)).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.into_body().collect().await.expect("it passes").to_bytes().len(), 1_000);
    }
}
