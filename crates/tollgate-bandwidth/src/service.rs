//! Service between the limits and the inner service, which wraps bodies.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tollgate::RateLimitHandle;
use tower::Service;

use super::body::{LimitedBody, Meter, OnLimit};
use crate::flow::Flow;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bodies {
    pub(super) are_of_requests: bool,
    pub(super) over: OnLimit,
}

/// The service of a [`BandwidthLayer`](super::BandwidthLayer), inside of its limits.
#[derive(Clone, Debug)]
#[must_use = "services do nothing unless called"]
pub struct LimitBodies<S> {
    inner: S,
    bodies: Bodies,
}

impl<S> LimitBodies<S> {
    pub(super) fn new(inner: S, bodies: Bodies) -> Self {
        Self { inner, bodies }
    }
}

impl<S, B, R> Service<Request<B>> for LimitBodies<S>
where
    S: Service<Request<LimitedBody<B>>, Response = Response<R>>,
    R: Body,
{
    type Response = Response<LimitedBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let meter = parts.extensions.remove::<RateLimitHandle>().and_then(|handle| {
            // The inner service sees the handle of an outer layer, and may be charged the cost that it reports.
            drop(handle.outer().map(|outer| parts.extensions.insert(outer.clone())));
            handle.counters().map(|counters| Box::new(Meter::new(Flow::new(counters), self.bodies.over)))
        });
        let (requests, responses) = if self.bodies.are_of_requests { (meter, None) } else { (None, meter) };
        let request = Request::from_parts(parts, LimitedBody::new(body, requests));
        ResponseFuture { inner: self.inner.call(request), meter: responses }
    }
}

pin_project! {
    /// The future of the response of [`LimitBodies`].
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        meter: Option<Box<Meter>>,
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<LimitedBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.inner.poll(cx))?;
        let meter = this.meter.take().filter(|_| !response.body().is_end_stream());
        Poll::Ready(Ok(response.map(|body| LimitedBody::new(body, meter))))
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
