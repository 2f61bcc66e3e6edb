//! Responses to requests that are not allowed, and the headers that all responses of a layer get.
//!
//! gRPC calls get a gRPC status. All other requests get a [problem document](problem), or the response that the
//! application builds. The layer adds its headers, `Retry-After` and `Cache-Control` to that response.
//!
//! | reason | HTTP | gRPC |
//! | --- | --- | --- |
//! | a policy denies, or the key is banned | 429, with different problem types | `RESOURCE_EXHAUSTED` |
//! | the key is missing, or the client is on a deny list | 403 | `PERMISSION_DENIED` |
//! | the key is ambiguous | 400 | `INVALID_ARGUMENT` |
//! | a key extractor rejects the request | its response | the status that its response has, or is closest to |
//! | no decision could be made | 503 | `UNAVAILABLE` |

mod denial;
mod drain;
pub(crate) mod problem;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

pub use self::denial::{Denial, DenialReason};
pub use self::drain::Drain;
use crate::core::{Decision, Error, Outcome, PolicyName};
use crate::http::grpc;
use crate::http::headers::{HeaderWriter, MAX_INTEGER, NO_STORE, RateLimitHeaders, number, whole_seconds};
use crate::http::policy::DeniedMark;
use crate::telemetry::Undecided;

const NO_KEY: &str = "The request does not identify its client.";
const AMBIGUOUS: &str = "The request does not identify its client or its cost unambiguously: what does must be present once and well-formed.";
const DENIED: &str = "This client is not allowed.";

pub(crate) enum Refusal {
    /// Boxed, because the account of an allowed request is small.
    Refused(Box<Decision>),
    Rejected(Box<Response<Bytes>>),
    NoKey,
    Ambiguous,
    /// By the deny list of a policy.
    Denied(PolicyName),
    Failed(Error),
}

impl Refusal {
    pub(crate) fn undecided(&self) -> Option<Undecided> {
        match self {
            Refusal::NoKey | Refusal::Denied(_) => Some(Undecided::Forbidden),
            Refusal::Ambiguous => Some(Undecided::Ambiguous),
            Refusal::Rejected(_) => Some(Undecided::Rejected),
            Refusal::Failed(_) => Some(Undecided::Unavailable),
            Refusal::Refused(_) => None,
        }
    }
}

/// `None` leaves the response to the layer.
pub(crate) type OnDenied = dyn Fn(&Parts, &Denial<'_>) -> Option<Response<Bytes>> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Responses {
    pub(crate) headers: HeaderWriter,
    pub(crate) on_denied: Option<Arc<OnDenied>>,
    pub(crate) exposes_decisions: bool,
    pub(crate) drain: Drain,
}

impl Responses {
    pub(crate) fn new() -> Self {
        let headers = HeaderWriter::new(RateLimitHeaders::both());
        Self { headers, on_denied: None, exposes_decisions: false, drain: Drain::default() }
    }

    /// `next_probe` returns how long the failed store is not called, for `Retry-After`.
    pub(crate) fn response_to(
        &self,
        refusal: Refusal,
        parts: &Parts,
        next_probe: impl FnOnce(&Error) -> Duration,
    ) -> Response<Bytes> {
        let is_grpc = grpc::is_call(parts);
        let response = match refusal {
            Refusal::Refused(decision) => self.too_many(&decision, parts, is_grpc),
            Refusal::Rejected(response) if is_grpc => grpc::rejected(*response),
            Refusal::Rejected(response) => *response,
            Refusal::NoKey if is_grpc => grpc::forbidden(NO_KEY),
            Refusal::Ambiguous if is_grpc => grpc::invalid(AMBIGUOUS),
            Refusal::Denied(_) if is_grpc => grpc::forbidden(DENIED),
            Refusal::NoKey => self.built(parts, DenialReason::MissingKey, None, problem::forbidden(NO_KEY)),
            Refusal::Ambiguous => self.built(parts, DenialReason::AmbiguousKey, None, problem::bad_request(AMBIGUOUS)),
            Refusal::Denied(_) => self.built(parts, DenialReason::DenyListed, None, problem::forbidden(DENIED)),
            Refusal::Failed(error) => {
                tracing::debug!(error = format!("{error:#}"), "request denied without a decision");
                // Clients receive a second at least.
                let wait = next_probe(&error).max(Duration::from_secs(1));
                if is_grpc {
                    grpc::unavailable(wait)
                } else {
                    self.built(parts, DenialReason::Unavailable, Some(wait), problem::unavailable(wait))
                }
            }
        };
        match parts.method {
            Method::HEAD => without_body(response),
            _ if is_grpc => grpc::for_client(parts, response),
            _ => response,
        }
    }

