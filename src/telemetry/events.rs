use std::time::Duration;

#[cfg(feature = "metrics")]
use tokio::time::Instant;

#[cfg(feature = "metrics")]
use super::series::{PolicySeries, Series};
use crate::core::{Decision, Error, Lines, Mode, PolicyName};

/// Several of them add to one gauge, so dropping it subtracts its part.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    #[cfg(feature = "metrics")]
    series: Series,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    #[cfg(feature = "metrics")]
    began: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Undecided {
    Forbidden,
    Ambiguous,
    Rejected,
    Unavailable,
}

/// Decisions.
///
/// Every request counts once: by the source and verdict of its decision, or, without a decision, under the source
/// `none` by the reason. Only decisions are timed, from the call of the store.
impl Telemetry {
    #[allow(clippy::unused_self, reason = "the timer is for a decision of this layer or limiter")]
    pub(crate) fn start(&self) -> Timer {
        Timer {
            #[cfg(feature = "metrics")]
            began: Instant::now(),
        }
    }

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

    pub(crate) fn unknown_tier(&self, policy: &PolicyName) {
        #[cfg(feature = "metrics")]
        self.series.policies.with(policy, |policy| policy.unknown_tiers().increment(1));
    }

    pub(crate) fn near_limit(&self, policy: &PolicyName) {
        #[cfg(feature = "metrics")]
        self.series.policies.with(policy, |policy| policy.near_limit().increment(1));
    }

    pub(crate) fn banned(&self, policy: &PolicyName, mode: Mode) {
        #[cfg(feature = "metrics")]
        self.series.policies.with(policy, |policy| policy.bans(mode)[0].increment(1));
    }
}

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

/// Logs the bans that began with a decision outside of a layer, where keys are the application's own: without them.
pub(crate) fn log_bans(decided: Result<&Decision, &Error>) {
    for outcome in decided.map(Decision::outcomes).unwrap_or_default().iter().filter(|one| one.has_begun_ban()) {
        log_ban(outcome.policy_name(), || None, outcome.mode(), outcome.banned_for());
    }
}

/// Logs that a ban began, at most ten times in 10 s for each policy of the process.
pub(crate) fn log_ban(policy: &PolicyName, key: impl FnOnce() -> Option<String>, mode: Mode, length: Option<Duration>) {
    static BANNED: Lines = Lines::ten();
    BANNED.log(policy.as_str(), |more| {
        let (policy, key, shadow) = (policy.as_str(), key(), mode == Mode::Shadow);
        tracing::info!(code = "key_banned", policy, key, shadow, ?length, more, "key banned");
    });
}

#[derive(Debug)]
pub(crate) struct PolicyTelemetry {
    #[cfg(feature = "metrics")]
    series: PolicySeries,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Skipped {
    KeyMissing,
    List,
    Scope,
    Override,
}

impl PolicyTelemetry {
    pub(crate) fn new(name: &PolicyName) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            series: PolicySeries::new(name),
        }
    }

    pub(crate) fn skipped(&self, reason: Skipped) {
        #[cfg(feature = "metrics")]
        self.series.skipped()[reason as usize].increment(1);
    }
}
