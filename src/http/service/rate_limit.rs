//! The service that a layer makes: it decides before it calls the inner service.
//!
//! The service is ready when its inner service is. A full limit leads to a response, not to back-pressure, because one
//! client must not make the service unready for others.

use std::fmt;
use std::mem;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::Service;

use super::body::ResponseBody;
use super::future::ResponseFuture;
use crate::http::account::RateLimitHandle;
use crate::http::admission::Admission;
use crate::http::gate::SharedGate;

/// [`Service`] that limits the rate of requests to its inner service, configured by a
/// [`RateLimitLayer`](crate::RateLimitLayer).
///
/// A request that is not allowed gets a response of this crate: 429 if a policy denies it, 400 if its key is ambiguous,
/// 403 if its key is missing or its client is on a deny list, 503 if no decision could be made (see
/// [`OnFailure`](crate::OnFailure)), or the response with which a key extractor rejects it. The inner service is not
/// called then. Errors of the inner service are passed on, and this service adds none.
///
/// A request in the queue of a leaky bucket waits in the [`ResponseFuture`].
///
/// # gRPC
///
/// A POST with the content type `application/grpc`, or a content type of gRPC-Web, is a gRPC call, in any version of
/// HTTP. A call that is not allowed gets a 200 without a body, whose headers have the status:
///
/// | other requests get | a call gets |
/// | --- | --- |
/// | 429 | `RESOURCE_EXHAUSTED`, with the headers of the limits |
/// | 400 | `INVALID_ARGUMENT` |
/// | 403 | `PERMISSION_DENIED` |
/// | 503 | `UNAVAILABLE` |
/// | the response of a key extractor | the `grpc-status` that it has, or the one that is closest to its HTTP status |
///
/// The wait is in `grpc-retry-pushback-ms` instead of `Retry-After`: at least 1 ms, and -1 if no wait can help.
/// [`on_denied`](crate::RateLimitLayer::on_denied) is not called for gRPC calls.
///
/// With tonic 0.14, the feature `tonic` finds the peer's address:
///
#[cfg_attr(feature = "tonic", doc = "```")]
#[cfg_attr(not(feature = "tonic"), doc = "```ignore")]
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
/// use tonic::transport::Server;
///
/// // No route matches around a tonic server: the path names the method.
/// let create = Policy::new("create", Quota::per_minute(60))
///     .key(key::client_ip())
///     .when(|parts| parts.uri.path() == "/shop.Orders/Create");
/// let server = Server::builder().layer(RateLimitLayer::new(MemoryStore::new(), create));
/// // server.add_service(...).serve(address).await?;
/// # let _ = server;
/// ```
///
/// # Other servers
///
/// Any server works if its services are Tower services. If a server does not insert the peer's address, for example
/// plain hyper, insert it outside of the limit:
///
/// ```ignore
/// let (stream, peer) = listener.accept().await?;
/// let with_peer = service.clone().map_request(move |mut request: Request<Incoming>| {
///     request.extensions_mut().insert(peer);
///     request
/// });
/// let service = TowerToHyperService::new(with_peer);
/// Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await?;
/// ```
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use std::convert::Infallible;
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Infallible> {
/// let inner = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new(String::new())) });
/// let service = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_hour(1))).layer(inner);
///
/// let first = service.clone().oneshot(Request::new(String::new())).await?;
/// assert_eq!(first.status(), StatusCode::OK);
/// let second = service.oneshot(Request::new(String::new())).await?;
/// assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "services do nothing unless called"]
pub struct RateLimit<S> {
    inner: S,
    gate: SharedGate,
}

impl<S> RateLimit<S> {
    pub(crate) fn new(inner: S, gate: SharedGate) -> Self {
        Self { inner, gate }
    }

    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service, without limits.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    B: Body + Send + 'static,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let gate = self.gate.load();
        let outer = if gate.has_handles { parts.extensions.get::<RateLimitHandle>() } else { None };
        let admission = Admission::new(&gate, &parts, outer.and_then(|outer| outer.let_in(&self.gate)));
        match admission {
            // Most decisions are ready and most requests have no delay, so they skip all states before the call.
            Admission::Known(Some(Ok(mut admitted))) if !admitted.is_delayed() => {
                admitted.enter(&mut parts.extensions);
                ResponseFuture::calling(self.inner.call(Request::from_parts(parts, body)), admitted)
            }
            admission => {
                // Call the instance that was polled ready, because a clone may not be ready. If the request is denied
                // it is dropped, with everything it may hold while it is ready.
                let clone = self.inner.clone();
                let inner = mem::replace(&mut self.inner, clone);
                ResponseFuture::admitting(inner, Request::from_parts(parts, body), admission, &gate)
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}
