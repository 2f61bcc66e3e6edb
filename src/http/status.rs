//! Status service: shows clients their remaining units, and takes nothing.
//!
//! The policies of the client are checked at cost 0, and the response is a JSON document with the numbers that headers
//! would have now. It differs from a decision in two points. Methods and routes of policies do not matter, because the
//! status request has its own. Policies that are not shown are resolved only to find out whether they deny the client.
//!
//! A status request is free and needs no authentication, so a service for all clients shows only policies whose key and
//! quota a client cannot make up. For the others the application decides who may see them. The policies are checked
//! when the service is made, and again when policies are replaced.

use std::convert::Infallible;
use std::fmt::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use tower::Service;

use super::LiveLayer;
use super::account::RateLimitHandle;
use super::admission::{PendingPolicy, PolicyResolver, Resolved, Skip};
use super::gate::{LayerState, SharedGate};
use super::headers::{Advertised, used, whole_seconds};
use super::policy::{Policy, Predicate};
use super::response::{Refusal, json, problem, without_body};
use super::service::ResponseBody;
use crate::core::{Decision, Error, Mode, Outcome};
use crate::limiter::Plan;
use crate::store::{Ask, Store};

const NOT_SHOWN: &str = "Limits are not shown to this client.";

/// A [`Service`] that responds to each client with its remaining units, as JSON.
///
/// Created by [`LiveLayer::status_service`](crate::LiveLayer::status_service), for all clients, or by
/// [`status_service_for`](crate::LiveLayer::status_service_for), for clients that a closure allows.
///
/// A response looks like this, with `reset` in Unix time:
///
/// ```json
/// {"resources":{"ip":{"limit":300,"used":12,"remaining":288,"reset":1767225600}}}
/// ```
///
/// A policy by which the client is [banned](crate::Ban) also has `banned`, the end of the ban in Unix time. A policy
/// that counts other units than requests has a `unit`, as in `RateLimit-Policy`: `content-bytes`, or
/// `concurrent-requests`, which have no `reset`, because it is not known when slots are free.
///
/// It checks the layer's policies as for any request of the client, and takes nothing:
///
/// - The layer's keys identify the client. `limit`, `used` and `remaining` are the numbers in the headers that the
///   client's other requests receive.
/// - Closures receive the status request. A policy whose [`when`](crate::Policy::when) does not match it is left out.
///   Policies for other [methods](crate::Policy::methods) and routes are shown, because the status request has its own.
/// - Costs are not computed.
/// - Policies are left out if the request lacks their key (unless such requests [share](crate::policy::MissingKey::Share) a
///   counter, which is shown then), if they are in shadow mode or unadvertised, or if their
///   [allow list](crate::Policy::allow) has the client.
/// - A client that the layer denies before the store decides, such as one on a [deny list](crate::Policy::deny), gets
///   the same response here if that policy applies to the status request too.
/// - If the store fails, the response shows what [`OnFailure`](crate::OnFailure) decides instead: the rest of this
///   process's share, or a full quota with `Allow`. With `Deny` it is 503.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use tollgate::{MemoryStore, Quota, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let limits = RateLimitLayer::composite(MemoryStore::new()).ip(Quota::per_minute(300)).live();
/// let app: Router = Router::new().layer(limits.clone()).route_service("/rate_limit", limits.status_service()?);
/// # let _ = app;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "services do nothing unless called"]
pub struct StatusService {
    gate: SharedGate,
    /// Requests that see all advertised policies. With `None` all requests see only unforgeable ones.
    shows_to: Option<Arc<Predicate>>,
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
    async fn respond(&self, gate: &Arc<LayerState>, parts: &Parts) -> Response<Bytes> {
        if self.shows_to.as_ref().is_some_and(|shows_to| !shows_to(parts)) {
            return problem::forbidden(NOT_SHOWN);
        }
        let shows = |policy: &Policy| policy.is_shown() && (self.shows_to.is_some() || policy.is_unforgeable());
        match status(gate, parts, shows).await {
            Ok(status) => json(status),
            Err(refusal) => gate.refuse(*refusal, parts, parts.extensions.get::<RateLimitHandle>().is_some()),
        }
    }
}

impl fmt::Debug for StatusService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusService").finish_non_exhaustive()
    }
}

async fn status(
    gate: &Arc<LayerState>,
    parts: &Parts,
    shows: impl Fn(&Policy) -> bool,
) -> Result<String, Box<Refusal>> {
    let mut plan: Plan<PendingPolicy> = Plan::default();
    for (place, policy) in gate.policies.iter().enumerate() {
        match resolve(gate, place, parts) {
            Resolved::Refused(refusal) => return Err(refusal),
            Resolved::Check(check) if shows(policy) => plan.add(place, check),
            Resolved::Waiting(waiting) if shows(policy) => plan.pending.push(*waiting),
            _ => {}
        }
    }
    let limits = &gate.limits;
    plan.look_up().await?;
    let decided = limits.store.decide(&plan.checks, Ask::default()).wait().await;
    let decided = decided.map_err(|error| Box::new(Refusal::Failed(error)))?;
    Ok(document(gate, &decided.decision))
}

