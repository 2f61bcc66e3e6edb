//! Bodies whose bytes are limited: bytes are taken before they pass. Where none are left, the body is paced or cut.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tollgate::body::BodyError;

use crate::flow::{Flow, FlowError, Waits};

type BoxError = Box<dyn StdError + Send + Sync>;

pin_project! {
    /// The body of a request to the service inside of a [`BandwidthLayer`](super::BandwidthLayer), or of its response.
    ///
    /// It passes trailers on, buffers at most one frame, and fails with a [`BodyError`], whose source is the
    /// [`FlowError`] of a limit that cuts the body, or the error of the inner body.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::body::BodyError;
    /// use tollgate_bandwidth::FlowError;
    ///
    /// fn is_cut(error: &BodyError) -> bool {
    ///     std::error::Error::source(error).is_some_and(|cause| cause.is::<FlowError>())
    /// }
    /// # let _ = is_cut;
    /// ```
    #[derive(Debug, Default)]
    pub struct LimitedBody<B> {
        #[pin]
        inner: B,
        meter: Option<Box<Meter>>,
    }
}

impl<B> LimitedBody<B> {
    pub(super) fn new(inner: B, meter: Option<Box<Meter>>) -> Self {
        Self { inner, meter }
    }

    /// Returns the inner body. A buffered frame that has not passed is lost.
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
        match &self.meter {
            Some(meter) => meter.size_hint(&hint),
            None => hint,
        }
    }
}

/// Action when the byte limit of a body is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnLimit {
    /// The rest waits until the quota has gained it.
    Throttle,
    /// The body fails with a [`FlowError`], so that the connection of HTTP/1 is closed, or the stream of HTTP/2 reset.
    /// While too little is left for a frame (at most 16 KiB), requests are denied. Their `Retry-After` is exact, or,
    /// for a sliding window or log, at most the time until the quota resets.
    ///
    /// Such a denial is not cached: each one calls the store.
    Abort,
}

type Polled<D> = Poll<Option<Result<Frame<D>, BodyError>>>;

#[derive(Debug)]
pub(super) struct Meter {
    flow: Flow,
    over: OnLimit,
    rest: Bytes,
    has_failed: bool,
}

impl Meter {
    pub(super) fn new(flow: Flow, over: OnLimit) -> Self {
        Self { flow, over, rest: Bytes::new(), has_failed: false }
    }

    fn poll_frame<B>(&mut self, inner: Pin<&mut B>, cx: &mut Context<'_>) -> Polled<B::Data>
    where
        B: Body,
        B::Data: From<Bytes>,
        B::Error: Into<BoxError>,
    {
        if self.has_failed {
            return Poll::Ready(None);
        }
        if !self.rest.is_empty() {
            let units = ready!(self.poll_units(self.rest.len(), cx));
            return Poll::Ready(Some(self.pass(units)));
        }
        let frame = match ready!(inner.poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            end => return Poll::Ready(end.map(|frame| frame.map_err(BodyError::new))),
        };
        let mut data = match frame.into_data() {
            Ok(data) if data.has_remaining() => data,
            Ok(empty) => return Poll::Ready(Some(Ok(Frame::data(empty)))),
            Err(other) => return Poll::Ready(Some(Ok(other))),
        };
        let size = data.remaining();
        let polled = self.poll_units(size, cx);
        if let Poll::Ready(Ok(units)) = polled
            && units == size
        {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        self.rest = data.copy_to_bytes(size);
        polled.map(|units| Some(self.pass(units)))
    }

    /// May return fewer bytes than `size`.
    fn poll_units(&mut self, size: usize, cx: &mut Context<'_>) -> Poll<Result<usize, FlowError>> {
        let waits = if self.over == OnLimit::Throttle { Waits::ForQuota } else { Waits::ForCall };
        let units = self.flow.poll_some(cx, size as u64, waits);
        units.map_ok(|units| usize::try_from(units).unwrap_or(size))
    }

    fn pass<D: From<Bytes>>(&mut self, units: Result<usize, FlowError>) -> Result<Frame<D>, BodyError> {
        let error = match units {
            Ok(units) => return Ok(Frame::data(D::from(self.rest.split_to(units)))),
            Err(error) => error,
        };
        self.flow.count_cut(&error);
        (self.has_failed, self.rest) = (true, Bytes::new());
        tracing::debug!(policy = error.policy(), error = format!("{error:#}"), "body aborted by rate limit");
        Err(BodyError::new(error))
    }

    fn is_end_stream(&self, is_end: bool) -> bool {
        self.has_failed || self.rest.is_empty() && is_end
    }

    fn size_hint(&self, inner: &SizeHint) -> SizeHint {
        let (rest, mut hint) = (self.rest.len() as u64, SizeHint::new());
        if self.has_failed {
            return SizeHint::with_exact(0);
        }
        // The upper bound first, which the lower one is compared with.
        if let Some(upper) = inner.upper().and_then(|upper| upper.checked_add(rest)) {
            hint.set_upper(upper);
        }
        hint.set_lower(inner.lower().saturating_add(rest));
        hint
    }
}
