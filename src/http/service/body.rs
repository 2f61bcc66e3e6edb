//! The body of a response, and how the inner service's response leaves the layer.
//!
//! [`settle`] and [`pass`] come after each other: a request is settled by the head of its response, and once
//! the store has replied (or the budget is spent) the head gets the decision and the headers. Of a gRPC call whose
//! status is in its trailers, the body keeps the account until they come.

use std::borrow::Cow;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::response::Parts;
use http::{Extensions, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::body_error::{BodyError, BoxError};
use super::ending::{Ending, Polled};
use crate::core::Decision;
use crate::http::account::{Account, InTime, RealCost};
use crate::http::gate::Gate;
use crate::store::SlotGuard;

pin_project! {
    /// The body of a response of [`RateLimit`](crate::RateLimit): that of the inner service, or one of this crate.
    ///
    /// That of a [`StatusService`](crate::StatusService) is always one of this crate.
    ///
    /// It passes on the inner body's frames, and its size hint. Errors are the source of a [`BodyError`]. Of a gRPC call it
    /// may hold the trailers back, for no longer than the layer's budget, until the store has settled what they
    /// changed.
    ///
    /// It holds the slots of its request until it has ended, failed or been dropped.
    ///
    /// # Cancellation
    ///
    /// Dropping it before the trailers of a call leaves the debts of the call as they were.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ResponseBody;
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
        // Those of the request, until the end.
        slots: SlotGuard,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = BodyProjection]
    enum BodyKind<B> {
        /// The inner service's; nothing is left to settle.
        Inner { #[pin] body: B },
        /// The inner service's, of a gRPC call that is settled at its end.
        Call { #[pin] body: B, ending: Box<Ending> },
        /// That of a refusal or a status; `None` once it was sent, or if it is empty.
        Own { bytes: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    fn inner(body: B, slots: SlotGuard) -> Self {
        Self { kind: BodyKind::Inner { body }, slots }
    }

    /// Makes the body of a response that this layer leaves as it is.
    pub(super) fn unlimited(body: B) -> Self {
        Self::inner(body, SlotGuard::default())
    }

    fn call(body: B, account: Account, slots: SlotGuard) -> Self {
        Self { kind: BodyKind::Call { body, ending: Box::new(Ending::new(account)) }, slots }
    }

    /// Makes the body of a response of this crate.
    pub(crate) fn own(bytes: Bytes) -> Self {
        let kind = BodyKind::Own { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) };
        Self { kind, slots: SlotGuard::default() }
    }
}

/// An empty body.
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
        // A body that reports its end is not polled again.
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
            BodyKind::Own { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
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
            BodyProjection::Own { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes.into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            BodyKind::Inner { body } => body.is_end_stream(),
            BodyKind::Call { body, ending } => !ending.holds_trailers() && body.is_end_stream(),
            BodyKind::Own { bytes } => bytes.is_none(),
        }
    }
}

/// The inner service's response, as head and body.
pub(super) type Split<R, E> = Result<(Parts, R), E>;

/// Settles a request by the inner service's response. Returns what the response has to wait for, if anything.
pub(super) fn settle<R, E>(returned: Result<Response<R>, E>, account: &mut Account) -> (Split<R, E>, Option<InTime>) {
    let returned = returned.map(Response::into_parts);
    let settled = account.settle(returned.as_ref().ok().map(|(parts, _)| parts));
    (returned, settled)
}

/// Passes on the inner service's response to a request of which nothing has changed since the decision.
#[inline]
pub(super) fn pass_as_decided<R, E>(
    returned: Result<Response<R>, E>,
    gate: &Gate,
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
    Ok(response.map(|body| ResponseBody::inner(body, SlotGuard::default())))
}

/// Returns whether the service has found out what a request costs.
pub(super) fn has_real_cost<R>(response: &Response<R>) -> bool {
    response.extensions().get::<RealCost>().is_some()
}

/// Inserts the decision into the extensions of a response, if a layer inside has done so or this layer is to.
fn expose(gate: &Gate, extensions: &mut Extensions, decision: Cow<'_, Decision>) {
    match extensions.remove::<Decision>() {
        Some(inner) => drop(extensions.insert(inner.inside(decision.into_owned()))),
        None if gate.responses.exposes_decisions => drop(extensions.insert(decision.into_owned())),
        None => {}
    }
}

/// Passes on the inner service's response once its request is settled, with the decision and the headers of the limits.
///
/// Where something still depends on the trailers of the response, its body keeps the account. It holds the slots of the
/// request, unless it has ended already.
pub(super) fn pass<R, E>(returned: Split<R, E>, mut account: Account) -> Result<Response<ResponseBody<R>>, E>
where
    R: Body,
{
    let (mut parts, body) = returned?;
    if account.awaits_trailers() && body.is_end_stream() {
        drop(account.settle_call(true));
    }
    let (gate, decision) = (account.gate(), account.shown());
    gate.responses.headers.write(&mut parts.headers, parts.status, &decision);
    expose(gate, &mut parts.extensions, decision);
    let slots = if body.is_end_stream() { SlotGuard::default() } else { account.pass_slots() };
    let body = if account.awaits_trailers() {
        ResponseBody::call(body, account, slots)
    } else {
        ResponseBody::inner(body, slots)
    };
    Ok(Response::from_parts(parts, body))
}
