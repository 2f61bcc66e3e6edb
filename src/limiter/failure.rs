//! What a limiter does if its store fails.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{Limiter, TIMER_RESOLUTION};
use crate::store::{BreakerState, FailureRules, OnFailure};

impl Limiter {
    /// Sets what happens to checks that the store could not decide. The default is a local fallback.
    ///
    /// The limiter of a [layer](crate::RateLimitLayer::limiter) has the settings of the layer. This method and the
    /// others that set what happens on failure detach it: from then on it has a circuit breaker of its own, and keeps
    /// the rules that the layer has at this moment, even if the layer replaces them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, OnFailure, Quota, Rule};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("mail", Quota::per_hour(100))])
    ///     .on_failure(OnFailure::Allow)
    ///     .allow_for(Duration::from_secs(10))
    ///     .instances(NonZeroU32::new(4).ok_or("at least one")?)
    ///     .budget(Duration::from_millis(50));
    /// # let _ = limiter;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_failure(self, rule: OnFailure) -> Self {
        self.change_failure(|rules| rules.on_failure = rule)
    }

    /// Sets for how long [`OnFailure::Allow`] admits everything in one outage, 60 s by default; after that the local
    /// fallback decides.
    ///
    /// See [`RateLimitLayer::allow_for`](crate::RateLimitLayer::allow_for).
    pub fn allow_for(self, time: Duration) -> Self {
        self.change_failure(|rules| rules.allow_for = time)
    }

    /// Sets how many processes share the limits, 1 by default: the fallback of each admits that share of every limit,
    /// rounded up.
    pub fn instances(self, instances: NonZeroU32) -> Self {
        self.change_failure(|rules| rules.instances = instances.get())
    }

    /// Sets the timeout of one decision, lookups included; 0 becomes 1 ms. The default is the
    /// [budget of the store](crate::store::Capabilities::budget), or 100 ms if it has none.
    ///
    /// The store keeps to its own budget if that is shorter: see
    /// [`RateLimitLayer::budget`](crate::RateLimitLayer::budget).
    pub fn budget(self, budget: Duration) -> Self {
        self.change_failure(|rules| rules.budget = Some(budget.max(TIMER_RESOLUTION)))
    }

    /// Returns the state of the circuit breaker in front of the store: see [`OnFailure`].
    pub fn breaker_state(&self) -> BreakerState {
        self.in_force.now().limits().store.breaker_state()
    }

    /// Returns a limiter over a copy of the limits in force, with other settings for failure.
    fn change_failure(self, change: impl FnOnce(&mut FailureRules)) -> Self {
        let mut limits = self.in_force.now().limits().clone();
        limits.change_failure(change);
        Self { only: self.only, ..Self::of(limits) }
    }
}
