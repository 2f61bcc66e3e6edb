//! The body of a response, at whose end its request is no longer in progress.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::state::InProgress;

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
