//! What was decided, per policy and combined.

use std::sync::Arc;
use std::time::Duration;

use crate::quota::Tick;
use crate::store::{Check, Mode};
use crate::{Quota, algorithm};

/// The answer to one request over all its policies.
///
/// It is in the request's extensions for handlers and in the response's for outer layers. Cloning
/// it is cheap.
#[derive(Clone, Debug)]
pub struct Decision {
    outcomes: Arc<[Outcome]>,
    source: Source,
    allowed: bool,
    binding: Option<usize>,
}

/// Who made a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store itself.
    Store,
    /// An earlier refusal this process remembers.
    DenyCache,
    /// This process: with units it had taken in advance, or will pay for.
    Lease,
    /// A local store, while the shared one is away.
    Fallback,
    /// Nobody: the store is away and the layer admits all.
    Open,
}

/// What one policy says of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    policy: Arc<str>,
    quota: Quota,
    mode: Mode,
    allowed: bool,
    remaining: u64,
    /// Until the request fits, or, when it fits and nothing remains, until a unit returns; `None`
    /// if no wait can help.
    wait: Option<Duration>,
    reset_after: Duration,
    delay: Duration,
    /// No client may see it.
    hidden: bool,
}

impl Decision {
    /// Combines what each policy says: allowed if every enforced one allows.
    pub fn new(outcomes: impl IntoIterator<Item = Outcome>, source: Source) -> Self {
        let outcomes: Arc<[Outcome]> = outcomes.into_iter().collect();
        let allowed = outcomes.iter().all(|outcome| outcome.allowed || outcome.mode == Mode::Shadow);
        let enforced = outcomes.iter().enumerate().filter(|(_, outcome)| outcome.mode == Mode::Enforce);
        let binding = if allowed {
            enforced.min_by_key(|(_, outcome)| outcome.remaining).map(|(index, _)| index)
        } else {
            let violated = enforced.filter(|(_, outcome)| !outcome.allowed);
            violated.max_by_key(|(_, outcome)| outcome.wait.unwrap_or(Duration::MAX)).map(|(index, _)| index)
        };
        Self { outcomes, source, allowed, binding }
    }

    /// Whether the request is admitted.
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Who decided.
    pub fn source(&self) -> Source {
        self.source
    }

    /// What each policy says, in the order of the policies that apply to the request.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// The policies that refuse the request: none if it is admitted.
    pub fn violated(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| !outcome.allowed && outcome.mode == Mode::Enforce)
    }

    /// The policy that binds: the one with the least remaining, or the one to wait for longest.
    ///
    /// `None` if no policy applies to the request.
    pub fn binding(&self) -> Option<&Outcome> {
        self.binding.map(|index| &self.outcomes[index])
    }

    /// How long until the same request is admitted, if nobody else takes what returns meanwhile.
    ///
    /// `None` if it is admitted, or if no wait can help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.binding().and_then(Outcome::retry_after)
    }

    /// How long the admitted request has to wait for its turn; mostly zero.
    pub fn delay(&self) -> Duration {
        if !self.allowed {
            return Duration::ZERO;
        }
        let enforced = self.outcomes.iter().filter(|outcome| outcome.mode == Mode::Enforce);
        enforced.map(|outcome| outcome.delay).max().unwrap_or_default()
    }

    /// The same decision, of which no client may see anything.
    pub(crate) fn hidden(&self) -> Self {
        let outcomes = self.outcomes.iter().map(|outcome| Outcome { hidden: true, ..outcome.clone() });
        Self { outcomes: outcomes.collect(), ..*self }
    }

    /// The same decision, made by `source` on a share of each check's quota.
    pub(crate) fn with_quotas_of(&self, checks: &[Check], source: Source) -> Self {
        let both = self.outcomes.iter().zip(checks);
        let outcomes = both.map(|(outcome, check)| Outcome { quota: check.counter.quota, ..outcome.clone() });
        Self { outcomes: outcomes.collect(), source, ..*self }
    }
}

impl Outcome {
    /// An outcome in which the check fits, with `remaining` units left for its like.
    pub fn allowed(check: &Check, remaining: u64) -> Self {
        Self {
            policy: Arc::clone(&check.counter.policy),
            quota: check.counter.quota,
            mode: check.mode,
            allowed: true,
            remaining,
            wait: Some(Duration::ZERO),
            reset_after: Duration::ZERO,
            delay: Duration::ZERO,
            hidden: false,
        }
    }

    /// An outcome in which the check does not fit before `retry_after`; `None`: it never will.
    pub fn denied(check: &Check, remaining: u64, retry_after: Option<Duration>) -> Self {
        Self { allowed: false, wait: retry_after, ..Self::allowed(check, remaining) }
    }

    /// Sets the time until untouched state admits a full limit.
    pub fn resets_after(self, reset_after: Duration) -> Self {
        Self { reset_after, ..self }
    }

    /// The outcome after what its check took has become another number of units. When a charge
    /// leaves nothing, the wait is until all is returned: that it is shorter is not known here.
    pub(crate) fn settled(&self, taken: u64, balance: u64) -> Self {
        let remaining = if balance <= taken {
            self.remaining.saturating_add(taken - balance).min(self.quota.capacity())
        } else {
            self.remaining.saturating_sub(balance - taken)
        };
        let wait = match remaining {
            0 if self.remaining == 0 => self.wait,
            0 => Some(self.reset_after),
            _ => Some(Duration::ZERO),
        };
        Self { remaining, wait, ..self.clone() }
    }

    pub(crate) fn from_measures(check: &Check, measures: &Measures) -> Self {
        let tick = check.counter.quota.tick();
        Self {
            allowed: measures.fits,
            wait: (measures.wait != algorithm::NEVER).then(|| duration(measures.wait, tick)),
            reset_after: duration(measures.reset, tick),
            delay: duration(measures.delay, tick),
            ..Self::allowed(check, measures.remaining)
        }
    }

    /// The policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.hidden
    }

    pub(crate) fn shared_policy(&self) -> &Arc<str> {
        &self.policy
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
        if self.allowed { None } else { self.wait }
    }

    /// How long until untouched state admits a full limit.
    pub fn reset_after(&self) -> Duration {
        self.reset_after
    }

    /// How long the admitted request has to wait for its turn in this policy.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// How long until a unit can be had: zero if one remains, `None` if no wait helps.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.wait
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

fn duration(ticks: u64, tick: Tick) -> Duration {
    Duration::from_micros(ticks.saturating_mul(tick.micros()))
}
