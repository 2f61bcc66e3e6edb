//! Reports of decisions, of slots, of flows, of shedding, of ratios and of the health of stores, for metrics and traces.
//!
//! Limiters, layers, shedders and stores report here, by types of this module's neighbours only; they do not depend on who
//! observes them. [`metrics`](crate::metrics) does, with the feature of that name. Without an observer a report costs a
//! branch, and no clock is read.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Check, Decision, Error, Mode, Outcome, PolicyName};

/// The reason for which a policy did not count a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skipped {
    /// The request lacks the key, or it could not be looked up.
    KeyMissing,
    /// The client is on the allow list.
    List,
    /// Its methods, routes or closure leave the request out, or it is a CORS preflight.
    Scope,
}

/// The reason for which there was no decision on a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Undecided {
    /// It lacks a key that it must have, or its client is on a deny list.
    Forbidden,
    /// Its key is ambiguous.
    Ambiguous,
    /// A key extractor rejected it.
    Rejected,
    /// No decision could be made.
    Unavailable,
}

/// Observes the decisions of a layer or limiter.
pub(crate) trait ObserveDecisions: fmt::Debug + Send + Sync {
    /// Returns the time of the clock by which decisions are timed, from any zero.
    fn now(&self) -> Duration;

    /// The store returned: a decision, or an error. It was called at `began`.
    fn decided(&self, began: Duration, decided: Result<&Decision, &Error>);

    /// A request was refused without a decision.
    fn undecided(&self, reason: Undecided);

    /// The key of a request is ambiguous for a policy, whatever becomes of the request.
    fn ambiguous(&self, policy: &PolicyName);

    /// Returns the observer of a policy's skips, which is kept with the policy: a request may be skipped by many.
    fn skips(&self, policy: &PolicyName) -> Arc<dyn ObserveSkips>;

    /// A key was banned, and not with a decision.
    fn banned(&self, policy: &PolicyName, mode: Mode);
}

/// Observes the requests that one policy does not count.
pub(crate) trait ObserveSkips: fmt::Debug + Send + Sync {
    /// The policy did not count a request.
    fn skipped(&self, reason: Skipped);
}

/// Observes the health of one store, or of one primary of a Cluster. Dropped with it.
pub(crate) trait ObserveStore: fmt::Debug + Send + Sync {
    /// It failed to make a decision.
    fn failed(&self, error: &Error);

    /// Its circuit breaker was closed, and has opened.
    fn opened(&self);

    /// Its circuit breaker has closed again.
    fn closed(&self);
}

/// Observes the slots that are held of one store. Dropped with them.
pub(crate) trait ObserveSlots: fmt::Debug + Send + Sync {
    /// Slots are held.
    fn taken(&self, slots: u64);

    /// They are held no longer.
    fn released(&self, slots: u64);

    /// They are held, and the store had lost them.
    fn lost(&self, slots: u64);
}

/// Observes the flows of a layer or limiter.
pub(crate) trait ObserveFlows: fmt::Debug + Send + Sync {
    /// The store decided about a portion.
    fn decided(&self, policy: &PolicyName, is_allowed: bool);

    /// A portion is over: some units of it have passed, and the others are refunded.
    fn closed(&self, policy: &PolicyName, passed: u64, refunded: u64);

    /// Somebody waited for units.
    fn waited(&self, policy: &PolicyName, time: Duration);

    /// A body was cut.
    fn cut(&self, policy: &PolicyName);
}

