//! The responses of a service, and their body.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::response::Parts;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::ending::Ending;
use crate::Decision;
use crate::http::account::{Account, Settled};

pin_project! {
    /// The inner service's body, or one of this crate.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: BodyKind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = BodyProjection]
    enum BodyKind<B> {
        Inner { #[pin] body: B },
        Call { #[pin] body: B, ending: Box<Ending> },
        Own { bytes: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    fn inner(body: B) -> Self {
        Self { kind: BodyKind::Inner { body } }
    }

    fn call(body: B, account: Account) -> Self {
        Self { kind: BodyKind::Call { body, ending: Box::new(Ending::new(account)) } }
    }

    pub(crate) fn own(bytes: Bytes) -> Self {
        Self { kind: BodyKind::Own { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) } }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            BodyProjection::Inner { body } => body.poll_frame(cx),
            BodyProjection::Call { body, ending } => ending.poll_frame(body, cx),
            BodyProjection::Own { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes.into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Inner { body } => body.is_end_stream(),
            BodyKind::Call { body, ending } => !ending.holds_trailers() && body.is_end_stream(),
            BodyKind::Own { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Inner { body } | BodyKind::Call { body, .. } => body.size_hint(),
            BodyKind::Own { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}

/// The inner service's answer, in parts.
pub(super) type Answered<R, E> = Result<(Parts, R), E>;

/// Settles a request by the inner service's answer. Returns what that has to wait for.
pub(super) fn settle<R, E>(answer: Result<Response<R>, E>, account: &mut Account) -> (Answered<R, E>, Option<Settled>) {
    let answer = answer.map(Response::into_parts);
    let settled = account.settle(answer.as_ref().ok().map(|(parts, _)| parts));
    (answer, settled)
}

/// The inner service's answer, once its request is settled: its response gets the decision and its headers.
/// Where that depends on trailers, the body keeps the account.
pub(super) fn pass<R, E>(answer: Answered<R, E>, mut account: Account) -> Result<Response<ResponseBody<R>>, E>
where
    R: Body,
{
    let (mut parts, body) = answer?;
    if account.is_open() && body.is_end_stream() {
        drop(account.settle_call(true));
    }
    let decision = account.shown();
    account.gate().responses.headers().write(&mut parts.headers, parts.status, &decision);
    let told = match parts.extensions.remove::<Decision>() {
        Some(inner) => inner.inside(decision),
        None => decision,
    };
    parts.extensions.insert(told);
    let body = if account.is_open() { ResponseBody::call(body, account) } else { ResponseBody::inner(body) };
    Ok(Response::from_parts(parts, body))
}
