//! Which gRPC calls count: their status is in the head of the response, or in its trailers.

use std::convert::Infallible;
use std::fmt::Debug;
use std::io;

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

use crate::rig::{HOUR, Rig, Text, background, get, line, on_each_store};

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
type Parts = &'static [Part];

const GRPC: Fields = &[("content-type", "application/grpc+proto")];
const DENIED: Fields = &[("content-type", "application/grpc"), ("grpc-status", "16")];
const DONE: Fields = &[("content-type", "application/grpc"), ("grpc-status", "0")];
const WEB: Fields = &[("content-type", "application/grpc-web+proto")];
const WEB_DENIED: Fields = &[("content-type", "application/grpc-web+proto"), ("grpc-status", "16")];

/// A response with these fields and this body.
fn response(fields: Fields, body: Parts) -> Response<impl Body<Data = Bytes, Error = io::Error> + Unpin> {
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
    body: Parts,
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

#[tokio::test]
async fn a_call_counts_by_its_status_wherever_that_is() {
    let is_ok = || Count::statuses([StatusCode::OK]);
    let is_told = || Count::when(|response| response.headers.contains_key("grpc-status"));
    on_each_store(async |rig| {
        for (place, (fields, body, failed)) in [
            (DENIED, &[][..], true),
            (WEB_DENIED, &[], true),
            (DONE, &[], false),
            (DONE, &[Data, Status("5")], false),
            (GRPC, &[Data, Status("0")], false),
            (GRPC, &[Status("0")], false),
            (GRPC, &[Data, Data, Status("16")], true),
            (GRPC, &[Status("7")], true),
            (GRPC, &[Data, Status("zero")], true),
            // It ends without a status, or breaks off.
            (GRPC, &[], true),
            (GRPC, &[Data], true),
            (GRPC, &[Data, Silence], true),
            (GRPC, &[Data, Broken], true),
            // What is no call is settled by its head.
            (&[("content-type", "text/plain")], &[Data, Status("16")], false),
            (&[], &[Data, Status("16")], false),
            (WEB, &[Data, Status("16")], false),
        ]
        .into_iter()
        .enumerate()
        {
            let has_head = fields.iter().any(|(name, _)| *name == "grpc-status");
            for (name, count, counts) in [
                ("failures", Count::failures(), failed),
                ("successes", Count::successes(), !failed),
                // These see the head only.
                ("statuses", is_ok(), true),
                ("told", is_told(), has_head),
            ] {
                let name = format!("{name}-{place}");
                let layer = rig.layer([Policy::new(&name, FIVE).count(count)]);
                read(answer(&layer, fields, body).await).await;
                let left = rig.left_of_all(&name, FIVE).await;
                assert_eq!(left, 5 - u64::from(counts), "{}: {name}: {fields:?}, {body:?}", rig.name);
            }
        }
    })
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
        let mut body = layer.layer(inner).oneshot(get()).await.expect("it does not fail").into_body();
        // As hyper does it: a body at its end is not polled again.
        while !body.is_end_stream() {
            body.frame().await.expect("a frame").expect("data");
        }
        drop(body);
        assert_eq!(rig.left_of_all(name, FIVE).await, 5, "{name}: it is no success");
    }
}

#[tokio::test]
async fn a_call_counts_while_it_is_under_way_and_where_nobody_reads_it_to_its_end() {
    on_each_store(async |rig| {
        for (name, count) in [("failures", Count::failures()), ("successes", Count::successes())] {
            let layer = rig.layer([Policy::new(name, FIVE).count(count).refund_dropped()]);
            let response = answer(&layer, GRPC, &[Data, Status("0")]).await;
            background().await;
            assert_eq!(line(&response, "x-ratelimit-remaining"), "4", "{}: {name}", rig.name);
            drop(response);
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
async fn what_a_call_really_cost_is_owed_if_it_counts_and_nothing_else() {
    on_each_store(async |rig| {
        let rows: [(Parts, u64); 2] = [(&[Data, Status("0")], 5), (&[Data, Status("16")], 1)];
        for (place, (body, left)) in rows.into_iter().enumerate() {
            let name = format!("metered-{place}");
            let layer = rig.layer([Policy::new(&name, FIVE).metered().count(Count::failures())]);
            let inner = service_fn(move |request: Request<Text>| {
                let limits: RateLimitHandle = request.extensions().get().cloned().expect("the layer gives a handle");
                let mut response = response(GRPC, body).map(|body| {
                    // While the body is streamed.
                    body.map_frame(move |frame| {
                        limits.charge(u64::from(frame.is_data()));
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
            rig.until_left_of_all(&name, FIVE, left).await;
        }
    })
    .await;
}

#[tokio::test]
async fn each_of_nested_layers_settles_a_call() {
    let rig = Rig::memory();
    let layer = |name| rig.layer([Policy::new(name, FIVE).count(Count::failures())]);
    let rows: [(Parts, u64); 2] = [(&[Data, Status("0")], 5), (&[Data, Status("16")], 4)];
    for (body, left) in rows {
        let inner = service_fn(move |_: Request<Text>| future::ready(Ok::<_, Infallible>(response(GRPC, body))));
        let service = layer("outer").layer(layer("inner").layer(inner));
        read(service.oneshot(get()).await.expect("the service does not fail")).await;
        assert_eq!(rig.left_of_all("outer", FIVE).await, left, "{body:?}");
        assert_eq!(rig.left_of_all("inner", FIVE).await, left, "{body:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_wait_for_units_that_the_next_call_of_the_client_needs() {
    let store = FailingStore::new(Rig::memory().store);
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
    assert!(body.frame().await.is_none());
    assert_eq!(answer(&layer, GRPC, &[]).await.status(), StatusCode::OK, "the unit is back");
}