    /// For gRPC the wait is at least 1 ms, because 0 would mean to retry at once.
    fn too_many(&self, decision: &Decision, parts: &Parts, is_grpc: bool) -> Response<Bytes> {
        let reason =
            if decision.is_banned() { DenialReason::Banned(decision) } else { DenialReason::RateLimited(decision) };
        let (status, retry_after) = (StatusCode::TOO_MANY_REQUESTS, decision.retry_after());
        let denial = Denial { reason, status, retry_after, later: self.headers.headers().later() };
        match self.ask(parts, &denial) {
            Some(response) => {
                let headers = self.headers.problem_headers(decision, denial.later, denial.retry_after_secs());
                self.expose(with_headers(response, headers), decision)
            }
            None if is_grpc => {
                let later = self.headers.headers().later_millis();
                let wait = decision.retry_after().map(|wait| wait.max(Duration::from_millis(1)));
                let wait = wait.map(|wait| wait.saturating_add(Duration::from_millis(later)));
                let mut response = grpc::exhausted(wait, decision.is_banned());
                self.headers.write_refusal(response.headers_mut(), decision, later.div_ceil(1_000));
                self.expose(response, decision)
            }
            None => self.refusal(decision),
        }
    }

    fn ask(&self, parts: &Parts, denial: &Denial<'_>) -> Option<Response<Bytes>> {
        self.on_denied.as_ref()?(parts, denial)
    }

    fn built(
        &self,
        parts: &Parts,
        reason: DenialReason<'_>,
        retry_after: Option<Duration>,
        own: Response<Bytes>,
    ) -> Response<Bytes> {
        match self.ask(parts, &Denial { reason, status: own.status(), retry_after, later: 0 }) {
            Some(response) => with_headers(response, own.into_parts().0.headers),
            None => own,
        }
    }

    pub(crate) fn refusal(&self, decision: &Decision) -> Response<Bytes> {
        let later = self.headers.headers().later();
        let shown = decision.denied_by().filter(|outcome| self.headers.shows(outcome));
        let wait = decision.retry_after().map(|wait| seconds(wait, later));
        let is_guess = decision.retry_is_guess();
        let document = problem::quota_exceeded(wait, is_guess, decision.is_banned(), shown.map(Outcome::policy));
        let mut response = Response::new(document);
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        *response.headers_mut() = self.headers.problem_headers(decision, later, wait);
        self.expose(response, decision)
    }

    fn expose(&self, mut response: Response<Bytes>, decision: &Decision) -> Response<Bytes> {
        if self.exposes_decisions {
            response.extensions_mut().insert(decision.clone());
        }
        response
    }
}

fn with_headers(mut response: Response<Bytes>, mut headers: HeaderMap) -> Response<Bytes> {
    headers.remove(CONTENT_TYPE);
    headers.extend(mem::take(response.headers_mut()));
    *response.headers_mut() = headers;
    response
}

/// Returns the response to a request for which there is no capacity.
///
/// Return it from your own layers instead of calling their inner service. The layers of this crate respond in the same
/// way if there is no decision. The response is a 503 with a problem document that names `by`, and with `Retry-After`,
/// at least 1 s. A gRPC call gets [`UNAVAILABLE`](crate::RateLimit#grpc), and a HEAD request gets only the headers. The
/// extensions of the response tell outer layers that the request was [denied
/// inside](crate::policy::Count#requests-that-are-denied-inside).
///
/// # Examples
///
/// ```
/// use http::Request;
/// use std::time::Duration;
/// use tollgate::policy::PolicyName;
/// use tollgate::response::{Drain, unavailable};
///
/// let (parts, body) = Request::put("/").body("a long upload".to_owned())?.into_parts();
/// let mut response = unavailable(&parts, &PolicyName::try_from("maintenance")?, Duration::from_secs(30));
/// Drain::new(0, Duration::ZERO).start(&parts, body, response.headers_mut());
/// assert_eq!(response.status(), 503);
/// assert_eq!(response.headers()["retry-after"], "30");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn unavailable(parts: &Parts, by: &PolicyName, wait: Duration) -> Response<Bytes> {
    let mut response = if grpc::is_call(parts) {
        grpc::for_client(parts, grpc::unavailable(wait))
    } else {
        problem::unavailable_by(by, wait)
    };
    response.extensions_mut().insert(DeniedMark::Inside);
    if parts.method == Method::HEAD { without_body(response) } else { response }
}

/// Returns at least 1 s. `later` is jitter in seconds.
fn seconds(wait: Duration, later: u64) -> u64 {
    whole_seconds(wait).max(1).saturating_add(later).min(MAX_INTEGER)
}

/// Drops the body, but keeps its length (RFC 9110 §9.3.2).
pub(crate) fn without_body(response: Response<Bytes>) -> Response<Bytes> {
    let (mut parts, body) = response.into_parts();
    if !body.is_empty() {
        parts.headers.entry(CONTENT_LENGTH).or_insert_with(|| number(body.len() as u64));
    }
    Response::from_parts(parts, Bytes::new())
}

/// Returns a 200 that no cache may keep.
pub(crate) fn json(text: String) -> Response<Bytes> {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}
