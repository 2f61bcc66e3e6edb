//! The layer that limits the bodies of requests, inside of the one that decides.

use std::task::{Context, Poll};

use http::Request;
use tower::{Layer, Service};

use crate::http::account::{Handle, RequestBody};

/// Limits the bytes of request bodies by the policies with [`request_bytes`](crate::Policy::request_bytes), of all
/// [`RateLimitLayer`](crate::RateLimitLayer)s around it.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::post};
/// use tollgate::{MemoryStore, Over, Policy, Quota, RateLimitLayer, RequestBodyLayer, key};
///
/// let uploads = Policy::new("uploads", Quota::per_second(200_000)).key(key::client_ip()).request_bytes(Over::Pace);
/// let app: Router = Router::new()
///     .route("/", post(|body: String| async move { body.len().to_string() }))
///     .layer(RequestBodyLayer::new())
///     .layer(RateLimitLayer::new(MemoryStore::new(), uploads));
/// # let _ = app;
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct RequestBodyLayer(());

impl RequestBodyLayer {
    /// The layer, which has no settings.
    pub fn new() -> Self {
        Self(())
    }
}

impl<S> Layer<S> for RequestBodyLayer {
    type Service = LimitRequestBody<S>;

    fn layer(&self, inner: S) -> LimitRequestBody<S> {
        LimitRequestBody { inner }
    }
}

/// The service of a [`RequestBodyLayer`].
#[derive(Clone, Debug)]
#[must_use = "services do nothing unless called"]
pub struct LimitRequestBody<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for LimitRequestBody<S>
where
    S: Service<Request<RequestBody<B>>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let (parts, body) = request.into_parts();
        let body = match parts.extensions.get::<Handle>() {
            Some(limits) => limits.limit_body(body),
            None => RequestBody::new(body, []),
        };
        self.inner.call(Request::from_parts(parts, body))
    }
}
