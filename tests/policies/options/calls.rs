//! Which gRPC calls count: their status is in the head of the response, or in its trailers.

use std::convert::Infallible;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tollgate::policy::Count;
use tollgate::response::ActualCost;
use tollgate::test_util::FailingStore;
use tollgate::{Policy, Quota, RateLimitHandle, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{HOUR, Rig, Text, background, get, line, on_each_store};

const FIVE: Quota = Quota::fixed_window(5, HOUR);

/// A part of a response body.
#[derive(Clone, Copy, Debug)]
enum Part {
    Data,
    /// Trailers with a status.
    Status(&'static str),
    /// Trailers without one.
    Silence,
    Broken,
}

use Part::{Broken, Data, Silence, Status};

impl Part {
    fn frame(self) -> Result<Frame<Bytes>, io::Error> {
        let trailers = |name, value| {
            let line = (HeaderName::from_static(name), HeaderValue::from_static(value));
            Ok(Frame::trailers(HeaderMap::from_iter([line])))
        };
        match self {
            Data => Ok(Frame::data(Bytes::from_static(&[0; 5]))),
            Status(code) => trailers("grpc-status", code),
            Silence => trailers("x-other", "0"),
            Broken => Err(io::Error::other("reset")),
        }
    }
}

type Fields = &'static [(&'static str, &'static str)];

const GRPC: Fields = &[("content-type", "application/grpc+proto")];

/// A response with these fields and this body.
fn response(fields: Fields, body: &'static [Part]) -> Response<impl Body<Data = Bytes, Error = io::Error> + Unpin> {
    let mut response = Response::new(StreamBody::new(stream::iter(body).map(|part| part.frame())));
    for (name, value) in fields {
        response.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    response
}

/// What a layer makes of that response.
async fn answer(
    layer: &RateLimitLayer,
    fields: Fields,
    body: &'static [Part],
) -> Response<impl Body<Data = Bytes, Error: Debug> + Unpin> {
    let inner = service_fn(move |_: Request<Text>| future::ready(Ok::<_, Infallible>(response(fields, body))));
    layer.layer(inner).oneshot(get()).await.expect("the service does not fail")
}

/// Reads a body to its end, or to its error.
async fn read(response: Response<impl Body<Data = Bytes> + Unpin>) -> usize {
    let mut body = response.into_body();
    let mut frames = 0;
    while let Some(Ok(_)) = body.frame().await {
        frames += 1;
    }
    background().await;
    frames
}

/// What is left of five units after a call that was read to its end.
async fn left_after(rig: &Rig, name: &str, count: Count, fields: Fields, body: &'static [Part]) -> u64 {
    let layer = rig.layer([Policy::new(name, FIVE).count(count)]);
    read(answer(&layer, fields, body).await).await;
    rig.left_of_all(name, FIVE).await
}

/// Expects calls with this response to count as failures or not, and as successes just the other way.
async fn table(rows: &[(Fields, &'static [Part], bool)]) {
    on_each_store(async |rig| {
        for (place, (fields, body, failed)) in rows.iter().enumerate() {
            let left = left_after(rig, &format!("failures-{place}"), Count::failures(), fields, body).await;
            assert_eq!(left, 5 - u64::from(*failed), "{}: failures: {fields:?}, {body:?}", rig.name);
            let left = left_after(rig, &format!("successes-{place}"), Count::successes(), fields, body).await;
            assert_eq!(left, 5 - u64::from(!*failed), "{}: successes: {fields:?}, {body:?}", rig.name);
        }
    })
    .await;
}

const DENIED: Fields = &[("content-type", "application/grpc"), ("grpc-status", "16")];
const DONE: Fields = &[("content-type", "application/grpc"), ("grpc-status", "0")];
const WEB: Fields = &[("content-type", "application/grpc-web+proto"), ("grpc-status", "16")];

#[tokio::test]
async fn a_status_in_the_head_is_the_outcome_of_a_call() {
    table(&[(DENIED, &[], true), (WEB, &[], true), (DONE, &[], false), (DONE, &[Data, Status("5")], false)]).await;
}

#[tokio::test]
async fn a_status_in_the_trailers_is_the_outcome_of_a_call() {
    table(&[
        (GRPC, &[Data, Status("0")], false),
        (GRPC, &[Status("0")], false),
        (GRPC, &[Data, Data, Status("16")], true),
        (GRPC, &[Status("7")], true),
        (GRPC, &[Data, Status("zero")], true),
    ])
    .await;
}

#[tokio::test]
async fn a_call_that_ends_without_a_status_or_breaks_off_failed() {
    table(&[(GRPC, &[], true), (GRPC, &[Data], true), (GRPC, &[Data, Silence], true), (GRPC, &[Data, Broken], true)])
        .await;
}

#[tokio::test]
async fn a_body_that_says_that_it_ended_is_a_call_without_a_status() {
    let rig = Rig::memory();
    for (name, text) in [("empty", ""), ("full", "five")] {
        let layer = rig.layer([Policy::new(name, FIVE).count(Count::successes())]);
        let inner = service_fn(move |_: Request<Text>| {
            let mut response = Response::new(Text::from(text));
            response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
            future::ready(Ok::<_, Infallible>(response))
        });
        let mut body = layer.layer(inner).oneshot(get()).await.unwrap().into_body();
        // As hyper does it: a body at its end is not polled again.
        while !body.is_end_stream() {
            body.frame().await.expect("a frame").expect("data");
        }
        drop(body);
        assert_eq!(rig.left_of_all(name, FIVE).await, 5, "{name}: it is no success");
    }
}

#[tokio::test]
async fn five_logins_that_fail_in_their_trailers_are_all_there_are() {
    on_each_store(async |rig| {
        let layer = rig.layer([Policy::new("login", FIVE).count(Count::failures())]);
        for _ in 0..7 {
            assert_eq!(read(answer(&layer, GRPC, &[Data, Status("0")]).await).await, 2, "{}", rig.name);
        }
        for _ in 0..5 {
            let response = answer(&layer, GRPC, &[Data, Status("16")]).await;
            assert_eq!((response.status(), read(response).await), (StatusCode::OK, 2), "{}", rig.name);
        }
        let refused = answer(&layer, GRPC, &[Data, Status("16")]).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_call_counts_while_it_is_under_way_and_its_head_says_so() {
    on_each_store(async |rig| {
        let layer = rig.layer([Policy::new("calls", FIVE).count(Count::failures())]);
        let response = answer(&layer, GRPC, &[Data, Status("0")]).await;
        background().await;
        assert_eq!(line(&response, "x-ratelimit-remaining"), "4", "{}", rig.name);
        assert_eq!(rig.left_of_all("calls", FIVE).await, 4, "{}", rig.name);
        let mut body = response.into_body();
        assert!(body.frame().await.expect("a frame").expect("no error").is_data());
        assert_eq!(rig.left_of_all("calls", FIVE).await, 4, "{}", rig.name);
        assert!(body.frame().await.expect("a frame").expect("no error").is_trailers());
        background().await;
        assert_eq!(rig.left_of_all("calls", FIVE).await, 5, "{}", rig.name);
        assert!(body.frame().await.is_none());
    })
    .await;
}

#[tokio::test]
async fn a_call_that_nobody_reads_to_its_end_keeps_its_units_whatever_counts() {
    on_each_store(async |rig| {
        for (name, count) in [("failures", Count::failures()), ("successes", Count::successes())] {
            let layer = rig.layer([Policy::new(name, FIVE).count(count).refund_dropped()]);
            drop(answer(&layer, GRPC, &[Data, Status("0")]).await);
            background().await;
            assert_eq!(rig.left_of_all(name, FIVE).await, 4, "{}: {name}", rig.name);
            let mut body = answer(&layer, GRPC, &[Data, Status("16")]).await.into_body();
            assert!(body.frame().await.expect("a frame").expect("no error").is_data());
            drop(body);
            background().await;
            assert_eq!(rig.left_of_all(name, FIVE).await, 3, "{}: {name}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_no_call_is_settled_by_its_head() {
    let kinds: [Fields; 3] =
        [&[("content-type", "text/plain")], &[], &[("content-type", "application/grpc-web+proto")]];
    on_each_store(async |rig| {
        for (place, fields) in kinds.into_iter().enumerate() {
            let name = format!("plain-{place}");
            let layer = rig.layer([Policy::new(&name, FIVE).count(Count::failures())]);
            let response = answer(&layer, fields, &[Data, Status("16")]).await;
            background().await;
            assert_eq!(line(&response, "x-ratelimit-remaining"), "5", "{}: {fields:?}", rig.name);
            assert_eq!(rig.left_of_all(&name, FIVE).await, 5, "{}: {fields:?}", rig.name);
            read(response).await;
            assert_eq!(rig.left_of_all(&name, FIVE).await, 5, "{}: {fields:?}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn statuses_and_closures_see_the_head_of_a_call_only() {
    on_each_store(async |rig| {
        let is_ok = Count::statuses([StatusCode::OK]);
        assert_eq!(left_after(rig, "statuses", is_ok, GRPC, &[Data, Status("16")]).await, 4, "{}", rig.name);
        let told = || Count::when(|response| response.headers.contains_key("grpc-status"));
        assert_eq!(left_after(rig, "head", told(), DENIED, &[]).await, 4, "{}", rig.name);
        assert_eq!(left_after(rig, "trailers", told(), GRPC, &[Data, Status("16")]).await, 5, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn what_a_call_really_cost_is_owed_if_it_counts_and_nothing_else() {
    on_each_store(async |rig| {
        let rows: [(&'static [Part], u64); 2] = [(&[Data, Status("0")], 5), (&[Data, Status("16")], 1)];
        for (place, (body, left)) in rows.into_iter().enumerate() {
            let name = format!("metered-{place}");
            let layer = rig.layer([Policy::new(&name, FIVE).metered().count(Count::failures())]);
            let inner = service_fn(move |request: Request<Text>| {
                let limits: RateLimitHandle = request.extensions().get().cloned().expect("the layer gives a handle");
                let mut response = response(GRPC, body).map(|body| {
                    // While the body is streamed.
                    body.map_frame(move |frame| {
                        if frame.is_data() {
                            limits.charge(1);
                        }
                        frame
                    })
                });
                response.extensions_mut().insert(ActualCost(3));
                future::ready(Ok::<_, Infallible>(response))
            });
            let response = layer.layer(inner).oneshot(get()).await.expect("the service does not fail");
            assert_eq!(line(&response, "x-ratelimit-remaining"), "2", "{}: the real cost is shown", rig.name);
            read(response).await;
            // What the trailers change is sent once the charge of the head is answered.
            for _ in 0..200 {
                if rig.left_of_all(&name, FIVE).await == left {
                    break;
                }
                background().await;
            }
            assert_eq!(rig.left_of_all(&name, FIVE).await, left, "{}: {body:?}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn each_of_nested_layers_settles_a_call() {
    let rig = Rig::memory();
    let layer = |name| rig.layer([Policy::new(name, FIVE).count(Count::failures())]);
    for (status, left) in [("0", 5), ("16", 4)] {
        let inner = service_fn(move |_: Request<Text>| {
            let body: &'static [Part] = if status == "0" { &[Data, Status("0")] } else { &[Data, Status("16")] };
            future::ready(Ok::<_, Infallible>(response(GRPC, body)))
        });
        let service = layer("outer").layer(layer("inner").layer(inner));
        read(service.oneshot(get()).await.expect("the service does not fail")).await;
        assert_eq!(rig.left_of_all("outer", FIVE).await, left, "{status}");
        assert_eq!(rig.left_of_all("inner", FIVE).await, left, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_wait_for_units_that_the_next_call_of_the_client_needs() {
    let rig = Rig::memory();
    let store = FailingStore::new(Arc::clone(&rig.store));
    let one = Quota::fixed_window(1, HOUR);
    let layer = RateLimitLayer::new(store.clone(), Policy::new("calls", one).count(Count::failures()));
    let mut body = answer(&layer, GRPC, &[Data, Status("0")]).await.into_body();
    assert!(body.frame().await.expect("a frame").expect("no error").is_data());
    let held = store.hold();
    for _ in 0..3 {
        assert!(body.frame().now_or_never().is_none(), "its status is not told before it is settled");
    }
    assert!(!body.is_end_stream());
    held.release();
    assert!(body.frame().await.expect("a frame").expect("no error").is_trailers());
    assert_eq!(rig.left_of_all("calls", one).await, 1);
    assert!(body.frame().await.is_none());
}
