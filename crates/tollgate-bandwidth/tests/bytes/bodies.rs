//! Bodies of responses, without sockets.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::time::{Instant, sleep};
use tollgate::body::BodyError;
use tollgate::policy::Count;
use tollgate::{Key, Policy, Quota, RateLimitLayer, key};
use tollgate_bandwidth::{FlowError, OnLimit};
use tower::{Layer, ServiceExt};

use super::rig::{HOUR, Inner, Rig, SECOND, body, bytes, cause, pattern, read, send, serve};
use crate::audit::memory;

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
    assert_eq!(rig.counts.taken(), 5_000);
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
    assert_eq!(read(rig.send(body([pattern(600)], false)).await).await, Ok(600));
    assert_eq!(rig.left().await, 400);

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

    assert_eq!(rig.send(body([], false)).await.status(), StatusCode::TOO_MANY_REQUESTS);
    let call = Request::post("/a.B/c").header("content-type", "application/grpc").body(String::new()).expect("valid");
    let answer = send(&rig.layer, call, body([], false)).await;
    assert_eq!((answer.status(), &answer.headers()["grpc-status"]), (StatusCode::OK, &HeaderValue::from_static("8")));
    assert_eq!(rig.left().await, 0);
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_request_whose_body_would_be_cut_is_never_early() {
    let minute = Duration::from_secs(60);
    let windows = [Quota::fixed_window, Quota::sliding_window, Quota::sliding_log].map(|of| of(10_000, minute));
    for quota in windows.into_iter().chain([Quota::per_minute(10_000)]) {
        for left in [0, 1, 10] {
            let rig = Rig::new([bytes(quota)], OnLimit::Abort);
            let (limiter, all) = (rig.limiter(), Key::new("global", ""));
            let _ = limiter.check_n(&all, 4_000).await.expect("memory decides");
            sleep(Duration::from_millis(5_300)).await;
            let _ = limiter.check_n(&all, rig.left().await - left).await.expect("memory decides");
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

/// Sends a request through two layers, the outer one first, whose response has this body.
async fn through([outer, inner]: [&Rig; 2], body: Inner) -> Response<impl Body<Data = Bytes, Error = BodyError>> {
    let service = outer.layer.layer(inner.layer.layer(serve(body)));
    service.oneshot(Request::new(String::new())).await.expect("a response")
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
        assert_eq!(read(answer).await, Ok(4_000));
        assert!(start.elapsed() >= Duration::from_secs(3), "{:?}", start.elapsed());
        assert_eq!(read(through(layers, body([pattern(4_000)], false)).await).await, Err("day".to_owned()));
        assert_eq!(through(layers, body([], false)).await.status(), StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_body_would_be_cut_is_counted_by_the_layer_outside_unless_that_counts_what_is_served() {
    for (served, left_of_requests) in [(false, [9, 8, 7]), (true, [9, 9, 8])] {
        let requests = Policy::new("requests", Quota::fixed_window(10, Duration::from_secs(3_600)));
        let requests = if served { requests.count(Count::served()) } else { requests };
        let outer = RateLimitLayer::new(memory(), requests);
        let rig = Rig::new([bytes(HOUR)], OnLimit::Abort);
        for (place, status) in [200, 429, 200].into_iter().enumerate() {
            let service = outer.layer(rig.layer.layer(serve(body([pattern(1_000)], false))));
            let answer = service.oneshot(Request::new(String::new())).await.expect("a response");
            assert_eq!(answer.status(), status);
            let decision = outer.clone().live().limiter().peek(&Key::new("global", "")).await.expect("memory decides");
            assert_eq!(decision.outcomes()[0].remaining(), left_of_requests[place], "{status}, served: {served}");
            drop(answer.into_body().collect().await);
            if status == 429 {
                rig.limiter().reset(&Key::new("global", "")).await.expect("memory decides");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_policies_of_several_keys_the_strictest_holds_and_each_client_has_its_own() {
    let user = Policy::new("user", HOUR).key(key::header("x-user"));
    let all = Policy::new("all", Quota::fixed_window(1_500, Duration::from_secs(3_600)));
    let rig = Rig::new([user, all], OnLimit::Abort);
    for (user, expected) in [("ada", Ok(900)), ("ada", Err("user")), ("bob", Err("all"))] {
        let request = Request::builder().header("x-user", user).body(String::new()).expect("valid");
        let found = read(send(&rig.layer, request, body([pattern(900)], false)).await).await;
        assert_eq!(found, expected.map_err(str::to_owned), "{user}");
    }
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
        assert_eq!(rig.counts.taken(), passed as u64, "{polls} polls");
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_paced_body_reads_one_frame_ahead_at_most_and_passes_its_error() {
    let rig = Rig::new([bytes(SECOND)], OnLimit::Throttle);
    let read = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&read);
    let frames = stream::iter(0..=20).map(move |place| {
        counter.fetch_add(1, Ordering::SeqCst);
        if place < 20 { Ok(Frame::data(pattern(400))) } else { Err(io::Error::other("it broke")) }
    });
    let mut body = Box::pin(rig.send(StreamBody::new(frames).boxed_unsync()).await.into_body());
    let mut passed = 0;
    let error = loop {
        match body.frame().await.expect("it does not end") {
            Ok(frame) => passed += frame.into_data().expect("data").len(),
            Err(error) => break error,
        }
        let read = read.load(Ordering::SeqCst);
        assert!(read * 400 < passed + 400, "{read} frames for {passed} bytes");
    };
    assert_eq!(passed, 20 * 400);
    assert_eq!((cause::<io::Error>(&error).to_string(), error.to_string()), ("it broke".into(), "it broke".into()));
}

#[tokio::test(start_paused = true)]
async fn a_policy_in_shadow_mode_counts_what_passes_and_neither_it_nor_one_of_other_requests_limits() {
    let other = Policy::new("posts", HOUR).methods([http::Method::POST]);
    let rig = Rig::new([bytes(HOUR).shadow(), other], OnLimit::Abort);
    for size in [10, 5_000, 5_000] {
        assert_eq!(read(rig.send(body([pattern(size)], false)).await).await, Ok(size));
        assert!(rig.left().await <= 990);
    }
}
