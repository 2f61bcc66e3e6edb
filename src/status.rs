//! Telling clients their limits without taking anything.

use std::convert::Infallible;
use std::fmt::{self, Write};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use tower_service::Service;

use crate::admission::Asked;
use crate::fields::{Advertised, Left, used, whole_seconds};
use crate::gate::{Gate, SharedGate};
use crate::store::{Check, Deadline, Decided, Store};
use crate::{Decision, Error, Outcome, problem, response};

/// What a client has left of each policy it may know of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// One for each policy, in their order.
    pub policies: Vec<PolicyStatus>,
}

/// What a client has left of one policy, in the numbers of its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyStatus {
    /// The policy's name.
    pub policy: String,
    /// Units, as in `X-RateLimit-Limit`.
    pub limit: u64,
    /// Units taken.
    pub used: u64,
    /// Units left.
    pub remaining: u64,
    /// Until all is there again, if nothing is taken.
    pub reset_after: Duration,
}

impl Status {
    /// The status by a look at all that is left, of which the client may not use the `kept` units of
    /// each policy.
    pub(crate) fn of(gate: &Gate, decision: &Decision, kept: impl IntoIterator<Item = u64>) -> Self {
        let outcomes = decision.outcomes().iter().zip(kept);
        let shown = outcomes.filter(|(outcome, _)| gate.shows(outcome));
        Self { policies: shown.map(|(outcome, kept)| PolicyStatus::of(outcome, kept)).collect() }
    }

    /// The status as JSON: under `resources`, each policy with `limit`, `used`, `remaining` and
    /// `reset` (Unix time in seconds, rounded up).
    pub fn to_json(&self) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut json = String::from(r#"{"resources":{"#);
        for (index, status) in self.policies.iter().enumerate() {
            let PolicyStatus { policy, limit, used, remaining, reset_after } = status;
            let comma = if index == 0 { "" } else { "," };
            let reset = whole_seconds(now.saturating_add(*reset_after));
            // A policy's name needs no escaping.
            write!(
                json,
                r#"{comma}"{policy}":{{"limit":{limit},"used":{used},"remaining":{remaining},"reset":{reset}}}"#
            )
            .expect("a string takes everything");
        }
        json.push_str("}}");
        json
    }
}

impl PolicyStatus {
    fn of(outcome: &Outcome, kept: u64) -> Self {
        let (Advertised { q, .. }, Left { r, .. }) = (Advertised::of(outcome.quota()), Left::of(outcome));
        let policy = outcome.policy().to_owned();
        let used = used(outcome, r);
        Self { policy, limit: q, used, remaining: r.saturating_sub(kept), reset_after: outcome.reset_after() }
    }
}

/// A service that answers each client with its [`Status`] as JSON. See
/// [`RateLimitLayer::status_service`](crate::RateLimitLayer::status_service).
///
/// Clients are told apart by the layer's keys. Policies whose key the request lacks are left out, and
/// so are those that are not advertised. When the store cannot say, it answers 503.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use tollgate::{MemoryStore, Quota, RateLimitLayer};
///
/// let limits = RateLimitLayer::composite(MemoryStore::new()).ip(Quota::per_minute(300));
/// let app: Router = Router::new().layer(limits.clone()).route_service("/rate_limit", limits.status_service());
/// # let _ = app;
/// ```
#[derive(Clone)]
pub struct StatusService {
    gate: SharedGate,
}

impl StatusService {
    pub(crate) fn new(gate: SharedGate) -> Self {
        Self { gate }
    }
}

impl<B> Service<Request<B>> for StatusService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let gate = self.gate.load_full();
        let (parts, _) = request.into_parts();
        Box::pin(async move {
            let (checks, kept, deadline) = gate.looks(&parts).await;
            let decided = gate.store.decide(&checks, deadline).wait().await;
            let status = decided.map(|Decided { decision, .. }| Status::of(&gate, &decision, kept));
            Ok(answer(status, |error| gate.store.next_probe(error)).map(Full::new))
        })
    }
}

impl Gate {
    /// What every policy would ask of the client who sent this request, if it only looked.
    ///
    /// The looks are at all that is left; beside them are the units that are kept from this client, and
    /// by when the looks are to be made if something was looked up before.
    async fn looks(&self, parts: &Parts) -> (Vec<Check>, Vec<u64>, Deadline) {
        let mut asked = Asked::default();
        for policy in 0..self.policies.len() {
            // Whoever is refused is told no less than others.
            let _verdict = asked.add(policy, self.resolve_covered(policy, parts).in_shadow());
        }
        let deadline = if asked.waiting.is_empty() { Deadline::none() } else { self.deadline() };
        let _verdict = self.find_out(&mut asked, deadline).await;
        let kept = asked.checks.iter().map(|check| check.floor).collect();
        let looks = asked.checks.into_iter().map(|check| Check { cost: 0, floor: 0, ..check });
        (looks.collect(), kept, deadline)
    }
}

fn answer(status: Result<Status, Error>, wait: impl FnOnce(&Error) -> Duration) -> Response<Bytes> {
    match status {
        Ok(status) => response::json(status.to_json()),
        Err(error) => {
            tracing::debug!(error = format!("{error:#}"), "the status is not known");
            problem::unavailable(wait(&error))
        }
    }
}

impl fmt::Debug for StatusService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusService").finish_non_exhaustive()
    }
}
