//! A body whose bytes may be limited.

use std::pin::Pin;
use std::task::Context;

use bytes::Bytes;
use http_body::{Body, SizeHint};
use pin_project_lite::pin_project;

use super::meter::{Meter, Polled};
use crate::http::{BodyError, BoxError};

pin_project! {
    /// The body of a request to the service inside of a [`BandwidthLayer`](super::BandwidthLayer), or of its response.
    ///
    /// It passes trailers on, buffers at most one frame, and fails with a [`BodyError`].
    #[derive(Debug, Default)]
    pub struct LimitedBody<B> {
        #[pin]
        inner: B,
        // What its bytes are taken from, if they are limited.
        meter: Option<Box<Meter>>,
    }
}

impl<B> LimitedBody<B> {
    pub(super) fn new(inner: B, meter: Option<Box<Meter>>) -> Self {
        Self { inner, meter }
    }

    /// Returns the inner body. What was read of it and has not passed is lost.
    pub fn into_inner(self) -> B {
        self.inner
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<B::Data> {
        let this = self.project();
        match this.meter {
            Some(meter) => meter.poll_frame(this.inner, cx),
            None => this.inner.poll_frame(cx).map_err(BodyError::new),
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_end = self.inner.is_end_stream();
        self.meter.as_ref().map_or(is_end, |meter| meter.is_end_stream(is_end))
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.inner.size_hint();
        self.meter.as_ref().map_or(hint, |meter| meter.size_hint(&hint))
    }
}
