//! Warns of limits that limit nothing: each cause once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What was warned of the limits of one layer or limiter, or is meant.
#[derive(Debug, Default)]
pub(crate) struct Warned {
    no_rules: AtomicBool,
    slots: AtomicBool,
    unmetered: AtomicBool,
    twice: AtomicBool,
}

impl Warned {
    /// Returns the warnings of another layer with the same limits.
    pub(crate) fn renewed(&self) -> Self {
        Self { no_rules: AtomicBool::new(self.no_rules.load(Relaxed)), ..Self::default() }
    }

    /// It is meant that there are no rules.
    pub(crate) fn no_rules_is_meant(&self) {
        self.no_rules.store(true, Relaxed);
    }

    #[cold]
    pub(crate) fn no_rules(&self) {
        if is_first(&self.no_rules) {
            tracing::warn!(
                code = "TG006",
                "there is no policy, so nothing is limited but what handlers check: add a policy to the layer, a rule to \
                 the limiter, or a [[policy]] to the file; if that is meant, call remove_policies on the live layer, or write \
                 policy = [] in the file"
            );
        }
    }

    /// A request has a real cost, and no policy is metered.
    #[cold]
    pub(crate) fn unmetered(&self) {
        if is_first(&self.unmetered) {
            tracing::warn!(
                code = "TG007",
                "a response has an ActualCost, or a RateLimitHandle charged or refunded units, and no policy of the layer is metered, \
                 so nothing is charged for it: call metered() on the policy that is to charge it, in a file set \
                 metered = true"
            );
        }
    }

    #[cold]
    pub(crate) fn twice(&self) {
        if is_first(&self.twice) {
            tracing::warn!(
                code = "TG010",
                "a layer is twice around a request, as on a route and around its router: it counts the request once, where \
                 it is outermost; take one of both away, or give each a layer of its own"
            );
        }
    }

    /// A check took slots, which it releases at once.
    #[cold]
    pub(super) fn slots(&self) {
        if is_first(&self.slots) {
            tracing::warn!(
                code = "TG008",
                "a check took slots of a concurrency, which are released before it returns, so they limit nothing: call \
                 Limiter::acquire or until_ready, and keep the guard for as long as the work takes; to look, call peek"
            );
        }
    }
}

pub(crate) fn is_first(warned: &AtomicBool) -> bool {
    !warned.load(Relaxed) && !warned.swap(true, Relaxed)
}
