//! What one policy says of one request.

use std::time::Duration;

use crate::core::{Check, Mode, PolicyName, Quota, algorithm};

/// The wait of what never fits.
const NO_WAIT: u64 = u64::MAX;

/// What one policy says of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    policy: PolicyName,
    quota: Quota,
    pub(super) mode: Mode,
    pub(super) allowed: bool,
    pub(super) remaining: u64,
    /// Until the request fits, or, when it fits and nothing remains, until a unit returns;
    /// [`NO_WAIT`] if no wait can help.
    pub(super) wait_us: u64,
    reset_us: u64,
    delay_us: u64,
    /// No client may see it.
    hidden: bool,
}

impl Outcome {
    /// An outcome in which the check fits, with `remaining` units left for its like.
    pub fn allowed(check: &Check, remaining: u64) -> Self {
        Self {
            policy: check.counter.policy.clone(),
            quota: check.counter.quota,
            mode: check.mode,
            allowed: true,
            remaining,
            wait_us: 0,
            reset_us: 0,
            delay_us: 0,
            hidden: false,
        }
    }

    /// An outcome in which the check does not fit before `retry_after`, rounded up to microseconds;
    /// `None`: it never will.
    pub fn denied(check: &Check, remaining: u64, retry_after: Option<Duration>) -> Self {
        let wait_us = retry_after.map_or(NO_WAIT, micros);
        Self { allowed: false, wait_us, ..Self::allowed(check, remaining) }
    }

    /// Sets the time until untouched state admits a full limit, rounded up to microseconds.
    pub fn resets_after(self, reset_after: Duration) -> Self {
        Self { reset_us: micros(reset_after), ..self }
    }

    /// The outcome, which no client may see.
    pub(super) fn to_hidden(&self) -> Self {
        Self { hidden: true, ..self.clone() }
    }

    /// The outcome, of which another quota is shown.
    pub(super) fn with_quota(&self, quota: Quota) -> Self {
        Self { quota, ..self.clone() }
    }

    /// The outcome of a look, with units that are left elsewhere.
    pub(crate) fn with_more(&self, units: u64) -> Self {
        let remaining = self.remaining.saturating_add(units).min(self.quota.capacity());
        let wait_us = if remaining > 0 && self.allowed { 0 } else { self.wait_us };
        Self { remaining, wait_us, ..self.clone() }
    }

    /// The outcome after what its check took has become another number of units. When a charge
    /// leaves nothing, the wait is until all is returned: that it is shorter is not known here.
    pub(crate) fn settled(&self, taken: u64, balance: u64) -> Self {
        let remaining = if balance <= taken {
            self.remaining.saturating_add(taken - balance).min(self.quota.capacity())
        } else {
            self.remaining.saturating_sub(balance - taken)
        };
        let wait_us = match remaining {
            0 if self.remaining == 0 => self.wait_us,
            0 => self.reset_us,
            _ => 0,
        };
        Self { remaining, wait_us, ..self.clone() }
    }

    /// The outcome, with what a look told later of what is left.
    pub(crate) fn after(&self, look: &Self) -> Self {
        let Self { remaining, reset_us, .. } = *look;
        let wait_us = if remaining == 0 { look.wait_us } else { 0 };
        Self { remaining, wait_us, reset_us, ..self.clone() }
    }

    pub(crate) fn from_measures(check: &Check, measures: &Measures) -> Self {
        let tick = check.counter.quota.tick().micros();
        Self {
            allowed: measures.fits,
            wait_us: if measures.wait == algorithm::NEVER { NO_WAIT } else { measures.wait.saturating_mul(tick) },
            reset_us: measures.reset.saturating_mul(tick),
            delay_us: measures.delay.saturating_mul(tick),
            ..Self::allowed(check, measures.remaining)
        }
    }

    pub(crate) fn policy_name(&self) -> &PolicyName {
        &self.policy
    }

    /// The policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// The quota counted against.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Whether this outcome counts for the decision.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether this policy admits the request.
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Units per window.
    pub fn limit(&self) -> u64 {
        self.quota.limit()
    }

    /// How many requests of cost 1 like this one would be admitted right after it.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// How long until this policy admits the same request; `None` if it does, or never will.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.allowed { None } else { self.wait() }
    }

    /// How long until untouched state admits a full limit.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_us)
    }

    /// How long the admitted request has to wait for its turn in this policy.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us)
    }

    /// How long until a unit can be had: zero if one remains, `None` if no wait helps.
    pub(crate) fn wait(&self) -> Option<Duration> {
        (self.wait_us != NO_WAIT).then(|| Duration::from_micros(self.wait_us))
    }
}

/// The numbers of one outcome as a store computes them, in ticks of the quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measures {
    pub(crate) fits: bool,
    pub(crate) remaining: u64,
    pub(crate) wait: u64,
    pub(crate) reset: u64,
    pub(crate) delay: u64,
}

/// Microseconds, rounded up.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}
