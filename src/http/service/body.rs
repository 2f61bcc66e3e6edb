//! Response bodies, and how the inner service's response leaves the layer.
//!
//! A request is settled by the head of its response. Once the store has replied (or at the end of the timeout) the head
//! gets the decision and the headers. For a gRPC call whose status is in its trailers, the body keeps the account until
//! they arrive.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Extensions, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::ending::{Ending, Polled};
use crate::core::Decision;
use crate::http::account::Account;
use crate::http::gate::LayerState;
use crate::store::SlotGuard;

pin_project! {
    /// Body of a response of [`RateLimit`](crate::RateLimit): the inner service's, or a body of this crate.
    ///
    /// The body of a [`StatusService`](crate::status::StatusService) is always one of this crate.
    ///
    /// It passes on the frames and the size hint of the inner body. An error of the inner body becomes the source of a
    /// [`BodyError`]. This body may hold back the trailers of a gRPC call until the store has settled their changes,
    /// for no longer than the layer's timeout.
    ///
    /// It holds the slots of its request until it has ended, failed or been dropped.
    ///
    /// # Cancellation
    ///
    /// If it is dropped before the trailers of a call, the debts of the call do not change.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::body::ResponseBody;
    ///
    /// /// A middleware outside of a layer of tollgate names the type where it needs to.
    /// fn size<B>(response: &http::Response<ResponseBody<B>>) -> u64
    /// where
    ///     ResponseBody<B>: http_body::Body,
    /// {
    ///     http_body::Body::size_hint(response.body()).lower()
    /// }
    /// # let _ = size::<String>;
    /// ```
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: BodyKind<B>,
        // The request's slots, until the end.
        slots: SlotGuard,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = BodyProjection]
    enum BodyKind<B> {
        Inner { #[pin] body: B },
        Call { #[pin] body: B, ending: Box<Ending> },
        /// A denial or a status. Empty once it was sent.
        Own { bytes: Bytes },
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn unlimited(body: B) -> Self {
        Self { kind: BodyKind::Inner { body }, slots: SlotGuard::default() }
    }

    pub(crate) fn own(bytes: Bytes) -> Self {
        Self { kind: BodyKind::Own { bytes }, slots: SlotGuard::default() }
    }
}

impl<B> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::own(Bytes::new())
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BodyError>>> {
        let frame = ready!(self.as_mut().project().kind.poll_frame(cx)).map(|frame| frame.map_err(BodyError::new));
        // Released here, because a body that reports its end is not polled again.
        if !matches!(frame, Some(Ok(_))) || !self.slots.is_empty() && self.is_end_stream() {
            drop(mem::take(self.project().slots));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.kind.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Inner { body } | BodyKind::Call { body, .. } => body.size_hint(),
            BodyKind::Own { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

impl<B> BodyKind<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<B> {
        match self.project() {
            BodyProjection::Inner { body } => body.poll_frame(cx),
            BodyProjection::Call { body, ending } => ending.poll_frame(body, cx),
            BodyProjection::Own { bytes } => {
                let bytes = mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            BodyKind::Inner { body } => body.is_end_stream(),
            BodyKind::Call { body, ending } => !ending.holds_trailers() && body.is_end_stream(),
            BodyKind::Own { bytes } => bytes.is_empty(),
        }
    }
}

#[inline]
pub(super) fn pass_as_decided<R, E>(
    returned: Result<Response<R>, E>,
    gate: &LayerState,
    decision: &Decision,
) -> Result<Response<ResponseBody<R>>, E> {
    let mut response = returned?;
    let is_exposed = gate.responses.exposes_decisions || response.extensions().get::<Decision>().is_some();
    if is_exposed || !gate.responses.headers.are_none() {
        let status = response.status();
        gate.responses.headers.write(response.headers_mut(), status, decision);
        if is_exposed {
            expose(gate, response.extensions_mut(), Cow::Borrowed(decision));
        }
    }
    Ok(response.map(ResponseBody::unlimited))
}

fn expose(gate: &LayerState, extensions: &mut Extensions, decision: Cow<'_, Decision>) {
    match extensions.remove::<Decision>() {
        Some(inner) => drop(extensions.insert(inner.inside(decision.into_owned()))),
        None if gate.responses.exposes_decisions => drop(extensions.insert(decision.into_owned())),
        None => {}
    }
}

/// The body holds the slots, and the account if trailers still settle something.
pub(super) fn pass<R, E>(returned: Result<Response<R>, E>, mut account: Account) -> Result<Response<ResponseBody<R>>, E>
where
    R: Body,
{
    let mut response = returned?;
    let is_ended = response.body().is_end_stream();
    if account.awaits_trailers() && is_ended {
        drop(account.settle_call(true));
    }
    let (gate, decision, status) = (account.gate(), account.shown(), response.status());
    gate.responses.headers.write(response.headers_mut(), status, &decision);
    expose(gate, response.extensions_mut(), decision);
    let slots = if is_ended { SlotGuard::default() } else { account.pass_slots() };
    Ok(response.map(|body| {
        let kind = if account.awaits_trailers() {
            BodyKind::Call { body, ending: Box::new(Ending::new(account)) }
        } else {
            BodyKind::Inner { body }
        };
        ResponseBody { kind, slots }
    }))
}

type BoxError = Box<dyn StdError + Send + Sync>;

/// Error of a [`ResponseBody`](crate::body::ResponseBody), and of the bodies of inner layers that create it.
///
/// Its [source](StdError::source) is the error of the inner body. Both are displayed in the same way.
///
/// # Examples
///
/// ```
/// use std::error::Error;
/// use std::io;
/// use tollgate::body::BodyError;
///
/// let error = BodyError::new(io::Error::other("the disk is gone"));
/// assert!(error.source().is_some_and(|cause| cause.is::<io::Error>()));
/// // The error of a nested body is not wrapped again.
/// assert!(BodyError::new(error).source().is_some_and(|cause| cause.is::<io::Error>()));
/// ```
#[derive(Debug)]
pub struct BodyError(BoxError);

impl BodyError {
    /// Wraps the error of an inner body. Another `BodyError` is returned unchanged.
    pub fn new(cause: impl Into<BoxError>) -> Self {
        cause.into().downcast().map_or_else(Self, |error| *error)
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for BodyError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}
