//! What a layer, a limiter or a store reports.

#[cfg(feature = "metrics")]
use tokio::time::Instant;

#[cfg(feature = "metrics")]
use super::series::{PolicySeries, Series};
use crate::core::{Decision, Error, Mode, PolicyName};

/// What a layer, a limiter or a store reports. Dropped with it.
///
/// Several add up in one gauge, so what this one added is subtracted when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    #[cfg(feature = "metrics")]
    series: Series,
}

/// When a store was called, if decisions are timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    #[cfg(feature = "metrics")]
    began: Instant,
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

/// Decisions. Every request counts once: by the source and the verdict of its decision, or, if there was none, under the
/// source `none` by the reason. Only decisions are timed, from the call of the store.
impl Telemetry {
    #[allow(clippy::unused_self, reason = "the timer is for a decision of this layer or limiter")]
    pub(crate) fn start(&self) -> Timer {
        Timer {
            #[cfg(feature = "metrics")]
            began: Instant::now(),
        }
    }

    /// The store returned. A decision over no policies has no source, and is not timed.
    pub(crate) fn decided(&self, timer: Timer, decided: Result<&Decision, &Error>) {
        #[cfg(feature = "metrics")]
        {
            let decisions = self.series.decisions();
            match decided {
                Ok(decision) if decision.outcomes().is_empty() => decisions.unlimited.increment(1),
                Ok(decision) => {
                    let (counters, seconds) = &decisions.sources[decision.source() as usize];
                    counters[usize::from(!decision.is_allowed())].increment(1);
                    seconds.record(timer.began.elapsed());
                }
                Err(_) => {
                    decisions.undecided[Undecided::Unavailable as usize].increment(1);
                    decisions.failed_seconds.record(timer.began.elapsed());
                }
            }
            for outcome in decided.map(Decision::outcomes).unwrap_or_default() {
                self.series.policies.with(outcome.policy_name(), |policy| policy.count(outcome));
            }
        }
    }

    pub(crate) fn undecided(&self, reason: Undecided) {
        #[cfg(feature = "metrics")]
        self.series.decisions().undecided[reason as usize].increment(1);
    }

    pub(crate) fn ambiguous(&self, policy: &PolicyName) {
        #[cfg(feature = "metrics")]
        self.series.policies.with(policy, |policy| policy.ambiguous().increment(1));
    }

    /// The tier of a request is not known for a policy.
    pub(crate) fn unknown_tier(&self, policy: &PolicyName) {
        #[cfg(feature = "metrics")]
        self.series.policies.with(policy, |policy| policy.unknown_tiers().increment(1));
    }

    /// A key was banned, and not with a decision.
    pub(crate) fn banned(&self, policy: &PolicyName, mode: Mode) {
        #[cfg(feature = "metrics")]
        self.series.policies.with(policy, |policy| policy.bans(mode)[0].increment(1));
    }
}

/// The health of a store, or of one primary of a Cluster, and the slots that are held of it.
impl Telemetry {
    pub(crate) fn store_failed(&self, error: &Error) {
        #[cfg(feature = "metrics")]
        {
            let [timeouts, connections, others] = &self.series.stores().failures;
            let counter = match error {
                _ if error.is_timeout() => timeouts,
                _ if error.is_connection() => connections,
                _ => others,
            };
            counter.increment(1);
        }
    }

    pub(crate) fn breaker_opened(&self) {
        #[cfg(feature = "metrics")]
        {
            self.series.stores().open.add(1);
            self.series.stores().changes[0].increment(1);
        }
    }

    /// Its circuit breaker has closed again.
    pub(crate) fn breaker_closed(&self) {
        #[cfg(feature = "metrics")]
        {
            self.series.stores().open.subtract(1);
            self.series.stores().changes[1].increment(1);
        }
    }

    pub(crate) fn slots_taken(&self, slots: u64) {
        #[cfg(feature = "metrics")]
        self.series.stores().slots_held.add(slots);
    }

    /// They are held no longer.
    pub(crate) fn slots_released(&self, slots: u64) {
        #[cfg(feature = "metrics")]
        if slots > 0 {
            self.series.stores().slots_held.subtract(slots);
        }
    }

    pub(crate) fn slots_lost(&self, slots: u64) {
        #[cfg(feature = "metrics")]
        if slots > 0 {
            self.series.stores().slots_lost.increment(slots);
        }
    }
}

/// What is reported where a policy of a layer is at hand: it needs no lookup by the name.
#[derive(Debug)]
pub(crate) struct PolicyTelemetry {
    #[cfg(feature = "metrics")]
    series: PolicySeries,
}

/// The reason for which a policy did not count a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Skipped {
    /// The request lacks the key, or it could not be looked up.
    KeyMissing,
    /// The client is on the allow list.
    List,
    /// Its methods, routes or closure leave the request out, or it is a CORS preflight.
    Scope,
}

impl PolicyTelemetry {
    pub(crate) fn new(name: &PolicyName) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            series: PolicySeries::new(name),
        }
    }

    /// The policy did not count a request.
    pub(crate) fn skipped(&self, reason: Skipped) {
        #[cfg(feature = "metrics")]
        self.series.skipped()[reason as usize].increment(1);
    }
}
