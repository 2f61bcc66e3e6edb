//! Handles on the limits of a request, for the service.
//!
//! A handler takes its handle from the extensions of the request. It charges, refunds or checks by facts that are known
//! only now, such as the size of a result, or the account of a login. All these changes are part of the request's
//! account, so the headers of the response show them.
//!
//! A request carries only the handle, a pointer, into the service. Its data is made on demand.

#[cfg(feature = "axum")]
use std::convert::Infallible;
use std::fmt;
use std::iter::{self, successors};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[cfg(feature = "axum")]
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use bytes::Bytes;
use http::Response;
#[cfg(feature = "axum")]
use http::StatusCode;
#[cfg(feature = "axum")]
use http::request::Parts;
use smallvec::SmallVec;

use super::Shared;
use super::debts::Debt;
use crate::core::{Decision, Error, Key, Source};
use crate::http::gate::SharedGate;
use crate::http::policy::{DeniedMark, Policy};
use crate::limiter::{CheckDraft, Counters};
use crate::store::{Ask, SlotGuard, Store, StoreDecision};

/// The real cost of a request in units, for the extensions of its response.
///
/// It sets the cost for all [`metered`](Policy::metered) policies, of outer layers too, whatever the
/// [handle](RateLimitHandle) charged and refunded. The layer charges or refunds the difference to the units that the
/// request has taken. A charge may exceed the limit by one capacity at most. 0 refunds everything. A response that does
/// not [count](Policy::count) costs nothing, whatever its real cost.
///
/// # Examples
///
/// ```
/// use http::Response;
/// use tollgate::response::ActualCost;
///
/// fn found(rows: Vec<String>) -> Response<String> {
///     let cost = ActualCost(rows.len() as u64);
///     let mut response = Response::new(rows.join("\n"));
///     response.extensions_mut().insert(cost);
///     response
/// }
///
/// let response = found(vec!["a".into(), "b".into()]);
/// assert_eq!(response.extensions().get(), Some(&ActualCost(2)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActualCost(pub u64);

/// Handle on the limits of the current request, from the request's extensions.
///
/// It can be cloned, and used after the head of the response was sent, for example while a body is streamed.
///
/// If layers are nested, it is the handle of the innermost layer, and [`outer`](Self::outer) returns the next one.
///
/// Charges, refunds and checks are settled with the request. The headers of the response show them if they happened
/// before the response. If a settlement fails, the failure is logged, and the settlement is neither repeated nor
/// refunded.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use axum::body::Body;
/// use axum::http::StatusCode;
/// use axum::response::{IntoResponse, Response};
/// use axum::routing::post;
/// use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer};
///
/// async fn login(limits: RateLimitHandle, account: String) -> Result<Response, StatusCode> {
///     let policy = Policy::new("account", Quota::per_hour(10));
///     let decision = limits.check(&policy, &Key::hashed("account", &account)).await;
///     let decision = decision.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
///     if !decision.is_allowed() {
///         // The response that the layer would send.
///         return Ok(limits.denial(&decision).map(Body::from));
///     }
///     Ok("welcome".into_response())
/// }
///
/// let layer = RateLimitLayer::composite(MemoryStore::new()).ip(Quota::per_minute(300));
/// let app: Router = Router::new().route("/login", post(login)).layer(layer);
/// # let _ = app;
/// ```
#[derive(Clone)]
pub struct RateLimitHandle {
    shared: Arc<Shared>,
    outer: Option<Arc<RateLimitHandle>>,
}

impl RateLimitHandle {
    pub(super) fn new(shared: Arc<Shared>, outer: Option<RateLimitHandle>) -> Self {
        Self { shared, outer: outer.map(Arc::new) }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.shared.decision.outcomes().iter().any(|outcome| !outcome.is_hidden())
    }

    /// Returns the decision of an outer clone of this layer, once, and only before the response. Further requests are
    /// counted.
    pub(crate) fn let_in(&self, layer: &SharedGate) -> Option<&Decision> {
        let outside = self.layers().find(|admitted| admitted.gate.limits.are_of(layer))?;
        let is_first = !outside.debts().is_ended && !outside.has_let_in.swap(true, Ordering::Relaxed);
        is_first.then_some(&outside.decision)
    }

    pub(super) fn note_inner(&self) {
        self.shared.is_nested.store(true, Ordering::Relaxed);
    }

    /// Returns the decision that allowed the request, with the decisions of outer layers [behind](Decision::outer) it.
    ///
    /// It does not change: later charges, refunds and checks are not in it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitHandle;
    ///
    /// fn left(limits: &RateLimitHandle) -> Option<u64> {
    ///     limits.decision().binding().map(|outcome| outcome.remaining())
    /// }
    /// # let _ = left;
    /// ```
    pub fn decision(&self) -> Decision {
        let own = self.shared.decision.clone();
        match &self.outer {
            Some(outer) => own.inside(outer.decision()),
            None => own,
        }
    }

