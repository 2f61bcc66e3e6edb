//! The fleet shedder, which reserves a part of the slots of all processes for critical requests.
//!
//! It is a [`RateLimitLayer`] with two policies that one call decides: all requests in flight, and those that are not
//! critical. The reserve of a policy would not do, because it is a floor that the critical requests in flight raise:
//! the last slots would stay empty.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tollgate::body::{ResponseBody, ResponseFuture};
use tollgate::policy::PolicyName;
use tollgate::store::{BreakerState, Store};
use tollgate::{Error, Policy, Quota, RateLimit, RateLimitHeaders, RateLimitLayer, key};
use tower::{Layer, Service};

use crate::built;
use crate::shedder::{Class, Shedder};

pub(crate) const OTHERS: &str = ".others";

const ANY: u64 = 1_000_000;

const MAX_NAME: usize = 64 - OTHERS.len();

/// Least `Retry-After`, to which up to twice as much is added, because slots are freed at any time.
const WAIT: Duration = Duration::from_secs(1);

/// A [`Layer`] that sheds non-critical requests when the fleet has too many requests in flight.
///
/// All processes that share the store and the name share the slots of the quota. A part of the slots is reserved for
/// [critical](Class::Critical) requests. Other requests are shed while they hold all other slots, or while all slots
/// are taken. Critical requests take slots, but are never shed, not even beyond the quota.
///
/// | in flight | a critical request | another request |
/// | --- | --- | --- |
/// | fewer than the quota, and others hold less than their part | is served | is served |
/// | fewer than the quota, but others hold their part | is served | is shed |
/// | the quota or more | is served | is shed |
///
/// A request holds its slot until its response body has ended or is dropped, like with any [`Quota::concurrency`]. A
/// [`RateLimitHandle`](tollgate::RateLimitHandle) can hold it longer.
///
/// While the store is unavailable, each process sheds by its share of the slots: their number divided by
/// [`instances`](Self::instances), rounded up.
///
/// If this layer is the innermost, handlers read its [`Decision`](tollgate::Decision). Put it outside of the layer that
/// limits users, so that handlers read the decision of that layer.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate_shed::{Class, FleetShedLayer};
/// use tollgate::{MemoryStore, Quota};
///
/// // With a `RedisStore`, all processes together serve 400 requests at once that are not critical.
/// let layer = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(500), 0.2)
///     .classify(|parts| if parts.uri.path() == "/charges" { Class::Critical } else { Class::from_parts(parts) });
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
/// # let _ = app;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct FleetShedLayer {
    limits: RateLimitLayer,
    shedder: Arc<Shedder>,
}

impl FleetShedLayer {
    /// Creates a shedder for as many requests in flight as `quota` has slots, in all processes together. The fraction
    /// `reserve` of the slots, rounded up, is for critical requests only.
    ///
    /// # Panics
    ///
    /// If [`try_new`](Self::try_new) returns an error.
    #[track_caller]
    pub fn new(store: impl Store, name: &str, quota: Quota, reserve: f64) -> Self {
        built(Self::try_new(store, name, quota, reserve))
    }

    /// Fallible version of [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// If the quota is not a [`Quota::concurrency`], the reserve is not a fraction above 0 and below 1 or leaves no
    /// slot for other requests, the name is no valid policy name or has more than 57 characters, or the store has no
    /// slots.
    pub fn try_new(store: impl Store, name: &str, quota: Quota, reserve: f64) -> Result<Self, Error> {
        let Some(hold) = quota.longest_hold() else {
            let message = format!("a fleet shedder counts requests at once, not {quota}: use Quota::concurrency(...)");
            return Err(Error::invalid(message));
        };
        let slots = |limit| Quota::try_concurrency(limit)?.try_slot_ttl(quota.window())?.try_max_hold(hold);
        let shedder = Shedder::new(fleet_name(name)?);
        let name = &shedder.name;
        let (any, others) = (slots(ANY)?, slots(not_reserved(quota, reserve)?)?);
        // Limits do not identify a counter, so critical requests, whose tier never denies, are counted in the same
        // counter as all others.
        let is_critical = |parts: &Parts| Class::from_parts(parts) == Class::Critical;
        let of_all = Policy::try_new(name.as_str(), quota)?.tier(move |parts| is_critical(parts).then_some(any));
        let of_others = Policy::try_new(&format!("{name}{OTHERS}"), others)?.when(move |parts| !is_critical(parts));
        let policies = [of_all, of_others].map(|policy| policy.key(key::global()).unadvertised());
        let limits = RateLimitLayer::composite(store).headers(RateLimitHeaders::none()).try_policies(policies)?;
        Ok(Self::from_limits(limits, shedder))
    }

