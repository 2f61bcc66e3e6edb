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
use tollgate::{Policy, Quota, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{HOUR, Rig, Text, get, handle, line};

const FIVE: Quota = Quota::fixed_window(5, HOUR);

/// A part of a response body: data, trailers with a status or without one, or an error.
#[derive(Clone, Copy, Debug)]
enum Part {
    Data,
    Status(&'static str),
    Silence,
    Broken,
}

use Part::{Broken, Data, Silence, Status};

impl Part {
    fn frame(self) -> Result<Frame<Bytes>, io::Error> {
        let trailers = |name, value| Frame::trailers(fields(&[(name, value)]));
        Ok(match self {
            Data => Frame::data(Bytes::from_static(&[0; 5])),
            Status(code) => trailers("grpc-status", code),
            Silence => trailers("x-other", "0"),
            Broken => return Err(io::Error::other("reset")),
        })
    }
}

type Fields = &'static [(&'static str, &'static str)];
type Parts = &'static [Part];

const GRPC: Fields = &[("content-type", "application/grpc+proto")];
const DENIED: Fields = &[("content-type", "application/grpc"), ("grpc-status", "16")];
const DONE: Fields = &[("content-type", "application/grpc"), ("grpc-status", "0")];
const WEB: Fields = &[("content-type", "application/grpc-web+proto")];
const WEB_DENIED: Fields = &[("content-type", "application/grpc-web+proto"), ("grpc-status", "16")];

fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

/// What a layer makes of a response with these fields and this body, which takes units while it is streamed.
fn respond(
    layer: &RateLimitLayer,
    head: Fields,
    parts: Parts,
    charge: u64,
) -> Response<impl Body<Data = Bytes, Error: Debug> + Unpin> {
    let inner = service_fn(move |request: Request<Text>| {
        let handle = handle(&request);
        let mut response = Response::new(StreamBody::new(stream::iter(parts).map(move |part| {
            handle.charge(if matches!(part, Data) { charge } else { 0 });
            part.frame()
        })));
        *response.headers_mut() = fields(head);
        if charge > 0 {
            response.extensions_mut().insert(ActualCost(3));
        }
        future::ready(Ok::<_, Infallible>(response))
    });
    layer.layer(inner).oneshot(get()).now_or_never().expect("at once").expect("the service does not fail")
}

/// Reads a body to its end, or to its error.
fn read(response: Response<impl Body<Data = Bytes> + Unpin>) {
    let mut body = response.into_body();
    while let Some(Ok(_)) = body.frame().now_or_never().expect("at once") {}
}

#[test]
fn a_call_counts_by_its_status_wherever_that_is() {
    for (head, body, failed) in [
        (DENIED, &[][..], true),
        (WEB_DENIED, &[], true),
        (DONE, &[], false),
        (DONE, &[Data, Status("5")], false),
        (GRPC, &[Data, Status("0")], false),
        (GRPC, &[Data, Data, Status("16")], true),
        (GRPC, &[Status("7")], true),
        (GRPC, &[Data, Status("zero")], true),
        // It ends without a status, or breaks off.
        (GRPC, &[], true),
        (GRPC, &[Data, Silence], true),
        (GRPC, &[Data, Broken], true),
        // What is no call is settled by its head.
        (&[("content-type", "text/plain")], &[Data, Status("16")], false),
        (WEB, &[Data, Status("16")], false),
    ] {
        let has_head = head.iter().any(|(name, _)| *name == "grpc-status");
        for (count, counts) in [
            (Count::failures(), failed),
            (Count::successes(), !failed),
            // These see the head only.
            (Count::statuses([StatusCode::OK]), true),
            (Count::when(|response| response.headers.contains_key("grpc-status")), has_head),
        ] {
            let (rig, what) = (Rig::new(), format!("{head:?}, {body:?}: {count:?}"));
            read(respond(&rig.layer([Policy::new("calls", FIVE).count(count)]), head, body, 0));
            assert_eq!(rig.left_of_all("calls", FIVE), 5 - u64::from(counts), "{what}");
        }
    }
}

#[test]
fn a_body_that_says_that_it_ended_is_a_call_without_a_status() {
    for text in ["", "five"] {
        let rig = Rig::new();
        let inner = service_fn(move |_: Request<Text>| {
            let mut response = Response::new(Text::from(text));
            *response.headers_mut() = fields(GRPC);
            future::ready(Ok::<_, Infallible>(response))
        });
        let service = rig.layer([Policy::new("calls", FIVE).count(Count::successes())]).layer(inner);
        let mut body = service.oneshot(get()).now_or_never().expect("at once").expect("it does not fail").into_body();
        // As hyper does it: a body at its end is not polled again.
        while !body.is_end_stream() {
            body.frame().now_or_never().expect("at once").expect("a frame").expect("data");
        }
        drop(body);
        assert_eq!(rig.left_of_all("calls", FIVE), 5, "it is no success: {text:?}");
    }
}

#[test]
fn a_call_counts_while_it_is_under_way_and_where_nobody_reads_it_to_its_end() {
    for count in [Count::failures(), Count::successes()] {
        let (rig, what) = (Rig::new(), format!("{count:?}"));
        let layer = rig.layer([Policy::new("calls", FIVE).count(count).refund_dropped()]);
        let response = respond(&layer, GRPC, &[Data, Status("0")], 0);
        assert_eq!(line(&response, "x-ratelimit-remaining"), "4", "{what}");
        drop(response);
        assert_eq!(rig.left_of_all("calls", FIVE), 4, "{what}");
    }
}

#[test]
fn what_a_call_really_cost_is_owed_if_it_counts_and_nothing_else() {
    let rows: [(Parts, u64); 2] = [(&[Data, Status("0")], 5), (&[Data, Status("16")], 1)];
    for (body, left) in rows {
        let rig = Rig::new();
        let layer = rig.layer([Policy::new("metered", FIVE).metered().count(Count::failures())]);
        let response = respond(&layer, GRPC, body, 1);
        assert_eq!(line(&response, "x-ratelimit-remaining"), "2", "the real cost is shown");
        read(response);
        assert_eq!(rig.left_of_all("metered", FIVE), left, "{body:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_wait_for_units_that_the_next_call_of_the_client_needs() {
    let store = FailingStore::new(Rig::new().store);
    let one = Quota::fixed_window(1, HOUR);
    let layer = RateLimitLayer::new(store.clone(), Policy::new("calls", one).count(Count::failures()));
    let mut body = respond(&layer, GRPC, &[Data, Status("0")], 0).into_body();
    assert!(body.frame().await.expect("a frame").expect("no error").is_data());
    let held = store.hold();
    for _ in 0..3 {
        assert!(body.frame().now_or_never().is_none(), "its status is not told before it is settled");
    }
    assert!(!body.is_end_stream());
    held.release();
    assert!(body.frame().await.expect("a frame").expect("no error").is_trailers());
    assert!(body.frame().await.is_none());
    assert_eq!(respond(&layer, GRPC, &[], 0).status(), StatusCode::OK, "the unit is back");
}