    /// Returns the handle of the next outer layer. `None` for the outermost one.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitHandle;
    ///
    /// /// The handle of the outermost layer.
    /// fn outermost(mut limits: &RateLimitHandle) -> &RateLimitHandle {
    ///     while let Some(outer) = limits.outer() {
    ///         limits = outer;
    ///     }
    ///     limits
    /// }
    /// # let _ = outermost;
    /// ```
    #[must_use]
    pub fn outer(&self) -> Option<&RateLimitHandle> {
        self.outer.as_deref()
    }

    fn layers(&self) -> impl Iterator<Item = &Arc<Shared>> {
        successors(Some(self), |handle| handle.outer()).map(|handle| &handle.shared)
    }

    /// Charges units to every [`metered`](Policy::metered) policy of the request, also of outer layers. Never blocks.
    ///
    /// It changes what the request owes, and sends nothing: the change is settled with the response, or later by
    /// [`flush`](Self::flush). Call `flush` in a long stream as often as other requests should see the charges. A
    /// charge may exceed the limit by one capacity at most. Units that the store does not take are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitHandle;
    ///
    /// /// One unit for each row of a result.
    /// fn on_rows(limits: &RateLimitHandle, rows: u64) {
    ///     limits.charge(rows);
    /// }
    /// # let _ = on_rows;
    /// ```
    pub fn charge(&self, units: u64) {
        self.meter(|debt| debt.charge(units));
    }

    /// Refunds units to every [`metered`](Policy::metered) policy of the request, also of outer layers. Never blocks.
    ///
    /// No more is refunded than was taken and charged. As with [`charge`](Self::charge), the change is settled with the
    /// response, or later by [`flush`](Self::flush). Call `flush` in a long stream as often as other requests should
    /// see the refunds.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitHandle;
    ///
    /// /// A result that was cached costs only one unit of the ten that the policy took.
    /// fn on_cached(limits: &RateLimitHandle) {
    ///     limits.refund(9);
    /// }
    /// # let _ = on_cached;
    /// ```
    pub fn refund(&self, units: u64) {
        self.meter(|debt| debt.refund(units));
    }

    fn meter(&self, change: impl Fn(&mut Debt)) {
        let mut is_metered = false;
        for layer in self.layers() {
            is_metered |= layer.meter(&change);
        }
        let gate = &self.shared.gate;
        if !is_metered && !gate.policies.is_empty() {
            gate.limits.warned.unmetered();
        }
    }

    /// Settles all charges and refunds since the last settlement, of outer layers too, and waits for the store.
    ///
    /// Requests are settled with their response, and later changes when the last handle is dropped. Call this in a long
    /// stream as often as other requests should see the units that the stream uses. Without changes it does nothing.
    /// One settlement of a request is in flight at a time, and the next one sends what changed in between.
    ///
    /// # Errors
    ///
    /// If the result of the settlement is not known. The settlement is not sent again, and units that it perhaps
    /// charged are neither charged again nor refunded later.
    ///
    /// # Cancellation
    ///
    /// Charges and refunds before the first poll are settled, even if the future is dropped after that poll.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitHandle;
    ///
    /// /// One unit for each chunk that is streamed, settled with every hundredth.
    /// async fn on_chunk(limits: &RateLimitHandle, number: u64) -> Result<(), tollgate::Error> {
    ///     limits.charge(1);
    ///     if number % 100 == 0 {
    ///         limits.flush().await?;
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = on_chunk;
    /// ```
    pub async fn flush(&self) -> Result<(), Error> {
        let layers: SmallVec<[_; 1]> = self.layers().map(Shared::flush).collect();
        let mut flushed = Ok(());
        for settled in layers {
            flushed = flushed.and(settled.wait().await);
        }
        flushed
    }

    /// Checks one more policy, by a key that is known only now, and takes its fixed cost if the policy allows it.
    ///
    /// The check uses the store of this handle's layer. Do not name policies after what clients send: each name has its
    /// own metrics. Only these parts of the policy matter here: its name, quota, cost, [`count`](Policy::count),
    /// [`metered`](Policy::metered), [`refund_dropped`](Policy::refund_dropped),
    /// [`unadvertised`](Policy::unadvertised), [`shadow`](Policy::shadow), [`ban`](Policy::ban) and
    /// [`ban_failures`](Policy::ban_failures). A ban by failures counts the response of this request, for the first 64
    /// checks before the response. Ban only keys that no client can choose for another client. A cost above what the
    /// quota holds is always denied, without a [`retry_after`](Decision::retry_after).
    ///
    /// The units of the first 64 checks before the response are settled with the request, and are in the headers. The
    /// units of later checks are settled with an earlier check of the same key, if there is one. Otherwise only
    /// [`charge`](Self::charge) and [`refund`](Self::refund) change them.
    ///
    /// # Errors
    ///
    /// If the policy has a [key](Policy::key) of another kind. If no decision could be made, or the store does not
    /// [support](Store::capabilities) the policy.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the units that the store has taken, or takes later, stay taken. Slots are released.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Error, Key, Policy, Quota, RateLimitHandle};
    ///
    /// /// How long a user has to wait before the next export, or `None` if it is now.
    /// async fn wait_of(limits: &RateLimitHandle, user: &str) -> Result<Option<Duration>, Error> {
    ///     let policy = Policy::new("export", Quota::per_hour(4)).cost(2);
    ///     Ok(limits.check(&policy, &Key::new("user", user)).await?.retry_after())
    /// }
    /// # let _ = wait_of;
    /// ```
    pub async fn check(&self, policy: &Policy, key: &Key) -> Result<Decision, Error> {
        let (rule, limits) = (policy.rule(), &self.shared.gate.limits);
        policy.check_kind(key)?;
        limits.supports(iter::once(rule))?;
        let check = CheckDraft::new(0, rule, rule.units()).check(rule, key.clone());
        let Some(check) = limits.overridden(check) else { return Ok(Decision::new([], Source::Override)) };
        let timer = limits.telemetry.start();
        let mut decided = limits.store.decide(&[check], Ask::default()).wait().await;
        if let Ok(decided) = &mut decided
            && !policy.is_shown()
        {
            decided.decision = decided.decision.hidden();
        }
        let decision = decided.as_ref().map(|decided| &decided.decision);
        limits.telemetry.decided(timer, decision);
        if let Ok(decision) = decision {
            self.shared.gate.events.checked(&limits.telemetry, decision);
        }
        let StoreDecision { decision, receipt } = decided?;
        let slots = SlotGuard::new(limits.store.hold(&receipt));
        let mut debts = self.shared.debts();
        debts.add(self.shared.decision.outcomes().len(), policy, &decision, &receipt);
        let late = debts.hold(slots);
        drop(debts);
        // Dropped without the lock, because this releases slots.
        drop(late);
        Ok(decision)
    }

