//! Looks: at what the inner store has left, and at what is held here.

use smallvec::SmallVec;

use super::shared::Shared;
use crate::store::{Answer, Check, Deadline, Decided};
use crate::{Decision, Error};

impl Shared {
    /// Looks at checks that cost nothing: units held here remain too.
    pub(super) fn look(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        let held: SmallVec<[u64; 4]> = checks.iter().map(|check| self.held(&check.counter)).collect();
        let looked = self.inner.decide(checks, deadline);
        if held.iter().all(|units| *units == 0) {
            return looked;
        }
        match looked {
            Answer::Ready(decided) => Answer::Ready(decided.map(|decided| with(&held, decided))),
            Answer::Pending(pending) => {
                Answer::pending(async move { pending.await.map(|decided| with(&held, decided)) })
            }
        }
    }
}

fn with(held: &[u64], decided: Decided) -> Decided {
    let Decided { decision, receipt } = decided;
    let outcomes = decision.outcomes().iter().zip(held).map(|(outcome, units)| outcome.with_more(*units));
    Decided { decision: Decision::new(outcomes, decision.source()), receipt }
}
