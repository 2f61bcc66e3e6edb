//! The responses to requests that are not admitted.

pub(crate) mod problem;
mod refusal;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Response};

use self::problem::NO_STORE;
pub(crate) use self::refusal::Refusal;
use crate::http::grpc;
use crate::http::headers::{HeaderWriter, Headers, LARGEST, number, whole_seconds};
use crate::http::policy::Policy;
use crate::{Decision, Error, Outcome};

const NO_KEY: &str = "The request does not identify its client.";
const AMBIGUOUS: &str =
    "The request does not identify its client unambiguously: what does must be present once and well-formed.";
const DENIED: &str = "This client is not allowed.";

/// Builds the response to a refused request; `None` leaves it to the layer.
pub(crate) type Reject = dyn Fn(&Parts, &Decision) -> Option<Response<Bytes>> + Send + Sync;

/// What a layer answers itself, and the headers it adds to what the inner service answers.
#[derive(Clone)]
pub(crate) struct Responses {
    headers: HeaderWriter,
    reject: Option<Arc<Reject>>,
}

impl Responses {
    pub(crate) fn new() -> Self {
        Self { headers: HeaderWriter::new(Headers::both()), reject: None }
    }

    pub(crate) fn set_headers(&mut self, headers: Headers) {
        self.headers.set_headers(headers);
    }

    pub(crate) fn set_policies(&mut self, policies: &[Policy]) {
        self.headers.set_policies(policies);
    }

    pub(crate) fn set_reject(&mut self, reject: Arc<Reject>) {
        self.reject = Some(reject);
    }

    pub(crate) fn headers(&self) -> &HeaderWriter {
        &self.headers
    }

    /// The response to a request that is not admitted, by its head; `next_probe` is how long what failed is not
    /// called again.
    pub(crate) fn of(
        &self,
        refusal: Refusal,
        parts: &Parts,
        next_probe: impl FnOnce(&Error) -> Duration,
    ) -> Response<Bytes> {
        let is_grpc = grpc::is_call(parts);
        let response = match refusal {
            Refusal::Refused(decision) => self.too_many(&decision, parts, is_grpc),
            Refusal::Rejected(response) => *response,
            Refusal::NoKey if is_grpc => grpc::forbidden(NO_KEY),
            Refusal::Ambiguous if is_grpc => grpc::invalid(AMBIGUOUS),
            Refusal::Denied if is_grpc => grpc::forbidden(DENIED),
            Refusal::NoKey => problem::forbidden(NO_KEY),
            Refusal::Ambiguous => problem::bad_request(AMBIGUOUS),
            Refusal::Denied => problem::forbidden(DENIED),
            Refusal::Failed(error) => {
                tracing::debug!(error = format!("{error:#}"), "a request was refused, as no decision could be made");
                let wait = next_probe(&error);
                if is_grpc { grpc::unavailable(wait) } else { problem::unavailable(wait) }
            }
        };
        if parts.method == Method::HEAD { without_body(response) } else { response }
    }

    fn too_many(&self, decision: &Decision, parts: &Parts, is_grpc: bool) -> Response<Bytes> {
        match self.reject.as_ref().and_then(|reject| reject(parts, decision)) {
            Some(mut response) => {
                let theirs = mem::take(response.headers_mut());
                self.complete(&mut response, decision, self.headers.headers().later());
                response.headers_mut().extend(theirs);
                response
            }
            None if is_grpc => {
                let later = self.headers.headers().later_millis();
                let wait = decision.retry_after().map(|wait| wait.max(Duration::from_millis(1)));
                let wait = wait.map(|wait| wait.saturating_add(Duration::from_millis(later)));
                let mut response = grpc::exhausted(wait);
                self.headers.write_refusal(response.headers_mut(), decision, later.div_ceil(1_000));
                response.extensions_mut().insert(decision.clone());
                response
            }
            None => self.refusal(decision),
        }
    }

    /// The response to a refused request.
    pub(crate) fn refusal(&self, decision: &Decision) -> Response<Bytes> {
        let later = self.headers.headers().later();
        let shown = decision.violated().filter(|outcome| self.headers.shows(outcome));
        let mut response = problem::quota_exceeded(wait(decision, later), shown.map(Outcome::policy));
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
        self.headers.write_refusal(headers, decision, later);
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