    /// Returns a guard that holds the slots of the request, of outer layers too, until it is dropped.
    ///
    /// Without it they are released when the body of the response has ended. An upgraded connection continues after
    /// that: move the guard into its task. The guard is empty if nothing was taken of a
    /// [concurrency](crate::Quota::concurrency), or if the request has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitHandle;
    ///
    /// async fn upgrade(limits: RateLimitHandle, connection: impl Future<Output = ()> + Send + 'static) {
    ///     let slots = limits.slots();
    ///     tokio::spawn(async move {
    ///         let _slots = slots;
    ///         connection.await;
    ///     });
    /// }
    /// # let _ = |limits| upgrade(limits, std::future::ready(()));
    /// ```
    pub fn slots(&self) -> SlotGuard {
        let mut all = SlotGuard::default();
        self.layers().for_each(|layer| all.add(layer.debts().held()));
        all
    }

    /// Returns the counters of the request in a layer that counts [in units](crate::RateLimitLayer::in_units), to take
    /// units of them.
    ///
    /// `None` if no policy of the layer applies to the request, or the layer counts requests. The counters belong to
    /// this layer alone, and may be kept for longer than the request.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Error, RateLimitHandle};
    ///
    /// /// Whether so many rows may be read.
    /// async fn may_read(limits: &RateLimitHandle, rows: u64) -> Result<bool, Error> {
    ///     let Some(counters) = limits.counters() else { return Ok(true) };
    ///     let (decision, permit) = counters.permit(rows).await?;
    ///     drop(permit.spend());
    ///     Ok(decision.is_allowed())
    /// }
    /// # let _ = may_read;
    /// ```
    pub fn counters(&self) -> Option<Counters> {
        let gate = &self.shared.gate;
        let looks: SmallVec<[_; 2]> = self.shared.debts().each.iter().map(Debt::look).collect();
        (gate.unit.is_some() && !looks.is_empty()).then(|| Counters::new(&gate.limits, looks))
    }

    /// Returns the response to a denied request: 429 with a problem document and the headers of the limits.
    ///
    /// It is the same for gRPC calls, and has a body for HEAD requests, too. An axum handler returns it with
    /// `.map(Body::from)`.
    ///
    /// [`on_denied`](crate::RateLimitLayer::on_denied) is not used here, because it needs the head of the request. The
    /// response is no [failure](crate::policy::Count::failures) of the client.
    pub fn denial(&self, decision: &Decision) -> Response<Bytes> {
        let mut response = self.shared.gate.responses.refusal(decision);
        response.extensions_mut().insert(DeniedMark::ByHandler);
        response
    }
}

#[cfg(feature = "axum")]
const NO_HANDLE: &str = "this route is in no RateLimitLayer, or in one that is without_handle";

/// Rejects a request that no layer allowed with a 500, whose body says so.
#[cfg(feature = "axum")]
impl<S: Send + Sync> FromRequestParts<S> for RateLimitHandle {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Self>().cloned().ok_or((StatusCode::INTERNAL_SERVER_ERROR, NO_HANDLE))
    }
}

/// `None` if no layer allowed the request, or the layer is [without a handle](crate::RateLimitLayer::without_handle).
#[cfg(feature = "axum")]
impl<S: Send + Sync> OptionalFromRequestParts<S> for RateLimitHandle {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

/// Decision of the request's [`RateLimitHandle`].
#[cfg(feature = "axum")]
impl<S: Send + Sync> FromRequestParts<S> for Decision {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let handle = <RateLimitHandle as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        Ok(handle.decision())
    }
}

impl fmt::Debug for RateLimitHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitHandle").finish_non_exhaustive()
    }
}
