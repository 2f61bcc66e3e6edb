//! A service that tells clients their limits.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use tower::Service;

use super::look::{self, Scope};
use crate::http::gate::{Gate, SharedGate};
use crate::http::policy::Predicate;
use crate::http::response::{json, problem, without_body};
use crate::http::service::ResponseBody;
use crate::lookup::Warning;

const NOT_SHOWN: &str = "Limits are not shown to this client.";

/// A service that answers each client with what it has left, as JSON. See
/// [`RateLimitLayer::status_service`](crate::RateLimitLayer::status_service) and
/// [`status_service_for`](crate::RateLimitLayer::status_service_for), which say to whom.
///
/// It judges a request as the layer would, and takes nothing:
///
/// - Clients are told apart by the layer's keys. `used` and `remaining` are those of the headers that
///   their requests get.
/// - Closures see the request for the status. Policies that do not apply to it by their
///   [`when`](crate::Policy::when) are left out. Those for other [methods](crate::Policy::methods) and
///   routes are shown, as the request for the status has its own.
/// - Costs are not worked out. A policy whose closure panics is left out, with a warning of the code
///   `status_panicked`, once a second at most.
/// - Left out are policies whose key the request lacks, those in shadow, those that are not advertised,
///   and those whose list [allows](crate::Policy::allow) the client.
/// - A client that the layer would refuse without asking the store, as a policy [denies](crate::Policy::deny)
///   it, gets the same response, if the policy applies to the request for the status too. When the store
///   fails, the answer is 503.
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
pub struct StatusService {
    gate: SharedGate,
    /// To whom it shows; `None` is to all, who are shown less.
    shows_to: Option<Arc<Predicate>>,
    panics: Arc<Warning>,
}

impl StatusService {
    pub(crate) fn new(gate: SharedGate, shows_to: Option<Arc<Predicate>>) -> Self {
        Self { gate, shows_to, panics: Arc::default() }
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
            let answer = unless_it_panics(service.answer(&gate, &parts)).await;
            Ok(if parts.method == Method::HEAD { without_body(answer) } else { answer }.map(ResponseBody::own))
        })
    }
}

impl StatusService {
    async fn answer(&self, gate: &Arc<Gate>, parts: &Parts) -> Response<Bytes> {
        let scope = match &self.shows_to {
            Some(shows_to) if !shows_to(parts) => return problem::forbidden(NOT_SHOWN),
            Some(_) => Scope::Shown,
            None => Scope::Proven,
        };
        match look::status(gate, parts, scope, &self.panics).await {
            Ok(status) => json(status.to_json()),
            Err(refusal) => gate.turn_away(*refusal, parts),
        }
    }
}

/// The answer; where a closure of the program panics on it, 500, as no client may end its connection, on
/// which there may be requests of others.
async fn unless_it_panics(answer: impl Future<Output = Response<Bytes>>) -> Response<Bytes> {
    let mut answer = pin!(answer);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| Poll::Ready(problem::internal_error()))
    })
    .await
}

impl fmt::Debug for StatusService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusService").finish_non_exhaustive()
    }
}
