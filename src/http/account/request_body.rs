//! The body of a request whose bytes are limited.

use std::fmt;
use std::pin::Pin;
use std::task::Context;

use bytes::Bytes;
use http_body::{Body, SizeHint};
use pin_project_lite::pin_project;
use smallvec::SmallVec;

use super::body_error::{BodyError, BoxError};
use super::metered::{Meter, Metered};

pin_project! {
    /// The body of a request, whose bytes are taken from the policies with
    /// [`request_bytes`](crate::Policy::request_bytes) before they pass.
    ///
    /// [`RequestBodyLayer`](crate::RequestBodyLayer) and [`Handle::limit_body`](crate::Handle::limit_body) make one. It
    /// passes trailers on, buffers at most one frame, and fails with a [`BodyError`].
    pub struct RequestBody<B> {
        #[pin]
        inner: B,
        // One for each layer that limits it, the innermost first.
        meters: SmallVec<[Box<Meter>; 1]>,
    }
}

impl<B> RequestBody<B> {
    pub(crate) fn new(inner: B, meters: impl IntoIterator<Item = Box<Meter>>) -> Self {
        Self { inner, meters: meters.into_iter().collect() }
    }

    /// Returns the inner body. What was read of it and has not passed is lost.
    pub fn into_inner(self) -> B {
        self.inner
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Metered<B::Data> {
        let this = self.project();
        poll_meters(this.meters, this.inner, cx)
    }

    fn is_end_stream(&self) -> bool {
        self.meters.iter().fold(self.inner.is_end_stream(), |is_end, meter| meter.is_end_stream(is_end))
    }

    fn size_hint(&self) -> SizeHint {
        self.meters.iter().fold(self.inner.size_hint(), |hint, meter| meter.size_hint(&hint))
    }
}

/// Polls a body through its meters.
fn poll_meters<B>(meters: &mut [Box<Meter>], mut inner: Pin<&mut B>, cx: &mut Context<'_>) -> Metered<B::Data>
where
    B: Body,
    B::Data: From<Bytes>,
    B::Error: Into<BoxError>,
{
    match meters {
        [] => inner.poll_frame(cx).map_err(BodyError::new),
        [others @ .., meter] => {
            // Not generic, as it would be a type of its own in each round.
            let next: &mut dyn FnMut(&mut Context<'_>) -> _ = &mut |cx| poll_meters(others, inner.as_mut(), cx);
            meter.poll_with(cx, next)
        }
    }
}

impl<B: Default> Default for RequestBody<B> {
    fn default() -> Self {
        Self::new(B::default(), [])
    }
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").finish_non_exhaustive()
    }
}
