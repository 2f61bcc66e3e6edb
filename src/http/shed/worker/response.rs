//! The response of a worker shedder: its future, and the body, at whose end the request is no longer in progress.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

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

pin_project! {
    /// The body of a [`WorkerShed`](super::WorkerShed) service's response: the inner service's, or that of a request that
    /// was shed.
    #[derive(Debug)]
    pub struct ShedBody<B> {
        #[pin]
        kind: Kind<B>,
        // Until the end of the body.
        in_progress: InProgress,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = KindProjection]
    enum Kind<B> {
        Inner { #[pin] body: B },
        Own { bytes: Option<Bytes> },
    }
}

impl<B: Body> ShedBody<B> {
    pub(super) fn inner(body: B, in_progress: InProgress) -> Self {
        // A body that reports its end may never be polled.
        let in_progress = if body.is_end_stream() { InProgress::ended() } else { in_progress };
        Self { kind: Kind::Inner { body }, in_progress }
    }
}

impl<B> ShedBody<B> {
    pub(super) fn own(bytes: Bytes) -> Self {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        Self { kind: Kind::Own { bytes }, in_progress: InProgress::ended() }
    }
}

/// An empty body.
impl<B> Default for ShedBody<B> {
    fn default() -> Self {
        Self::own(Bytes::new())
    }
}

impl<B> Body for ShedBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = match self.as_mut().project().kind.project() {
            KindProjection::Inner { body } => ready!(body.poll_frame(cx)),
            KindProjection::Own { bytes } => bytes.take().map(|bytes| Ok(Frame::data(bytes.into()))),
        };
        // A body that reports its end is not polled again.
        if !matches!(frame, Some(Ok(_))) || self.is_end_stream() {
            drop(mem::replace(self.project().in_progress, InProgress::ended()));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Own { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Own { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}
