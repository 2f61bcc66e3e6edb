//! The service of the worker shedder: the instance that was polled ready is the one that is called.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::Service;

use super::body::ShedBody;
use super::future::WorkerShedFuture;
use super::state::State;

/// A [`Service`] that sheds requests by their class, as a [`WorkerShedLayer`](super::WorkerShedLayer) sets.
///
/// A request that is shed gets a response of this crate, and the service inside is not called. Errors of the inner
/// service are passed on, and this service adds none.
#[derive(Clone)]
#[must_use = "services do nothing unless called"]
pub struct WorkerShed<S> {
    inner: S,
    state: Arc<State>,
}

impl<S> WorkerShed<S> {
    pub(super) fn new(inner: S, state: Arc<State>) -> Self {
        Self { inner, state }
    }

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
        match self.state.admit(&mut parts) {
            Ok(in_progress) => {
                WorkerShedFuture::calling(self.inner.call(Request::from_parts(parts, body)), in_progress)
            }
            Err(response) => WorkerShedFuture::shed(response),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for WorkerShed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerShed").field("inner", &self.inner).finish_non_exhaustive()
    }
}
