//! What was decided, per policy and combined.

mod outcome;

use std::slice;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::outcome::Measures;
pub use self::outcome::Outcome;
use super::{Check, Mode};

/// The answer to one request over all its policies.
///
/// It is in the request's extensions for handlers and in the response's for outer layers. Cloning
/// it is cheap. Where layers are nested it is the innermost one's, and [`outer`](Self::outer) leads to the
/// others.
#[derive(Clone, Debug)]
pub struct Decision {
    outcomes: Outcomes,
    source: Source,
    allowed: bool,
    binding: Option<u32>,
    outer: Option<Arc<Decision>>,
}

/// Most requests ask one policy, whose outcome needs no allocation; those of several are shared.
#[derive(Clone, Debug)]
enum Outcomes {
    One(Outcome),
    Many(Arc<[Outcome]>),
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

impl Decision {
    /// Combines what each policy says: allowed if every enforced one allows.
    pub fn new(outcomes: impl IntoIterator<Item = Outcome>, source: Source) -> Self {
        let kept = match outcomes.into_iter().collect() {
            Outcomes::One(outcome) => return Self::of_one(outcome, source),
            several @ Outcomes::Many(_) => several,
        };
        let outcomes = kept.as_slice();
        let allowed = outcomes.iter().all(|outcome| outcome.allowed || outcome.mode == Mode::Shadow);
        let enforced = outcomes.iter().enumerate().filter(|(_, outcome)| outcome.mode == Mode::Enforce);
        let binding = if allowed {
            enforced.min_by_key(|(_, outcome)| outcome.remaining).map(|(index, _)| index)
        } else {
            let violated = enforced.filter(|(_, outcome)| !outcome.allowed);
            violated.max_by_key(|(_, outcome)| outcome.wait_us).map(|(index, _)| index)
        };
        let binding = binding.and_then(|index| u32::try_from(index).ok());
        Self { outcomes: kept, source, allowed, binding, outer: None }
    }

    /// What the only policy says.
    pub(crate) fn of_one(outcome: Outcome, source: Source) -> Self {
        let allowed = outcome.allowed || outcome.mode == Mode::Shadow;
        let binding = (outcome.mode == Mode::Enforce).then_some(0);
        Self { outcomes: Outcomes::One(outcome), source, allowed, binding, outer: None }
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
        self.outcomes.as_slice()
    }

    /// The policies that refuse the request: none if it is admitted.
    pub fn violated(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes().iter().filter(|outcome| !outcome.allowed && outcome.mode == Mode::Enforce)
    }

    /// The policy that binds: the one with the least remaining, or the one to wait for longest.
    ///
    /// `None` if no policy applies to the request.
    pub fn binding(&self) -> Option<&Outcome> {
        self.binding.map(|index| &self.outcomes()[index as usize])
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
        let enforced = self.outcomes().iter().filter(|outcome| outcome.mode == Mode::Enforce);
        enforced.map(Outcome::delay).max().unwrap_or_default()
    }

    /// The decision of the next layer outside of the one that made this, if layers are nested.
    ///
    /// In a response there may be one where [`is_allowed`](Self::is_allowed) is false of this: the outer layer
    /// admitted what the inner one refuses.
    #[must_use]
    pub fn outer(&self) -> Option<&Decision> {
        self.outer.as_deref()
    }

    /// The decision, with that of a layer outside of all that it knows.
    pub(crate) fn inside(mut self, outer: Decision) -> Self {
        let behind = match self.outer.take() {
            Some(between) => Arc::unwrap_or_clone(between).inside(outer),
            None => outer,
        };
        self.outer = Some(Arc::new(behind));
        self
    }

    /// The same decision, of which no client may see anything.
    pub(crate) fn hidden(&self) -> Self {
        let outcomes = self.outcomes().iter().map(Outcome::to_hidden);
        Self { outcomes: outcomes.collect(), outer: None, ..*self }
    }

    /// The same decision, made by `source` on a share of each check's quota.
    pub(crate) fn with_quotas_of(&self, checks: &[Check], source: Source) -> Self {
        let both = self.outcomes().iter().zip(checks);
        let outcomes = both.map(|(outcome, check)| outcome.with_quota(check.counter.quota));
        Self { outcomes: outcomes.collect(), source, outer: None, ..*self }
    }
}

impl Outcomes {
    fn as_slice(&self) -> &[Outcome] {
        match self {
            Outcomes::One(outcome) => slice::from_ref(outcome),
            Outcomes::Many(outcomes) => outcomes,
        }
    }
}

impl FromIterator<Outcome> for Outcomes {
    fn from_iter<I: IntoIterator<Item = Outcome>>(outcomes: I) -> Self {
        let mut outcomes = outcomes.into_iter();
        if outcomes.size_hint() == (1, Some(1))
            && let Some(only) = outcomes.next()
        {
            return Outcomes::One(only);
        }
        Outcomes::Many(outcomes.collect())
    }
}
