use std::fmt;

use tollgate::store::{Mode, StoreDecision};
use tollgate::{Decision, Error, LiveLayer, RateLimit, RateLimitLayer, Source};
use tower::Layer;

use super::body::OnLimit;
use super::service::{Bodies, LimitBodies};
use crate::flow::refuses_frames;

/// A [`Layer`] that limits the bytes of bodies by all policies of a [`RateLimitLayer`].
///
/// A unit of their quotas is a byte. The data of bodies counts, but neither heads nor trailers. The bytes of an
/// upgraded connection, such as a WebSocket, do not count: limit them by a [`Flow`](crate::Flow), whose accuracy this
/// layer has, too. All bodies of a key share their bytes. A body that is not read takes nothing, and a body that is
/// read buffers at most one frame.
///
/// The [`RateLimitLayer`] has the settings: where policies apply, how the client's address is determined, headers, and
/// the reaction to a failed store. While the store fails, requests and bodies fail with
/// [`OnFailure::Deny`](tollgate::OnFailure::Deny), and new bodies are not limited with
/// [`OnFailure::Allow`](tollgate::OnFailure::Allow). Handlers find no [`RateLimitHandle`](tollgate::RateLimitHandle) of
/// this layer, only the handle of an outer layer.
///
/// The body of a request gets another type: [`LimitedBody`](super::LimitedBody). If a layer wraps a request twice, it
/// counts the bytes twice.
#[derive(Clone)]
#[must_use]
pub struct BandwidthLayer {
    limits: LiveLayer,
    bodies: Bodies,
}

impl BandwidthLayer {
    /// Creates a layer that limits the bodies of responses.
    ///
    /// # Panics
    ///
    /// If the quota of a policy is a [concurrency](tollgate::Quota::concurrency) or a [leaky
    /// bucket](tollgate::Quota::leaky_bucket), or the policy has a cost or a [`count`](tollgate::Policy::count), is
    /// [`metered`](tollgate::Policy::metered), is [refunded if dropped](tollgate::Policy::refund_dropped), or has a
    /// [ban](tollgate::Policy::ban), because waiting bytes are no denials. Also if the store cannot refund units.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
    /// use tollgate_bandwidth::{BandwidthLayer, OnLimit};
    ///
    /// let day = Policy::new("day", Quota::token_bucket(5_000_000_000, std::time::Duration::from_secs(86_400)));
    /// let limits = RateLimitLayer::new(MemoryStore::new(), day.key(key::header("x-api-key")));
    /// let layer = BandwidthLayer::responses(limits, OnLimit::Abort);
    /// # let _ = layer;
    /// ```
    #[track_caller]
    pub fn responses(limits: RateLimitLayer, over: OnLimit) -> Self {
        built(Self::try_responses(limits, over))
    }

    /// Fallible version of [`responses`](Self::responses).
    ///
    /// # Errors
    ///
    /// If a policy cannot count bytes. The message names it.
    pub fn try_responses(limits: RateLimitLayer, over: OnLimit) -> Result<Self, Error> {
        Self::from_limits(limits, Bodies { are_of_requests: false, over })
    }

    /// Creates a layer that limits the bodies of requests.
    ///
    /// # Panics
    ///
    /// Like [`responses`](Self::responses).
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::{Router, routing::post};
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
    /// use tollgate_bandwidth::{BandwidthLayer, OnLimit};
    ///
    /// let uploads = Policy::new("uploads", Quota::per_second(200_000)).key(key::peer_ip());
    /// let limits = RateLimitLayer::new(MemoryStore::new(), uploads);
    /// let app: Router = Router::new()
    ///     .route("/", post(|body: String| async move { body.len().to_string() }))
    ///     .layer(BandwidthLayer::requests(limits, OnLimit::Throttle));
    /// # let _ = app;
    /// ```
    #[track_caller]
    pub fn requests(limits: RateLimitLayer, over: OnLimit) -> Self {
        built(Self::try_requests(limits, over))
    }

    /// Fallible version of [`requests`](Self::requests).
    ///
    /// # Errors
    ///
    /// If a policy cannot count bytes. The message names it.
    pub fn try_requests(limits: RateLimitLayer, over: OnLimit) -> Result<Self, Error> {
        Self::from_limits(limits, Bodies { are_of_requests: true, over })
    }

    fn from_limits(limits: RateLimitLayer, bodies: Bodies) -> Result<Self, Error> {
        let limits = limits.in_units(UNIT)?;
        let limits = if bodies.over == OnLimit::Abort { limits.deny_if(refuses)? } else { limits };
        Ok(Self { limits: limits.live(), bodies })
    }

    /// Returns the live handle of the limits, which shows and explains the remaining units, and replaces policies while
    /// bodies pass.
    ///
    /// New policies count bytes, too.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    /// use tollgate_bandwidth::{BandwidthLayer, OnLimit};
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let all = |bytes| Policy::new("all", Quota::per_second(bytes));
    /// let layer = BandwidthLayer::responses(RateLimitLayer::new(MemoryStore::new(), all(1_000_000)), OnLimit::Throttle);
    /// layer.limits().replace_policies([all(2_000_000)])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn limits(&self) -> &LiveLayer {
        &self.limits
    }
}

impl<S> Layer<S> for BandwidthLayer {
    type Service = RateLimit<LimitBodies<S>>;

    fn layer(&self, inner: S) -> Self::Service {
        self.limits.layer(LimitBodies::new(inner, self.bodies))
    }
}

impl fmt::Debug for BandwidthLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BandwidthLayer").field("limits", &self.limits).field("over", &self.bodies.over).finish()
    }
}

const UNIT: &str = "content-bytes";

fn refuses(looked: &StoreDecision) -> Option<Decision> {
    let StoreDecision { decision, receipt, .. } = looked;
    let mut refused = false;
    let outcomes = decision.outcomes().iter().enumerate().map(|(place, outcome)| {
        let floor = receipt.items().get(place).map_or(0, |taken| taken.floor);
        // A fallback decides by a share of each quota, and reports only the units left.
        let is_share = decision.source() == Source::Fallback;
        let free = if is_share { 1 } else { outcome.quota().capacity().saturating_sub(floor) };
        let refusal = refuses_frames(outcome, free).filter(|_| outcome.mode() == Mode::Enforce);
        refused |= refusal.is_some();
        refusal.unwrap_or_else(|| outcome.clone())
    });
    let decision = Decision::new(outcomes, decision.source());
    refused.then_some(decision)
}

#[track_caller]
fn built<T>(result: Result<T, Error>) -> T {
    match result {
        Ok(built) => built,
        Err(error) => panic!("{error:#}"),
    }
}
