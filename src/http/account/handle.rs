//! What the one who serves a request can do about its limits.

use std::fmt;
use std::iter::{self, successors};
use std::sync::Arc;

use bytes::Bytes;
use http::Response;

use super::Shared;
use crate::metrics::Timer;
use crate::store::{Check, Counter, Deadline};
use crate::{Decision, Error, Key, Policy, Store};

/// What a request really cost, put into the extensions of its response.
///
/// It settles the [`metered`](Policy::metered) policies: the difference to what they took, and to what the
/// [handle](Handle) charged and refunded, is charged or refunded. A charge may go past the limit by one more
/// capacity at most. A response that does not [count](Policy::count) costs nothing, whatever it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealCost(pub u64);

/// A handle on the limits of the request being served, from its extensions.
///
/// It can be cloned, and used after the response's head was sent: while a body is streamed, say.
///
/// Where layers are nested it is the innermost one's, and [`outer`](Self::outer) leads to the others.
///
/// # Examples
///
/// ```
/// use tollgate::{Handle, Key, Policy, Quota};
///
/// async fn login(limits: Handle, account: &str) -> Result<(), Box<dyn std::error::Error>> {
///     let policy = Policy::new("account", Quota::per_hour(10));
///     let decision = limits.check(&policy, Key::hashed("account", account)).await?;
///     if !decision.is_allowed() {
///         let _answer = limits.refusal(&decision);
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    outer: Option<Arc<Handle>>,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, outer: None }
    }

    /// The handle, inside of a layer that has this one.
    pub(crate) fn inside(self, outer: Handle) -> Self {
        Self { outer: Some(Arc::new(outer)), ..self }
    }

    /// The handle of the next layer outside of this one, if layers are nested: each has its own.
    #[must_use]
    pub fn outer(&self) -> Option<&Handle> {
        self.outer.as_deref()
    }

    /// What this layer and all outer ones have in common with their handles, innermost first.
    fn layers(&self) -> impl Iterator<Item = &Arc<Shared>> {
        successors(Some(self), |handle| handle.outer()).map(|handle| &handle.shared)
    }

    /// Charges units to every [`metered`](Policy::metered) policy of the request, past the limit by
    /// one more capacity at most. Never blocks.
    ///
    /// Policies of outer layers are charged as well.
    ///
    /// The charge is sent at once, or, while an earlier one is on its way, after that. What the store does
    /// not take is not owed.
    pub fn charge(&self, units: u64) {
        self.layers().for_each(|layer| layer.charge(units));
    }

    /// Gives units back to every [`metered`](Policy::metered) policy, also of outer layers, never more than
    /// were taken or charged. Never blocks.
    ///
    /// They go back with the response, and at once after that.
    pub fn refund(&self, units: u64) {
        self.layers().for_each(|layer| layer.refund(units));
    }

    /// Asks one more policy, by a key that is known only now, and takes its fixed cost if it fits. The store
    /// is that of this handle's layer.
    ///
    /// What was taken is settled with the request, as the policy's [`count`](Policy::count) says,
    /// and shown in its headers, if it is one of the first 64 checks of the request and was made before the
    /// response. What later ones take is settled with an earlier check of the same key, if there is one; else
    /// it changes only by [`charge`](Self::charge) and [`refund`](Self::refund). Only the quota, the cost,
    /// `count`, `metered` and `refund_dropped` of the policy have a meaning here.
    ///
    /// # Errors
    ///
    /// If no decision could be made, or the store does not [support](Store::supports) the policy.
    ///
    /// # Cancellation
    ///
    /// Units of a decision that is not waited for stay taken.
    pub async fn check(&self, policy: &Policy, key: Key) -> Result<Decision, Error> {
        let (rule, limits) = (policy.rule(), &self.shared.gate.limits);
        limits.supports(iter::once(rule))?;
        let counter = Counter { policy: rule.name().clone(), key, quota: *rule.quota() };
        let check = Check { settles: rule.settles(), ..Check::new(counter, rule.units()) };
        let timer = Timer::start();
        let decided = limits.store.decide(&[check], Deadline::none()).wait().await;
        limits.decisions.decided(timer, &decided, [rule.refusals()]);
        Ok(self.shared.add(policy, decided?))
    }

    /// The response that tells a client of a refusal, as the layer would.
    pub fn refusal(&self, decision: &Decision) -> Response<Bytes> {
        self.shared.gate.responses.refusal(decision)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}