fn resolve(gate: &Arc<LayerState>, place: usize, parts: &Parts) -> Resolved {
    let policy = &gate.policies[place];
    let scope = &policy.options().scope;
    let covered = scope.terms(parts).is_some();
    if gate.limits.mode(policy.rule()) != Some(Mode::Enforce) || !(covered || scope.applies_when(parts)) {
        return Resolved::Skip(Skip::Scope);
    }
    let resolved = PolicyResolver::resolve_look(gate, place, parts);
    if covered { resolved } else { resolved.in_shadow() }
}

/// `reset` and `banned` are in Unix seconds, rounded up. Slots have no `reset`.
fn document(gate: &LayerState, decision: &Decision) -> String {
    let headers = &gate.responses.headers;
    let mut json = String::from(r#"{"resources":{"#);
    for (index, outcome) in decision.outcomes().iter().filter(|outcome| headers.shows(outcome)).enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write_policy(&mut json, comma, outcome, headers.unit(outcome)).expect("writing to a string cannot fail");
    }
    json.push_str("}}");
    json
}

fn write_policy(json: &mut String, comma: &str, outcome: &Outcome, unit: Option<&str>) -> fmt::Result {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (policy, Advertised { q, .. }) = (outcome.policy(), Advertised::from_quota(outcome.quota()));
    let left = outcome.remaining().min(q);
    let used = used(outcome, left);
    write!(json, r#"{comma}"{policy}":{{"limit":{q},"used":{used},"remaining":{left}"#)?;
    // No reset, because it is not known when slots are free again.
    let reset = (!outcome.is_held()).then(|| outcome.reset_after());
    for (name, after) in [("reset", reset), ("banned", outcome.banned_for())] {
        if let Some(after) = after {
            write!(json, r#","{name}":{}"#, whole_seconds(now.saturating_add(after)))?;
        }
    }
    if let Some(unit) = unit {
        write!(json, r#","unit":"{unit}""#)?;
    }
    json.write_char('}')
}

impl LiveLayer {
    /// Returns a service that shows each client its remaining units, and takes nothing.
    ///
    /// It is for a route such as `GET /rate_limit`, outside of this layer.
    ///
    /// Requests are neither authenticated nor counted. So it shows only policies whose key is
    /// [unforgeable](field@crate::key::KeyInfo::unforgeable), by the connection or the server (addresses,
    /// [extensions](crate::key::extension), the route, or one key for all), and whose quota is not chosen by a
    /// [`tier`](Policy::tier) from the contents of the request. For others there is
    /// [`status_service_for`](Self::status_service_for).
    ///
    /// When policies are [replaced](Self::replace_policies), policies that it must not show are left out, and a warning
    /// with the code `status_left_out` names them.
    ///
    /// # Errors
    ///
    /// If an advertised policy must not be shown to all clients. The message names it and the remedies.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Quota, RateLimitLayer, key};
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let by_address = RateLimitLayer::composite(MemoryStore::new()).ip(Quota::per_minute(300)).live();
    /// let status = by_address.status_service()?;
    /// # let _ = status;
    ///
    /// // Any client could send another client's key.
    /// let by_header = key::header("x-api-key");
    /// let by_header = RateLimitLayer::composite(MemoryStore::new()).user(Quota::per_hour(50), by_header).live();
    /// assert!(by_header.status_service().is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn status_service(&self) -> Result<StatusService, Error> {
        let gate = self.layer.gate.load();
        if let Some(policy) = forgeable(&gate).next() {
            return Err(Error::invalid(format!(
                "the status of policy {:?} would be shown to anybody who sends another client's key or tier: set who \
                 may see it with status_service_for, use a key that the connection or the server proves, or make the \
                 policy unadvertised",
                policy.name()
            )));
        }
        self.layer.shows_all.store(true, Ordering::Relaxed);
        Ok(StatusService { gate: Arc::clone(&self.layer.gate), shows_to: None })
    }

    /// Returns a [status service](Self::status_service) that shows all advertised policies, but only to requests for
    /// which the closure returns `true`. Others get 403.
    ///
    /// A response shows the counters of the key that the request contains, and the quota of its tier. So the closure
    /// must return `true` only if that client sent the request, by the same authentication as for other requests.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Quota, RateLimitLayer, key};
    ///
    /// /// Put into the request's extensions by what checks the password.
    /// #[derive(Clone)]
    /// struct Authenticated;
    ///
    /// let limits = RateLimitLayer::composite(MemoryStore::new()).user(Quota::per_hour(5_000), key::basic_user()).live();
    /// let status = limits.status_service_for(|parts| parts.extensions.get::<Authenticated>().is_some());
    /// # let _ = status;
    /// ```
    pub fn status_service_for(&self, shows_to: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> StatusService {
        StatusService { gate: Arc::clone(&self.layer.gate), shows_to: Some(Arc::new(shows_to)) }
    }

    pub(super) fn warn_of_forgeable(&self) {
        let gate = self.layer.gate.load();
        let policies: Vec<&str> = forgeable(&gate).map(Policy::name).collect();
        if self.layer.shows_all.load(Ordering::Relaxed) && !policies.is_empty() {
            tracing::warn!(
                code = "status_left_out",
                ?policies,
                "status service leaves out policies with forgeable keys"
            );
        }
    }
}

fn forgeable(gate: &LayerState) -> impl Iterator<Item = &Policy> {
    gate.policies.iter().filter(|policy| policy.is_shown() && !policy.is_unforgeable())
}
