//! The responses this crate makes, and their body.

use std::fmt::Write;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::Decision;
use crate::admission::{Limiter, Verdict};

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

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
        Own { bytes: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    fn inner(body: B) -> Self {
        Self { kind: BodyKind::Inner { body } }
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
            BodyProjection::Own { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes.into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Inner { body } => body.is_end_stream(),
            BodyKind::Own { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Inner { body } => body.size_hint(),
            BodyKind::Own { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}

impl Limiter {
    /// The inner service's response, with the decision and its headers.
    pub(crate) fn pass<R>(&self, mut response: Response<R>, decision: &Decision) -> Response<ResponseBody<R>> {
        let status = response.status();
        self.write_headers(response.headers_mut(), status, decision);
        response.extensions_mut().insert(decision.clone());
        response.map(ResponseBody::inner)
    }

    /// The response to a request that is not admitted.
    pub(crate) fn refuse<B, R>(&self, verdict: Verdict, request: Request<B>) -> Response<ResponseBody<R>> {
        let response = match verdict {
            Verdict::Refused(decision) | Verdict::Admitted(decision, _) => self.too_many(&decision, request),
            Verdict::Rejected(response) => *response,
            Verdict::NoKey(index) => self.no_key(index),
            Verdict::Failed(error) => {
                tracing::debug!(error = format!("{error:#}"), "a request was refused, as no decision could be made");
                unavailable()
            }
        };
        response.map(ResponseBody::own)
    }

    fn too_many<B>(&self, decision: &Decision, request: Request<B>) -> Response<Bytes> {
        let wait = self.headers.wait(decision);
        let mut response = match &self.reject {
            Some(reject) => reject(&request.into_parts().0, decision),
            None => problem(StatusCode::TOO_MANY_REQUESTS, self.exceeded(decision, wait)),
        };
        let headers = response.headers_mut();
        let theirs = self.reject.as_ref().map(|_| mem::take(headers));
        headers.insert(CACHE_CONTROL, NO_STORE);
        if let Some(seconds) = wait {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        self.write_refusal(headers, decision, wait);
        headers.extend(theirs.into_iter().flatten());
        response.extensions_mut().insert(decision.clone());
        response
    }

    fn exceeded(&self, decision: &Decision, wait: Option<u64>) -> String {
        let detail = match wait {
            Some(1) => "Retry in 1 second.".to_owned(),
            Some(seconds) => format!("Retry in {seconds} seconds."),
            None => "No wait can help: the request costs more than is ever admitted at once.".to_owned(),
        };
        let mut body = document(QUOTA_EXCEEDED, "Quota Exceeded", StatusCode::TOO_MANY_REQUESTS, &detail);
        body.push_str(",\"violated-policies\":[");
        let names = decision.violated().map(crate::Outcome::policy).filter(|name| self.advertises(name));
        for (index, name) in names.enumerate() {
            // A policy's name needs no escaping.
            let comma = if index == 0 { "" } else { "," };
            write!(body, "{comma}\"{name}\"").expect("a string takes everything");
        }
        body.push_str("]}");
        body
    }

    fn no_key(&self, index: usize) -> Response<Bytes> {
        let policy = &self.policies[index];
        tracing::debug!(policy = policy.name(), "a request without a key was refused");
        let detail = "The request lacks what clients are told apart by.";
        let body = document("about:blank", "Forbidden", StatusCode::FORBIDDEN, detail) + "}";
        problem(StatusCode::FORBIDDEN, body)
    }
}

fn unavailable() -> Response<Bytes> {
    let (status, detail) = (StatusCode::SERVICE_UNAVAILABLE, "Retry in 1 second.");
    let body = document(REDUCED_CAPACITY, "Temporary Reduced Capacity", status, detail) + "}";
    let mut response = problem(status, body);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// A problem document (RFC 9457) without its closing brace.
fn document(kind: &str, title: &str, status: StatusCode, detail: &str) -> String {
    format!(r#"{{"type":"{kind}","title":"{title}","status":{},"detail":"{detail}""#, status.as_u16())
}

fn problem(status: StatusCode, body: String) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}
