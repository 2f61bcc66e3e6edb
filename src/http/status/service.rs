//! The service that shows clients what is left of their limits.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use tower::Service;

use super::look::{self, Scope};
use crate::http::account::Handle;
use crate::http::gate::{Gate, SharedGate};
use crate::http::policy::Predicate;
use crate::http::response::{json, problem, without_body};
use crate::http::service::ResponseBody;

const NOT_SHOWN: &str = "Limits are not shown to this client.";

/// A [`Service`] that responds to each client with what is left of its limits, as JSON.
///
/// It is made by [`RateLimitLayer::status_service`](crate::RateLimitLayer::status_service), for all clients, or by
/// [`status_service_for`](crate::RateLimitLayer::status_service_for), for those that a closure admits.
///
/// A response looks like this, with `reset` in Unix time:
///
/// ```json
/// {"resources":{"ip":{"limit":300,"used":12,"remaining":288,"reset":1767225600}}}
/// ```
///
/// A policy by which the client is [banned](crate::Ban) also has `banned`, the end of the ban in Unix time. One that counts
/// something else than requests has a `unit`, as in `RateLimit-Policy`: `content-bytes`, or `concurrent-requests`, which
/// have no `reset`, as it is not known when slots are free.
///
/// It checks the layer's policies as for any request of the client, and takes nothing:
///
/// - The layer's keys identify the client. `limit`, `used` and `remaining` are those of the headers that the client's
///   other requests receive.
/// - Closures receive the status request. A policy that does not apply to it by its [`when`](crate::Policy::when) is
///   left out. Policies for other [methods](crate::Policy::methods) and routes are shown, as the status request has its
///   own.
/// - Costs are not computed.
/// - Policies are left out if the request lacks their key (unless such requests [share](crate::MissingKey::Share) a
///   counter, which is shown then), if they are in shadow mode or unadvertised, or if their
///   [allow list](crate::Policy::allow) has the client.
/// - A client that the layer refuses before the store decides, as it is on a [deny list](crate::Policy::deny), say,
///   gets the same response here if that policy applies to the status request too.
/// - If the store fails, the response shows what [`OnFailure`](crate::OnFailure) decides instead: what is left of this
///   process's share, or a full quota with `Allow`; with `Deny` it is 503.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use tollgate::{MemoryStore, Quota, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let limits = RateLimitLayer::composite(MemoryStore::new()).ip(Quota::per_minute(300));
/// let app: Router = Router::new().layer(limits.clone()).route_service("/rate_limit", limits.status_service()?);
/// # let _ = app;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "services do nothing unless called"]
pub struct StatusService {
    gate: SharedGate,
    /// Which requests see all advertised policies; `None` if all requests see only those that are proven.
    shows_to: Option<Arc<Predicate>>,
}

impl StatusService {
    /// Creates the service of a gate, for all clients if `shows_to` is `None`.
    pub(crate) fn new(gate: SharedGate, shows_to: Option<Arc<Predicate>>) -> Self {
        Self { gate, shows_to }
    }
}

impl<B> Service<Request<B>> for StatusService {
    type Response = Response<ResponseBody<String>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (service, gate) = (self.clone(), self.gate.load_full());
        let (parts, _) = request.into_parts();
        Box::pin(async move {
            let response = service.respond(&gate, &parts).await;
            Ok(if parts.method == Method::HEAD { without_body(response) } else { response }.map(ResponseBody::own))
        })
    }
}

impl StatusService {
    /// Returns the status of the client, or why there is none: 403, the layer's refusal, or 503.
    async fn respond(&self, gate: &Arc<Gate>, parts: &Parts) -> Response<Bytes> {
        let scope = match &self.shows_to {
            Some(shows_to) if !shows_to(parts) => return problem::forbidden(NOT_SHOWN),
            Some(_) => Scope::Shown,
            None => Scope::Proven,
        };
        match look::status(gate, parts, scope).await {
            Ok(status) => json(status),
            Err(refusal) => gate.refuse(*refusal, parts, parts.extensions.get::<Handle>().is_some()),
        }
    }
}

impl fmt::Debug for StatusService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusService").finish_non_exhaustive()
    }
}
