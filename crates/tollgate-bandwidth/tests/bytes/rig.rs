//! Layers that limit bytes, around a service that responds with the frames of a test.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{FutureExt, stream};
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use tollgate::body::ResponseBody;
use tollgate::store::Store;
use tollgate::store::{
    self, Ask, Capabilities, Change, ChangeResult, Check, Counter, Receipt, Requirement, Settlement, Settling,
    StoreDecision,
};
use tollgate::test_util::ManualClock;
use tollgate::{Error, Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule};
use tollgate_bandwidth::{BandwidthLayer, LimitedBody, OnLimit};
use tollgate_test::RecordingStore;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::time::memory;

pub(super) type Inner = UnsyncBoxBody<Bytes, io::Error>;
pub(super) type Answer = Response<ResponseBody<LimitedBody<Inner>>>;

/// The store of a layer, by tokio's paused time; what is left of a policy's counter is asked by its name.
pub(super) struct Rig {
    pub(super) layer: BandwidthLayer,
    pub(super) store: RecordingStore<Counting>,
    taken: Arc<AtomicU64>,
}

impl Rig {
    pub(super) fn new(policies: impl IntoIterator<Item = Policy>, over: OnLimit) -> Self {
        let taken = Arc::new(AtomicU64::new(0));
        let counting = Counting { inner: memory(&ManualClock::paused()), taken: Arc::clone(&taken) };
        let store = RecordingStore::new(counting);
        let limits = RateLimitLayer::composite(store.clone()).policies(policies);
        Self { layer: BandwidthLayer::responses(limits, over), store, taken }
    }

    /// Sends a request whose response has this body.
    pub(super) async fn send(&self, body: Inner) -> Answer {
        self.layer.layer(serve(once(body))).oneshot(Request::new(String::new())).await.expect("a response")
    }

    /// What stays taken of the first policy: what was admitted less what was refunded.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }
}

/// A service whose responses have these bodies.
pub(super) fn serve<B>(
    body: impl Fn() -> Inner + Clone,
) -> impl Service<Request<B>, Response = Response<Inner>, Error = Infallible> + Clone {
    service_fn(move |_: Request<B>| std::future::ready(Ok(Response::new(body()))))
}

/// A body for one response.
pub(super) fn once(body: Inner) -> impl Fn() -> Inner + Clone {
    let body = Arc::new(Mutex::new(Some(body)));
    move || body.lock().expect("no panic").take().expect("one request")
}

/// A store in memory that counts what stays taken by first checks.
pub(super) struct Counting {
    inner: MemoryStore,
    taken: Arc<AtomicU64>,
}

impl Store for Counting {
    fn decide(&self, checks: &[Check], ask: Ask) -> store::MaybeFuture<Result<StoreDecision, Error>> {
        let decided = self.inner.decide(checks, ask).wait().now_or_never().expect("memory decides");
        let Ok(decided) = decided else { return store::MaybeFuture::Ready(decided) };
        self.taken.fetch_add(decided.receipt.items().first().map_or(0, |taken| taken.units), Relaxed);
        store::MaybeFuture::Ready(Ok(decided))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        assert!(!changes.is_empty(), "what stays taken is not settled");
        for change in changes.iter().filter(|change| change.check == 0) {
            let Change::Refund(units) = change.change else { panic!("{change:?}") };
            self.taken.fetch_sub(units.min(receipt.items()[0].units), Relaxed);
        }
        self.inner.settle(receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> store::MaybeFuture<Result<ChangeResult, Error>> {
        self.inner.adjust(counter, change)
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        self.inner.capabilities(requirements)
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
