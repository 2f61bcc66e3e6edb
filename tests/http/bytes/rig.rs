//! Layers that limit bytes, around a service that responds with the frames of a test.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use tollgate::store::Change;
use tollgate::test_util::{ManualClock, Recorded, RecordingStore};
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, ResponseBody, Rule};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::time::memory;

pub(super) type Inner = UnsyncBoxBody<Bytes, io::Error>;
pub(super) type Answer = Response<ResponseBody<Inner>>;

/// The store of a layer, by tokio's paused time; what is left of a policy's counter is asked by its name.
pub(super) struct Rig {
    pub(super) layer: RateLimitLayer,
    pub(super) store: RecordingStore<MemoryStore>,
}

impl Rig {
    pub(super) fn new(policies: impl IntoIterator<Item = Policy>) -> Self {
        let store = RecordingStore::new(memory(&ManualClock::paused()));
        Self { layer: RateLimitLayer::composite(store.clone()).policies(policies), store }
    }

    /// Sends a request whose response has this body.
    pub(super) async fn send(&self, body: Inner) -> Answer {
        let body = Arc::new(Mutex::new(Some(body)));
        let inner = service_fn(move |_: Request<()>| {
            let body = body.lock().expect("no panic").take().expect("one request");
            std::future::ready(Ok::<_, Infallible>(Response::new(body)))
        });
        self.layer.layer(inner).oneshot(Request::new(())).await.expect("a response")
    }

    /// What stays taken of the first policy: what was admitted less what was refunded.
    pub(super) fn taken(&self) -> u64 {
        self.store.recorded().iter().fold(0, |taken, call| match call {
            Recorded::Settle(of, changes) => {
                let back = changes.iter().filter(|change| change.check == 0).map(|change| match change.change {
                    Change::Refund(units) => units.min(of[0].units),
                    other => panic!("{other:?}"),
                });
                taken + of.first().map_or(0, |taken| taken.units) - back.sum::<u64>()
            }
            _ => taken,
        })
    }
}

/// A body of these chunks, with trailers at its end if `trailers`.
pub(super) fn body(chunks: impl IntoIterator<Item = Bytes>, trailers: bool) -> Inner {
    let mut frames: Vec<Result<Frame<Bytes>, io::Error>> =
        chunks.into_iter().map(|chunk| Ok(Frame::data(chunk))).collect();
    if trailers {
        let mut map = HeaderMap::new();
        map.insert("x-sum", http::HeaderValue::from_static("42"));
        frames.push(Ok(Frame::trailers(map)));
    }
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

/// Bytes that differ from place to place.
pub(super) fn pattern(size: usize) -> Bytes {
    (0..size).map(|place| u8::try_from(place % 251).expect("small")).collect()
}

/// What is left of a counter for all requests.
pub(super) async fn left(rig: &Rig, name: &str, quota: Quota) -> u64 {
    let limiter = Limiter::new(rig.store.clone(), [Rule::new(name, quota)]);
    limiter.peek(&Key::new("global", "")).await.expect("memory decides").outcomes()[0].remaining()
}
