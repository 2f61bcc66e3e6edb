//! Requests through a layer, to a service that responds immediately.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use tollgate::{Decision, RateLimitHandle};
use tower::{Layer, Service};

/// Sends `n` requests through a layer, one after the other, and returns their responses in that order.
///
/// `request` makes each request from its index, from 0. An allowed request gets an empty response with the status 200.
/// A request that queues in a leaky bucket waits for its turn before the next is sent: see
/// [`ManualClock::paused`](tollgate::test_util::ManualClock::paused).
///
/// A policy by the client's address needs an address: `request` inserts axum's `ConnectInfo<SocketAddr>` into the
/// extensions. Policies with `routes` and the key `key::route()` do not apply here, because no router has matched a
/// route: [testing](crate::testing#a-whole-router) shows how to test a whole `Router`.
///
/// # Examples
///
/// ```
/// use http::{Request, StatusCode};
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
/// use tollgate_test::send;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let policy = Policy::new("api", Quota::per_hour(2)).key(key::header("x-user"));
/// let layer = RateLimitLayer::new(MemoryStore::new(), policy);
/// let request = |_| Request::builder().header("x-user", "ada").body(String::new()).expect("a valid request");
///
/// let sent = send(&layer, 3, request).await;
/// assert!(sent[0].is_allowed() && sent[1].is_allowed() && !sent[2].is_allowed());
/// assert_eq!(sent[2].status(), StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(sent[2].headers()["retry-after"], "1800");
/// # }
/// ```
pub async fn send<L, B, R>(layer: &L, n: usize, mut request: impl FnMut(usize) -> Request<B>) -> Vec<TestResponse>
where
    L: Layer<Respond>,
    L::Service: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    R: Body<Data = Bytes>,
{
    let mut sent = Vec::with_capacity(n);
    for index in 0..n {
        // The service is always ready, because its inner service is.
        let Ok(response) = layer.layer(Respond).call(request(index)).await;
        let (parts, body) = response.into_parts();
        let (mut body, mut read) = (pin!(body), Vec::new());
        while let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            read.extend(frame.into_data().unwrap_or_default());
        }
        sent.push(TestResponse { response: Response::from_parts(parts, read.into()) });
    }
    sent
}

/// The response to a request of [`send`], which knows if the request was allowed.
#[derive(Clone, Debug)]
pub struct TestResponse {
    response: Response<Bytes>,
}

impl TestResponse {
    /// Returns `true` if the layer called the inner service.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.response.extensions().get::<Called>().is_some()
    }

    /// Returns the decision on the request. A denied request has its decision if the layer
    /// [exposes decisions](tollgate::RateLimitLayer::expose_decisions). None is made where a key is missing.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        let extensions = self.response.extensions();
        extensions.get::<Called>().map_or_else(|| extensions.get(), |called| called.decision.as_ref())
    }

    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns the headers of the response.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the body of a denial, up to an error of the body. An allowed request has an empty body.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        self.response.body()
    }
}

/// Extension of the response to a request that reached the service.
#[derive(Clone)]
struct Called {
    decision: Option<Decision>,
}

/// A service that responds with an empty 200.
#[derive(Clone, Copy, Debug)]
pub struct Respond;

impl<B> Service<Request<B>> for Respond {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut response = Response::new(String::new());
        let decision = request.extensions().get().map(RateLimitHandle::decision);
        response.extensions_mut().insert(Called { decision });
        ready(Ok(response))
    }
}
