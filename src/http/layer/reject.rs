//! What refused requests are answered, if not with a 429 and a problem document.

#[cfg(feature = "axum")]
use std::pin::pin;
use std::sync::Arc;
#[cfg(feature = "axum")]
use std::task::{Context, Poll, Waker};

#[cfg(feature = "axum")]
use axum::body::{Body, to_bytes};
#[cfg(feature = "axum")]
use axum::response::IntoResponse;
use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::RateLimitLayer;
use crate::Decision;
#[cfg(feature = "axum")]
use crate::lookup::Warning;

impl RateLimitLayer {
    /// Builds the response to refused requests, instead of a 429 with a problem document.
    ///
    /// The closure sees the head of the request and the decision. The limit's headers, `Retry-After`
    /// and `Cache-Control: no-store` are added to what it returns, unless it set them.
    pub fn on_reject<F, T>(self, build: F) -> Self
    where
        F: Fn(&Parts, &Decision) -> Response<T> + Send + Sync + 'static,
        T: Into<Bytes>,
    {
        self.change(|gate| {
            gate.responses.set_reject(Arc::new(move |parts, decision| Some(build(parts, decision).map(Into::into))));
        })
    }

    /// As [`on_reject`](Self::on_reject), with whatever axum makes a response of.
    ///
    /// Its body has to be there at once, as text, JSON and bytes are. A body that is streamed is not waited for: the
    /// layer then answers as it would without this, and logs a warning with the code `rejection_streamed`, once a
    /// second at most.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use axum::{Json, http::StatusCode};
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100))).reject_with(
    ///     |_, decision| {
    ///         let policy = decision.violated().next().map_or("", |outcome| outcome.policy());
    ///         (StatusCode::TOO_MANY_REQUESTS, Json(BTreeMap::from([("error", "slow down"), ("limit", policy)])))
    ///     },
    /// );
    /// # let _ = layer;
    /// ```
    #[cfg(feature = "axum")]
    pub fn reject_with<F, R>(self, build: F) -> Self
    where
        F: Fn(&Parts, &Decision) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        self.change(|gate| {
            gate.responses.set_reject(Arc::new(move |parts, decision| at_once(build(parts, decision).into_response())));
        })
    }
}

/// A response whose body is there; `None` if it would have to be waited for.
#[cfg(feature = "axum")]
fn at_once(response: Response<Body>) -> Option<Response<Bytes>> {
    static STREAMED: Warning = Warning::new();
    let (parts, body) = response.into_parts();
    let read = pin!(to_bytes(body, usize::MAX)).poll(&mut Context::from_waker(Waker::noop()));
    if let Poll::Ready(Ok(bytes)) = read {
        return Some(Response::from_parts(parts, bytes));
    }
    if STREAMED.is_due() {
        tracing::warn!(
            code = "rejection_streamed",
            "the body of a rejection is not there at once: the layer's is sent"
        );
    }
    None
}
