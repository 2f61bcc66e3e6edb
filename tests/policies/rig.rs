//! A store in memory and its clock, services behind a layer, and what is sent to them.

use std::time::Duration;

use futures::FutureExt;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use tollgate::store::{Ask, Change, Check, Counter, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer};
use tollgate_test::{Recorded, RecordingStore};

use crate::support::requests::by;
pub(crate) use crate::support::requests::{Answer, Service, Text, body, expect, hello, over, send};
use crate::support::time::memory;

pub(crate) const S: u64 = 1_000_000;
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// So many units an hour, by each algorithm that admits them at once.
pub(crate) fn each(limit: u64) -> [Quota; 4] {
    [Quota::fixed_window, Quota::token_bucket, Quota::sliding_window, Quota::sliding_log]
        .map(|quota| quota(limit, HOUR))
}

/// A store that records what it is asked.
pub(crate) struct Rig {
    pub(crate) clock: ManualClock,
    pub(crate) store: RecordingStore<MemoryStore>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        Self { store: RecordingStore::new(memory(&clock)), clock }
    }

    pub(crate) fn layer(&self, policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
        RateLimitLayer::composite(self.store.clone()).policies(policies).expose_decisions()
    }

    pub(crate) fn service(&self, policies: impl IntoIterator<Item = Policy>) -> Service {
        hello(&self.layer(policies))
    }

    /// What a counter has left, past any layer.
    pub(crate) fn left(&self, policy: &str, key: &Key, quota: Quota) -> u64 {
        let counter = Counter::new(policy.try_into().expect("a valid name"), key.clone(), quota);
        let decided = self.store.decide(&[Check::new(counter, 0)], Ask::default()).wait().now_or_never();
        decided.expect("at once").expect("it decides").decision.outcomes()[0].remaining()
    }

    /// What a counter of all requests has left.
    pub(crate) fn left_of_all(&self, policy: &str, quota: Quota) -> u64 {
        self.left(policy, &Key::new("global", ""), quota)
    }
}

/// A service of one policy over a store of its own.
pub(crate) fn service(policy: Policy) -> Service {
    Rig::new().service([policy])
}

/// What a store was asked to settle.
pub(crate) fn settled<S: Store>(store: &RecordingStore<S>) -> Vec<Change> {
    let settled = store.recorded().into_iter().filter_map(|call| match call {
        Recorded::Settle(_, settlements) => Some(settlements),
        _ => None,
    });
    settled.flatten().map(|settlement| settlement.change).collect()
}

/// A response with the status that a request names in `x-status`.
pub(crate) async fn as_told(request: Request<Text>) -> Response<Text> {
    let status = request.headers().get("x-status").map_or("200", |value| value.to_str().expect("ASCII"));
    let mut response = Response::new(Text::default());
    *response.status_mut() = StatusCode::from_bytes(status.as_bytes()).expect("a status");
    response
}

pub(crate) fn handle(request: &Request<Text>) -> RateLimitHandle {
    request.extensions().get::<RateLimitHandle>().expect("the layer gives a handle").clone()
}

pub(crate) fn get() -> Request<Text> {
    Request::new(Text::default())
}

pub(crate) fn method(method: Method) -> Request<Text> {
    let mut request = get();
    *request.method_mut() = method;
    request
}

/// A request with a header.
pub(crate) fn with(name: &'static str, value: &str) -> Request<Text> {
    and(get(), name, value)
}

/// A request with one more header.
pub(crate) fn and(mut request: Request<Text>, name: &'static str, value: &str) -> Request<Text> {
    let value = HeaderValue::from_str(value).expect("a header value");
    request.headers_mut().insert(HeaderName::from_static(name), value);
    request
}

/// A request from a peer.
pub(crate) fn from(peer: &str) -> Request<Text> {
    by(peer, get())
}

/// The statuses of some requests, one after the other.
#[track_caller]
pub(crate) fn statuses<const N: usize>(service: &Service, requests: [Request<Text>; N]) -> [u16; N] {
    requests.map(|request| send(service, request).status().as_u16())
}

/// The one line of a field; empty if there is none.
#[track_caller]
pub(crate) fn line<'a, B>(response: &'a Response<B>, name: &str) -> &'a str {
    let mut lines = response.headers().get_all(name).iter().map(|value| value.to_str().expect("ASCII"));
    let line = lines.next().unwrap_or_default();
    assert_eq!(lines.next(), None, "{name} is one line");
    line
}
