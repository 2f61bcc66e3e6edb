//! The responses this crate makes, and their body.

mod ending;
pub(crate) mod problem;
mod write;

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::response::Parts;
use http::{HeaderValue, Method, Request, Response, request};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use self::ending::Ending;
use crate::Decision;
use crate::http::account::{Account, Settled};
use crate::http::admission::Verdict;
use crate::http::gate::Gate;
use crate::http::grpc;
use crate::http::headers::fields::{LARGEST, number, whole_seconds};

pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NO_KEY: &str = "The request does not identify its client.";
const AMBIGUOUS: &str =
    "The request does not identify its client unambiguously: what does must be present once and well-formed.";
const DENIED: &str = "This client is not allowed.";

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

    fn own(bytes: Bytes) -> Self {
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
pub(crate) type Answered<R, E> = Result<(Parts, R), E>;

/// Settles a request by the inner service's answer. Returns what that has to wait for.
pub(crate) fn settle<R, E>(answer: Result<Response<R>, E>, account: &mut Account) -> (Answered<R, E>, Option<Settled>) {
    let answer = answer.map(Response::into_parts);
    let settled = account.settle(answer.as_ref().ok().map(|(parts, _)| parts));
    (answer, settled)
}

/// The inner service's answer, once its request is settled: its response gets the decision and its headers.
/// Where that depends on trailers, the body keeps the account.
pub(crate) fn pass<R, E>(answer: Answered<R, E>, mut account: Account) -> Result<Response<ResponseBody<R>>, E>
where
    R: Body,
{
    let (mut parts, body) = answer?;
    if account.is_open() && body.is_end_stream() {
        drop(account.settle_call(true));
    }
    let decision = account.shown();
    account.gate().write_headers(&mut parts.headers, parts.status, &decision);
    let told = match parts.extensions.remove::<Decision>() {
        Some(inner) => inner.inside(decision),
        None => decision,
    };
    parts.extensions.insert(told);
    let body = if account.is_open() { ResponseBody::call(body, account) } else { ResponseBody::inner(body) };
    Ok(Response::from_parts(parts, body))
}

impl Gate {
    /// The response to a request that is not admitted.
    pub(crate) fn refuse<B, R>(&self, verdict: Verdict, request: Request<B>) -> Response<ResponseBody<R>> {
        let (parts, _) = request.into_parts();
        self.turn_away(verdict, &parts).map(ResponseBody::own)
    }

    /// As [`refuse`](Self::refuse), for the head of the request.
    pub(crate) fn turn_away(&self, verdict: Verdict, parts: &request::Parts) -> Response<Bytes> {
        let is_grpc = grpc::is_call(parts);
        let response = match verdict {
            Verdict::Refused(decision) => self.too_many(&decision, parts, is_grpc),
            Verdict::Rejected(response) => *response,
            Verdict::NoKey if is_grpc => grpc::forbidden(NO_KEY),
            Verdict::Ambiguous if is_grpc => grpc::invalid(AMBIGUOUS),
            Verdict::Denied if is_grpc => grpc::forbidden(DENIED),
            Verdict::NoKey => problem::forbidden(NO_KEY),
            Verdict::Ambiguous => problem::bad_request(AMBIGUOUS),
            Verdict::Denied => problem::forbidden(DENIED),
            Verdict::Failed(error) => {
                tracing::debug!(error = format!("{error:#}"), "a request was refused, as no decision could be made");
                let wait = self.store.next_probe(&error);
                if is_grpc { grpc::unavailable(wait) } else { problem::unavailable(wait) }
            }
            Verdict::Admitted(_) => unreachable!("an admitted request is served"),
        };
        if parts.method == Method::HEAD { without_body(response) } else { response }
    }

    fn too_many(&self, decision: &Decision, parts: &request::Parts, is_grpc: bool) -> Response<Bytes> {
        match &self.reject {
            Some(reject) => {
                let mut response = reject(parts, decision);
                let theirs = mem::take(response.headers_mut());
                self.complete(&mut response, decision, self.headers.later());
                response.headers_mut().extend(theirs);
                response
            }
            None if is_grpc => {
                let later = self.headers.later_millis();
                let wait = decision.retry_after().map(|wait| wait.max(Duration::from_millis(1)));
                let wait = wait.map(|wait| wait.saturating_add(Duration::from_millis(later)));
                let mut response = grpc::exhausted(wait);
                self.write_refusal(response.headers_mut(), decision, later.div_ceil(1_000));
                response.extensions_mut().insert(decision.clone());
                response
            }
            None => self.refusal(decision),
        }
    }

    /// The response to a refused request.
    pub(crate) fn refusal(&self, decision: &Decision) -> Response<Bytes> {
        let later = self.headers.later();
        let shown = decision.violated().filter(|outcome| self.shows(outcome));
        let mut response = problem::quota_exceeded(wait(decision, later), shown.map(crate::Outcome::policy));
        self.complete(&mut response, decision, later);
        response
    }

    /// Adds the headers of a refusal whose waits are so many seconds later.
    fn complete(&self, response: &mut Response<Bytes>, decision: &Decision, later: u64) {
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, NO_STORE);
        if let Some(seconds) = wait(decision, later) {
            headers.insert(RETRY_AFTER, number(seconds));
        }
        self.write_refusal(headers, decision, later);
        response.extensions_mut().insert(decision.clone());
    }
}

/// The seconds a refused client is told to wait; `None` if no wait can help.
fn wait(decision: &Decision, later: u64) -> Option<u64> {
    decision.retry_after().map(|wait| whole_seconds(wait).max(1).saturating_add(later).min(LARGEST))
}

/// The answer to a HEAD request, which has no body (RFC 9110 §9.3.2), but the length of it.
pub(crate) fn without_body(response: Response<Bytes>) -> Response<Bytes> {
    let (mut parts, body) = response.into_parts();
    if !body.is_empty() {
        parts.headers.entry(CONTENT_LENGTH).or_insert_with(|| number(body.len() as u64));
    }
    Response::from_parts(parts, Bytes::new())
}

/// A JSON document that is of the moment.
pub(crate) fn json(text: String) -> Response<Bytes> {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}
