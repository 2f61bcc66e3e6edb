//! Service, response future and body of the worker shedder. A request is in flight until its body ends.
//!
//! The instance that was polled ready is the one that is called.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::worker::{InProgress, WorkerShedLayer};

/// A [`Service`] that sheds requests by their class, created by a [`WorkerShedLayer`].
///
/// A shed request gets a response of this crate, and the inner service is not called. Only the inner service returns
/// errors.
#[derive(Clone, Debug)]
#[must_use = "services do nothing unless called"]
pub struct WorkerShed<S> {
    inner: S,
    layer: WorkerShedLayer,
}

impl<S> Layer<S> for WorkerShedLayer {
    type Service = WorkerShed<S>;

    fn layer(&self, inner: S) -> WorkerShed<S> {
        WorkerShed { inner, layer: self.clone() }
    }
}

impl<S> WorkerShed<S> {
    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service, which sheds nothing.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for WorkerShed<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    B: Body + Send + 'static,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<ShedBody<R>>;
    type Error = S::Error;
    type Future = WorkerShedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let (called, in_progress, shed) = match self.layer.admit(&mut parts) {
            Ok(in_progress) => (Some(self.inner.call(Request::from_parts(parts, body))), in_progress, None),
            Err(mut response) => {
                self.layer.drain().start(&parts, body, response.headers_mut());
                (None, None, Some(response))
            }
        };
        WorkerShedFuture { called, in_progress, shed }
    }
}

pin_project! {
    /// The future of a [`WorkerShed`] service's response.
    ///
    /// It resolves to the inner service's response or error, or to the response to a shed request.
    ///
    /// # Panics
    ///
    /// If it is polled again after it resolved.
    ///
    /// # Cancellation
    ///
    /// Dropping it is safe at any point: the request is then no longer in flight.
    #[must_use = "futures do nothing unless polled"]
    pub struct WorkerShedFuture<F> {
        #[pin]
        called: Option<F>,
        in_progress: Option<InProgress>,
        // The response to a request that is shed, until it is returned.
        shed: Option<Box<Response<Bytes>>>,
    }
}

impl<F, R, E> Future for WorkerShedFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<ShedBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(called) = this.called.as_pin_mut() else {
            let response = this.shed.take().expect("a response comes once");
            return Poll::Ready(Ok(response.map(|own| ShedBody { own, ..ShedBody::default() })));
        };
        let returned = ready!(called.poll(cx));
        let in_progress = this.in_progress.take();
        Poll::Ready(returned.map(|response| {
            response.map(|body| {
                // A body that reports its end may never be polled.
                let in_progress = in_progress.filter(|_| !body.is_end_stream());
                ShedBody { inner: Some(body), own: Bytes::new(), in_progress }
            })
        }))
    }
}

impl<F> fmt::Debug for WorkerShedFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerShedFuture").finish_non_exhaustive()
    }
}

pin_project! {
    /// The body of a [`WorkerShed`] service's response: the inner body, or the body of the response to a shed request.
    #[derive(Debug)]
    pub struct ShedBody<B> {
        #[pin]
        inner: Option<B>,
        // Body of the response to a shed request, until it is sent; empty if there is an inner body.
        own: Bytes,
        // Held until the end of the inner body.
        in_progress: Option<InProgress>,
    }
}

impl<B> Default for ShedBody<B> {
    fn default() -> Self {
        Self { inner: None, own: Bytes::new(), in_progress: None }
    }
}

impl<B> Body for ShedBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.as_mut().project();
        let Some(inner) = this.inner.as_pin_mut() else {
            let own = mem::take(this.own);
            return Poll::Ready((!own.is_empty()).then(|| Ok(Frame::data(own.into()))));
        };
        let frame = ready!(inner.poll_frame(cx));
        // A body that reports its end is not polled again.
        if !matches!(frame, Some(Ok(_))) || self.is_end_stream() {
            *self.project().in_progress = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().map_or(self.own.is_empty(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(self.own.len() as u64), Body::size_hint)
    }
}
