//! The application's own responses to denied requests, instead of the layer's problem documents.
//!
//! A closure builds the response from the head of the request and the [`Denial`]. It is not called for gRPC calls,
//! whose clients read only a gRPC status, nor where a key extractor rejects a request with its own response.

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
#[cfg(feature = "axum")]
use crate::core::Lines;
use crate::http::grpc;
use crate::http::response::Denial;

impl RateLimitLayer {
    /// Sets a closure that builds all responses to denied requests, instead of problem documents.
    ///
    /// The closure receives the head of the request and the [`Denial`]: the reason, the status and the wait of the
    /// layer's own response. The layer adds `Retry-After`, `Cache-Control: no-store` and the rate limit headers, unless
    /// the response already has them. The closure is not called for [gRPC calls](crate::RateLimit#grpc), for the
    /// responses with which a [key extractor](crate::key::KeyExtractor) rejects requests, or by
    /// [`RateLimitHandle::denial`](crate::RateLimitHandle::denial).
    ///
    /// The body must be complete and of known size, like text, JSON and bytes. The layer does not wait for a streamed
    /// body. Instead it sends its own response, and logs a warning with the code `rejection_streamed`, once a second at
    /// most.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::Json;
    /// use serde::Serialize;
    /// use tollgate::response::DenialReason;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// #[derive(Serialize)]
    /// struct Body {
    ///     error: &'static str,
    ///     retry_after: Option<u64>,
    /// }
    ///
    /// let policy = Policy::new("api", Quota::per_minute(100));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).on_denied(|_, denial| {
    ///     let error = match denial.reason() {
    ///         DenialReason::RateLimited(_) | DenialReason::Banned(_) => "slow_down",
    ///         DenialReason::MissingKey | DenialReason::AmbiguousKey => "no_api_key",
    ///         DenialReason::DenyListed => "not_allowed",
    ///         _ => "try_again",
    ///     };
    ///     // The number of seconds in Retry-After.
    ///     (denial.status(), Json(Body { error, retry_after: denial.retry_after_secs() }))
    /// });
    /// # let _ = layer;
    /// ```
    #[cfg(feature = "axum")]
    pub fn on_denied<F, R>(self, build: F) -> Self
    where
        F: Fn(&Parts, &Denial<'_>) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        self.on_denied_any(
            move |parts, denial| {
                if grpc::is_call(parts) { None } else { at_once(build(parts, denial).into_response()) }
            },
        )
    }

    /// Sets a closure that builds all responses to denied requests, without axum.
    ///
    /// It is the same as `on_denied` of the feature `axum`.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Response;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let policy = Policy::new("api", Quota::per_minute(100));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).on_denied_http(|_, denial| {
    ///     let mut response = Response::new("denied");
    ///     *response.status_mut() = denial.status();
    ///     response
    /// });
    /// # let _ = layer;
    /// ```
    pub fn on_denied_http<F, T>(self, build: F) -> Self
    where
        F: Fn(&Parts, &Denial<'_>) -> Response<T> + Send + Sync + 'static,
        T: Into<Bytes>,
    {
        self.on_denied_any(move |parts, denial| (!grpc::is_call(parts)).then(|| build(parts, denial).map(Into::into)))
    }

    /// Sets a closure that builds the responses to all denied requests and [gRPC calls](crate::RateLimit#grpc).
    ///
    /// If it returns `None`, the layer builds its own response. The same headers are added as with
    /// [`on_denied_http`](Self::on_denied_http).
    ///
    /// # Examples
    ///
    /// Denials with 503, as if the service had no capacity:
    ///
    /// ```
    /// use tollgate::policy::PolicyName;
    /// use tollgate::response::unavailable;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let name = PolicyName::try_from("slots")?;
    /// let policy = Policy::new("slots", Quota::concurrency(100));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy)
    ///     .on_denied_any(move |parts, denial| Some(unavailable(parts, &name, denial.retry_after()?)));
    /// # let _ = layer;
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn on_denied_any<F>(self, build: F) -> Self
    where
        F: Fn(&Parts, &Denial<'_>) -> Option<Response<Bytes>> + Send + Sync + 'static,
    {
        self.change(|gate| gate.responses.on_denied = Some(Arc::new(build)))
    }
}

/// `None` if the body is not complete at the first poll.
#[cfg(feature = "axum")]
fn at_once(response: Response<Body>) -> Option<Response<Bytes>> {
    static STREAMED: Lines = Lines::new();
    let (mut parts, body) = response.into_parts();
    // A body of unknown size may have no end.
    let size = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let read = size.map(|size| pin!(to_bytes(body, size)).poll(&mut Context::from_waker(Waker::noop())));
    if let Some(Poll::Ready(Ok(bytes))) = read {
        // The server sets the length itself. A wrong length from the closure would break the connection.
        parts.headers.remove(CONTENT_LENGTH);
        parts.headers.remove(TRANSFER_ENCODING);
        return Some(Response::from_parts(parts, bytes));
    }
    STREAMED.log("", |more| {
        tracing::warn!(code = "rejection_streamed", more, "body of on_denied incomplete, default response sent");
    });
    None
}
