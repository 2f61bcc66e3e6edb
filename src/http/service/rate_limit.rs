//! The service: asks before it calls the inner one.

use std::fmt;
use std::mem;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::Service;

use super::body::ResponseBody;
use super::future::ResponseFuture;
use crate::http::admission::Admission;
use crate::http::gate::SharedGate;

/// A service whose requests are limited. See [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    gate: SharedGate,
}

impl<S> RateLimit<S> {
    pub(crate) fn new(inner: S, gate: SharedGate) -> Self {
        Self { inner, gate }
    }

    /// The service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside, to change.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Takes the service out.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
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
        // The instance that was polled ready is the one to call: a clone may not be ready.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let (parts, body) = request.into_parts();
        let gate = self.gate.load();
        let admission = Admission::of(&gate, &parts);
        ResponseFuture::new(inner, Request::from_parts(parts, body), admission, &gate)
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}