    /// Sets how the class of requests is determined, instead of by [`Class::from_parts`]. It is called once for each request.
    pub fn classify(self, class: impl Fn(&Parts) -> Class + Send + Sync + 'static) -> Self {
        let mut shedder = self.shedder.anew();
        shedder.class = Arc::new(class);
        Self::from_limits(self.limits, shedder)
    }

    /// Sets how many processes share the slots, instead of 1: without the store, each sheds above its share of them.
    pub fn instances(self, instances: NonZeroU32) -> Self {
        Self { limits: self.limits.instances(instances), ..self }
    }

    /// Sets the timeout of one decision, like the timeout of a [layer](RateLimitLayer::timeout).
    pub fn timeout(self, budget: Duration) -> Self {
        Self { limits: self.limits.timeout(budget), ..self }
    }

    /// Sets how much of the body of a shed request is read, like [`RateLimitLayer::drain_denied`].
    pub fn drain_denied(self, max_bytes: u64, time: Duration) -> Self {
        Self { limits: self.limits.drain_denied(max_bytes, time), ..self }
    }

    /// Returns the state of the circuit breaker in front of the store.
    pub fn breaker_state(&self) -> BreakerState {
        self.limits.clone().live().breaker_state()
    }

    fn from_limits(limits: RateLimitLayer, shedder: Shedder) -> Self {
        let shedder = Arc::new(shedder);
        let shedding = Arc::clone(&shedder);
        let limits =
            limits.on_denied_any(move |parts, denial| denial.decision().map(|_| shedding.shed(parts, WAIT, 2 * WAIT)));
        Self { limits, shedder }
    }
}

pub(crate) fn fleet_name(name: &str) -> Result<PolicyName, Error> {
    if name.len() > MAX_NAME {
        let length = name.chars().count();
        return Err(Error::invalid(format!(
            "shedder name {name:?} has {length} characters: at most {MAX_NAME} are allowed"
        )));
    }
    PolicyName::try_from(name)
}

pub(crate) fn not_reserved(quota: Quota, reserve: f64) -> Result<u64, Error> {
    if !(reserve > 0.0 && reserve < 1.0) {
        return Err(Error::invalid(format!("reserve {reserve} is not allowed: use a fraction above 0 and below 1")));
    }
    // In millionths, because 0.07 of 100 is a little more than 7 in binary.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and 999,999")]
    let millionths = ((reserve * 1e6).round() as u64).clamp(1, 999_999);
    let limit = quota.limit();
    let others = limit - (limit * millionths).div_ceil(1_000_000);
    if others > 0 {
        return Ok(others);
    }
    Err(Error::invalid(format!(
        "reserve {reserve} of {limit} leaves nothing for requests that are not critical: use a larger limit or a \
         smaller reserve"
    )))
}

impl<S> Layer<S> for FleetShedLayer {
    type Service = FleetShed<S>;

    fn layer(&self, inner: S) -> FleetShed<S> {
        FleetShed { inner: self.limits.layer(inner), shedder: Arc::clone(&self.shedder) }
    }
}

/// A [`Service`] that sheds non-critical requests, created by a [`FleetShedLayer`].
///
/// A shed request gets a response of this crate, and the inner service is not called. Only the inner service returns
/// errors.
#[derive(Clone, Debug)]
#[must_use = "services do nothing unless called"]
pub struct FleetShed<S> {
    inner: RateLimit<S>,
    shedder: Arc<Shedder>,
}

impl<S> FleetShed<S> {
    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        self.inner.get_ref()
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        self.inner.get_mut()
    }

    /// Returns the inner service, which sheds nothing.
    pub fn into_inner(self) -> S {
        self.inner.into_inner()
    }
}

impl<S, B, R> Service<Request<B>> for FleetShed<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    B: Body + Send + 'static,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        self.shedder.offered(&mut parts);
        self.inner.call(Request::from_parts(parts, body))
    }
}
