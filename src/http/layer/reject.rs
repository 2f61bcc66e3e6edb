//! Responses of the application's own to refused requests, instead of a 429 with a problem document.
//!
//! A closure builds the response from the head of the request and the decision. It is called for refusals by a policy
//! only: a missing key, a deny list or a failing store keep the layer's responses, as they have no decision. So do gRPC
//! calls, whose clients read nothing but a status of gRPC.

#[cfg(feature = "axum")]
use std::pin::pin;
use std::sync::Arc;
#[cfg(feature = "axum")]
use std::task::{Context, Poll, Waker};

#[cfg(feature = "axum")]
use axum::body::{Body, HttpBody, to_bytes};
#[cfg(feature = "axum")]
use axum::response::IntoResponse;
use bytes::Bytes;
use http::Response;
#[cfg(feature = "axum")]
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;

use super::RateLimitLayer;
use crate::core::Decision;
#[cfg(feature = "axum")]
use crate::core::Lines;
use crate::http::grpc;

impl RateLimitLayer {
    /// Sets a closure that builds the response when a policy refuses a request, instead of a 429 with a problem
    /// document.
    ///
    /// It receives the head of the request and the decision. `Retry-After`, `Cache-Control: no-store` and the rate
    /// limit headers are added to the response, unless it has them already. The closure is not called for responses
    /// without a decision (400 or 403 for the key, 403 for a deny list, and 503), nor for gRPC calls, which get
    /// `RESOURCE_EXHAUSTED`.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Response, StatusCode};
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let policy = Policy::new("api", Quota::per_minute(100));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).on_denied(|_, _| {
    ///     let mut response = Response::new("slow down");
    ///     *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    ///     response
    /// });
    /// # let _ = layer;
    /// ```
    pub fn on_denied<F, T>(self, build: F) -> Self
    where
        F: Fn(&Parts, &Decision) -> Response<T> + Send + Sync + 'static,
        T: Into<Bytes>,
    {
        self.reject_by(move |parts, decision| (!grpc::is_call(parts)).then(|| build(parts, decision).map(Into::into)))
    }

    /// Like [`on_denied`](Self::on_denied), but the closure may return anything that implements axum's `IntoResponse`.
    ///
    /// The body must be complete and of known size, as text, JSON and bytes are. A streamed body is not waited for: the layer then sends
    /// its own response, and logs a warning with the code `rejection_streamed`, once a second at most.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use axum::{Json, http::StatusCode};
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100))).on_denied_with(
    ///     |_, decision| {
    ///         let policies: Vec<String> = decision.denied_by().map(|outcome| outcome.policy().to_owned()).collect();
    ///         (StatusCode::TOO_MANY_REQUESTS, Json(BTreeMap::from([("limits", policies)])))
    ///     },
    /// );
    /// # let _ = layer;
    /// ```
    #[cfg(feature = "axum")]
    pub fn on_denied_with<F, R>(self, build: F) -> Self
    where
        F: Fn(&Parts, &Decision) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        self.reject_by(
            move |parts, decision| {
                if grpc::is_call(parts) { None } else { at_once(build(parts, decision).into_response()) }
            },
        )
    }

    /// Sets a closure that builds the responses, those to gRPC calls as well; where it returns `None`, the layer does.
    pub(crate) fn reject_by<F>(self, build: F) -> Self
    where
        F: Fn(&Parts, &Decision) -> Option<Response<Bytes>> + Send + Sync + 'static,
    {
        self.change(|gate| gate.responses.reject = Some(Arc::new(build)))
    }
}

/// Returns the response with its body in memory; `None` if the body is not complete at the first poll.
#[cfg(feature = "axum")]
fn at_once(response: Response<Body>) -> Option<Response<Bytes>> {
    static STREAMED: Lines = Lines::new();
    let (mut parts, body) = response.into_parts();
    // A body of unknown size may have no end.
    let size = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let read = size.map(|size| pin!(to_bytes(body, size)).poll(&mut Context::from_waker(Waker::noop())));
    if let Some(Poll::Ready(Ok(bytes))) = read {
        // The server knows the length, and another one would end the connection.
        parts.headers.remove(CONTENT_LENGTH);
        parts.headers.remove(TRANSFER_ENCODING);
        return Some(Response::from_parts(parts, bytes));
    }
    STREAMED.log("", |more| {
        tracing::warn!(
            code = "rejection_streamed",
            more,
            "the body that on_denied_with returned is streamed or failed: the layer's own response was sent instead"
        );
    });
    None
}
