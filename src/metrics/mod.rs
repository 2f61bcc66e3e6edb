//! Metrics for operators, through the `metrics` crate: decisions, refusals, slots, flows, shedding, ratios,
//! and the health of stores.
//!
//! Limiters, layers, shedders and stores get their [observers](crate::core::observer) here and report to them; series
//! go out to the recorder that the program installed. docs/metrics.md lists them, with what to alert on.
//!
//! Labels are names of policies and words of this crate, never anything of a request, so clients cannot make the number
//! of series grow. Handles are registered with the first decision and kept, as looking one up costs more than counting.
//!
//! Without the feature `metrics` there are no observers.

#[cfg(feature = "metrics")]
mod by_policy;
#[cfg(feature = "metrics")]
mod decisions;
#[cfg(feature = "metrics")]
mod flows;
#[cfg(feature = "metrics")]
mod health;
#[cfg(feature = "metrics")]
mod names;
#[cfg(feature = "metrics")]
mod ratios;
#[cfg(feature = "metrics")]
mod refusals;
#[cfg(feature = "metrics")]
mod shed;
#[cfg(feature = "metrics")]
mod slots;

use crate::core::PolicyName;
use crate::core::observer::{DecisionObserver, FlowObserver, RatioObserver, ShedObserver, SlotObserver, StoreObserver};

/// Returns the observer of a layer or limiter.
pub(crate) fn of_decisions() -> DecisionObserver {
    #[cfg(feature = "metrics")]
    let observer = DecisionObserver::new(decisions::Decisions::new());
    #[cfg(not(feature = "metrics"))]
    let observer = DecisionObserver::default();
    observer
}

/// Returns the observer of a store.
pub(crate) fn of_store() -> StoreObserver {
    #[cfg(feature = "metrics")]
    let observer = StoreObserver::new(health::StoreHealth::default());
    #[cfg(not(feature = "metrics"))]
    let observer = StoreObserver::default();
    observer
}

/// Returns the observer of the slots that are held of a store.
pub(crate) fn of_slots() -> SlotObserver {
    #[cfg(feature = "metrics")]
    let observer = SlotObserver::new(slots::Slots::default());
    #[cfg(not(feature = "metrics"))]
    let observer = SlotObserver::default();
    observer
}

/// Returns the observer of the flows of a layer or limiter.
pub(crate) fn of_flows() -> FlowObserver {
    #[cfg(feature = "metrics")]
    let observer = FlowObserver::new(flows::Flows::default());
    #[cfg(not(feature = "metrics"))]
    let observer = FlowObserver::default();
    observer
}

/// Returns the observer of a shedder.
#[cfg_attr(not(feature = "metrics"), allow(unused_variables, reason = "it has no labels then"))]
pub(crate) fn of_shed(name: &PolicyName) -> ShedObserver {
    #[cfg(feature = "metrics")]
    let observer = ShedObserver::new(shed::Shedding::new(name));
    #[cfg(not(feature = "metrics"))]
    let observer = ShedObserver::default();
    observer
}

/// Returns the observer of a ratio store.
pub(crate) fn of_ratios() -> RatioObserver {
    #[cfg(feature = "metrics")]
    let observer = RatioObserver::new(ratios::Ratios::default());
    #[cfg(not(feature = "metrics"))]
    let observer = RatioObserver::default();
    observer
}