/// Observes a shedder. Dropped with it. Classes are given by their names.
pub(crate) trait ObserveShed: fmt::Debug + Send + Sync {
    /// A request of a class came.
    fn offered(&self, class: &'static str);

    /// It was shed.
    fn shed(&self, class: &'static str);

    /// The level of shedding after a sample of the utilization.
    fn level(&self, level: f64, utilization: f64);
}

/// Observes a ratio store. Dropped with it.
pub(crate) trait ObserveRatios: fmt::Debug + Send + Sync {
    /// A report of so many counters was made, and the tally replied or not.
    fn reported(&self, counters: usize, is_replied: bool);

    /// What is known after a report: how many processes reported in the last tick, 0 if that is unknown, and of each
    /// policy the highest drop ratio of its keys.
    fn known(&self, live: u64, highest: &HashMap<PolicyName, f64>);

    /// A policy dropped units by its ratio.
    fn dropped(&self, policy: &PolicyName, units: u64);
}

/// The observer of flows, if there is one. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowObserver(Option<Arc<dyn ObserveFlows>>);

impl FlowObserver {
    /// Reports to `observer`.
    #[cfg(feature = "metrics")]
    pub(crate) fn new(observer: impl ObserveFlows + 'static) -> Self {
        Self(Some(Arc::new(observer)))
    }

    /// See [`ObserveFlows::decided`]; for the policy of each check.
    pub(crate) fn decided(&self, checks: &[Check], is_allowed: bool) {
        if let Some(observer) = &self.0 {
            for check in checks {
                observer.decided(&check.counter.policy, is_allowed);
            }
        }
    }

    /// See [`ObserveFlows::closed`].
    pub(crate) fn closed(&self, policy: &PolicyName, passed: u64, refunded: u64) {
        if let Some(observer) = &self.0 {
            observer.closed(policy, passed, refunded);
        }
    }

    /// See [`ObserveFlows::waited`]; for the policy of each check.
    pub(crate) fn waited(&self, checks: &[Check], time: Duration) {
        if let Some(observer) = &self.0 {
            for check in checks {
                observer.waited(&check.counter.policy, time);
            }
        }
    }

    /// See [`ObserveFlows::cut`].
    pub(crate) fn cut(&self, policy: &PolicyName) {
        if let Some(observer) = &self.0 {
            observer.cut(policy);
        }
    }
}

/// The observer of a layer or limiter, if there is one. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecisionObserver(Option<Arc<dyn ObserveDecisions>>);

/// When a store was called, if it is observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer(Option<Duration>);

impl DecisionObserver {
    /// Reports to `observer`.
    #[cfg(feature = "metrics")]
    pub(crate) fn new(observer: impl ObserveDecisions + 'static) -> Self {
        Self(Some(Arc::new(observer)))
    }

    /// Starts the timer of a call.
    pub(crate) fn start(&self) -> Timer {
        Timer(self.0.as_ref().map(|observer| observer.now()))
    }

    /// See [`ObserveDecisions::decided`].
    pub(crate) fn decided(&self, timer: Timer, decided: Result<&Decision, &Error>) {
        if let (Some(observer), Timer(Some(began))) = (&self.0, timer) {
            observer.decided(began, decided);
        }
    }

    /// See [`ObserveDecisions::undecided`].
    pub(crate) fn undecided(&self, reason: Undecided) {
        if let Some(observer) = &self.0 {
            observer.undecided(reason);
        }
    }

    /// See [`ObserveDecisions::ambiguous`].
    pub(crate) fn ambiguous(&self, policy: &PolicyName) {
        if let Some(observer) = &self.0 {
            observer.ambiguous(policy);
        }
    }

    /// See [`ObserveDecisions::skips`].
    pub(crate) fn skips(&self, policy: &PolicyName) -> SkipObserver {
        SkipObserver(self.0.as_ref().map(|observer| observer.skips(policy)))
    }

    /// See [`ObserveDecisions::banned`].
    pub(crate) fn banned(&self, policy: &PolicyName, mode: Mode) {
        if let Some(observer) = &self.0 {
            observer.banned(policy, mode);
        }
    }
}

/// The observer of the skips of a policy, if there is one. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SkipObserver(Option<Arc<dyn ObserveSkips>>);

impl SkipObserver {
    /// See [`ObserveSkips::skipped`].
    pub(crate) fn skipped(&self, reason: Skipped) {
        if let Some(observer) = &self.0 {
            observer.skipped(reason);
        }
    }
}

/// The observer of a store, if there is one.
#[derive(Debug, Default)]
pub(crate) struct StoreObserver(Option<Box<dyn ObserveStore>>);

impl StoreObserver {
    /// Reports to `observer`.
    #[cfg(feature = "metrics")]
    pub(crate) fn new(observer: impl ObserveStore + 'static) -> Self {
        Self(Some(Box::new(observer)))
    }

    /// See [`ObserveStore::failed`].
    pub(crate) fn failed(&self, error: &Error) {
        if let Some(observer) = &self.0 {
            observer.failed(error);
        }
    }

    /// See [`ObserveStore::opened`].
    pub(crate) fn opened(&self) {
        if let Some(observer) = &self.0 {
            observer.opened();
        }
    }

    /// See [`ObserveStore::closed`].
    pub(crate) fn closed(&self) {
        if let Some(observer) = &self.0 {
            observer.closed();
        }
    }
}

/// The observer of slots, if there is one.
#[derive(Debug, Default)]
pub(crate) struct SlotObserver(Option<Box<dyn ObserveSlots>>);

impl SlotObserver {
    /// Reports to `observer`.
    #[cfg(feature = "metrics")]
    pub(crate) fn new(observer: impl ObserveSlots + 'static) -> Self {
        Self(Some(Box::new(observer)))
    }

    /// See [`ObserveSlots::taken`].
    pub(crate) fn taken(&self, slots: u64) {
        if let Some(observer) = &self.0 {
            observer.taken(slots);
        }
    }

    /// See [`ObserveSlots::released`].
    pub(crate) fn released(&self, slots: u64) {
        if let Some(observer) = self.0.as_ref().filter(|_| slots > 0) {
            observer.released(slots);
        }
    }

    /// See [`ObserveSlots::lost`].
    pub(crate) fn lost(&self, slots: u64) {
        if let Some(observer) = self.0.as_ref().filter(|_| slots > 0) {
            observer.lost(slots);
        }
    }
}

/// The observer of a shedder, if there is one.
#[derive(Debug, Default)]
pub(crate) struct ShedObserver(Option<Box<dyn ObserveShed>>);

impl ShedObserver {
    /// Reports to `observer`.
    #[cfg(feature = "metrics")]
    pub(crate) fn new(observer: impl ObserveShed + 'static) -> Self {
        Self(Some(Box::new(observer)))
    }

    /// See [`ObserveShed::offered`].
    pub(crate) fn offered(&self, class: &'static str) {
        if let Some(observer) = &self.0 {
            observer.offered(class);
        }
    }

    /// See [`ObserveShed::shed`].
    pub(crate) fn shed(&self, class: &'static str) {
        if let Some(observer) = &self.0 {
            observer.shed(class);
        }
    }

    /// See [`ObserveShed::level`].
    pub(crate) fn level(&self, level: f64, utilization: f64) {
        if let Some(observer) = &self.0 {
            observer.level(level, utilization);
        }
    }
}

/// The observer of a ratio store, if there is one.
#[derive(Debug, Default)]
pub(crate) struct RatioObserver(Option<Box<dyn ObserveRatios>>);

impl RatioObserver {
    /// Reports to `observer`.
    #[cfg(feature = "metrics")]
    pub(crate) fn new(observer: impl ObserveRatios + 'static) -> Self {
        Self(Some(Box::new(observer)))
    }

    /// See [`ObserveRatios::reported`].
    pub(crate) fn reported(&self, counters: usize, is_replied: bool) {
        if let Some(observer) = &self.0 {
            observer.reported(counters, is_replied);
        }
    }

    /// See [`ObserveRatios::known`]; what is known is only collected if it is observed.
    pub(crate) fn known(&self, collect: impl FnOnce() -> (u64, HashMap<PolicyName, f64>)) {
        if let Some(observer) = &self.0 {
            let (live, highest) = collect();
            observer.known(live, &highest);
        }
    }

    /// See [`ObserveRatios::dropped`]; for each outcome that a ratio refused, which are those whose wait is a guess.
    pub(crate) fn dropped(&self, checks: &[Check], outcomes: &[Outcome]) {
        let Some(observer) = &self.0 else { return };
        for (check, outcome) in checks.iter().zip(outcomes) {
            if !outcome.is_allowed() && outcome.retry_is_guess() {
                observer.dropped(&check.counter.policy, check.cost);
            }
        }
    }
}
