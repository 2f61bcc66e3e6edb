//! The future of a worker shedder's response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use super::body::ShedBody;
use super::state::InProgress;

pin_project! {
    /// The future of a [`WorkerShed`](super::WorkerShed) service's response.
    ///
    /// It resolves to the inner service's response, to that of a request that was shed, or to the inner service's error.
    ///
    /// # Panics
    ///
    /// If it is polled again after it resolved.
    ///
    /// # Cancellation
    ///
    /// Dropping it is safe at any point: the request is then no longer in progress.
    #[must_use = "futures do nothing unless polled"]
    pub struct WorkerShedFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F> {
        /// Waits for the inner service.
        Calling { #[pin] future: F, in_progress: Option<InProgress> },
        /// Has the response to a request that was shed.
        Shed { response: Option<Box<Response<Bytes>>> },
    }
}

impl<F> WorkerShedFuture<F> {
    pub(super) fn calling(future: F, in_progress: InProgress) -> Self {
        Self { state: State::Calling { future, in_progress: Some(in_progress) } }
    }

    pub(super) fn shed(response: Box<Response<Bytes>>) -> Self {
        Self { state: State::Shed { response: Some(response) } }
    }
}

impl<F, R, E> Future for WorkerShedFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<ShedBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Calling { future, in_progress } => {
                let returned = ready!(future.poll(cx));
                let in_progress = in_progress.take().expect("a response comes once");
                Poll::Ready(returned.map(|response| response.map(|body| ShedBody::inner(body, in_progress))))
            }
            StateProjection::Shed { response } => {
                let response = response.take().expect("a response comes once");
                Poll::Ready(Ok(response.map(ShedBody::own)))
            }
        }
    }
}

impl<F> fmt::Debug for WorkerShedFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerShedFuture").finish_non_exhaustive()
    }
}
