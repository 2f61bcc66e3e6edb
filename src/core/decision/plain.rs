//! Decisions of which nothing is settled, until somebody reads them.
//!
//! A store's measures of each check come in, and stay as they are: names and quotas are those of the policies, which are
//! added only for a reader. Of most admitted requests nobody reads more than whether they are.

use smallvec::SmallVec;

use super::{Decision, Measures, Outcome, Source};
use crate::core::{Mode, PolicyName, Quota};

/// The decision on a request of which nothing is settled: what [`Store::decide_now`](crate::Store::decide_now) returns.
///
/// A store outside of this crate makes it of a [`Decision`].
///
/// # Examples
///
/// ```
/// use tollgate::store::PlainDecision;
/// use tollgate::{Decision, Source};
///
/// let decision = PlainDecision::from(Decision::new([], Source::Store));
/// assert!(decision.is_allowed());
/// ```
#[derive(Debug)]
#[must_use = "a decision that is not read limits nothing"]
pub struct PlainDecision(Kind);

#[derive(Debug)]
enum Kind {
    Made(Box<Decision>),
    /// Of each check, in their order; all are enforced.
    Measured {
        allowed: bool,
        source: Source,
        measures: SmallVec<[Measures; 1]>,
    },
}

impl PlainDecision {
    /// Returns whether the request is admitted.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        match &self.0 {
            Kind::Made(decision) => decision.is_allowed(),
            Kind::Measured { allowed, .. } => *allowed,
        }
    }

    /// The decision by the only check.
    #[inline]
    pub(crate) fn of_one(measures: Measures, source: Source) -> Self {
        Self(Kind::Measured { allowed: measures.fits, source, measures: SmallVec::from_buf([measures]) })
    }

    /// The store's decision by several checks, all of which have to fit.
    pub(crate) fn of_several(measures: impl Iterator<Item = Measures>) -> Self {
        let measures: SmallVec<[Measures; 1]> = measures.collect();
        let allowed = measures.iter().all(|measures| measures.fits);
        Self(Kind::Measured { allowed, source: Source::Store, measures })
    }

    /// Makes the decision for its only reader; `policies` are those of the checks, in their order.
    #[expect(clippy::unnecessary_box_returns, reason = "it is boxed already where a store made it")]
    pub(crate) fn into_decision<'a>(
        self,
        policies: impl Iterator<Item = (&'a PolicyName, &'a Quota)>,
    ) -> Box<Decision> {
        match self.0 {
            Kind::Made(decision) => decision,
            measured @ Kind::Measured { .. } => Box::new(Self(measured).decision(policies)),
        }
    }

    /// Makes the decision for its readers; `policies` are those of the checks, in their order.
    pub(crate) fn decision<'a>(&self, policies: impl Iterator<Item = (&'a PolicyName, &'a Quota)>) -> Decision {
        match &self.0 {
            Kind::Made(decision) => Decision::clone(decision),
            Kind::Measured { measures, source, .. } => {
                let outcome = |((policy, quota), measures): ((&PolicyName, &Quota), &Measures)| {
                    Outcome::of(policy.clone(), *quota, Mode::Enforce, measures)
                };
                if let [measures] = &measures[..] {
                    let mut policies = policies;
                    let policy = policies.next().expect("a check has a policy");
                    return Decision::of_one(outcome((policy, measures)), *source);
                }
                Decision::new(policies.zip(measures).map(outcome), *source)
            }
        }
    }
}

impl From<Decision> for PlainDecision {
    fn from(decision: Decision) -> Self {
        Self(Kind::Made(Box::new(decision)))
    }
}
