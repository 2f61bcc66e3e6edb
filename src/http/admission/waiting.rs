//! Continues a policy whose key or quota is being looked up.
//!
//! A key may be followed by a quota: one [`Waiting`] goes through both lookups, and ends as a check, as nothing, or as
//! a refusal. If the budget ends first, the lookup of a key has failed, and that of a quota results in the policy's
//! own.

use std::task::{Context, Poll};

use super::judge::Judge;
use super::resolved::{Resolved, Skip, Stage, Waiting};
use crate::core::Error;
use crate::core::error::Kind;
use crate::http::response::Refusal;
use crate::limiter::{PendingCheck, Resolution};

impl Waiting {
    /// Returns the judge of this policy, without the head of the request.
    fn judge(&self) -> Judge<'_> {
        Judge::without_parts(&self.gate, self.keyless.draft.place)
    }

    /// Returns the result of the lookups; in shadow mode a refusal becomes a skip.
    fn resolution(&self, resolved: Resolved) -> Resolution<Box<Refusal>> {
        match resolved {
            Resolved::Check(check) => {
                if self.is_observed && check.is_only_for_ban() {
                    Skip::Scope.observe(&self.gate, self.keyless.draft.place);
                }
                Resolution::Check(check)
            }
            Resolved::Refused(refusal) if !self.in_shadow => Resolution::Refused(refusal),
            Resolved::Skip(skip) => {
                if self.is_observed {
                    skip.observe(&self.gate, self.keyless.draft.place);
                }
                Resolution::Skip
            }
            Resolved::Refused(_) | Resolved::Waiting(_) => Resolution::Skip,
        }
    }
}

impl PendingCheck for Waiting {
    type Refusal = Box<Refusal>;

    fn place(&self) -> usize {
        self.keyless.draft.place
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Resolution<Box<Refusal>>> {
        loop {
            let resolved = match &mut self.stage {
                Stage::Key(pending) => {
                    let Poll::Ready(extracted) = pending.as_mut().poll(cx) else { return Poll::Pending };
                    self.judge().resolve_key(self.keyless.clone(), extracted)
                }
                Stage::Tier(key, pending) => {
                    let Poll::Ready(tier) = pending.as_mut().poll(cx) else { return Poll::Pending };
                    let (key, judge) = (key.clone(), self.judge());
                    judge.check(self.keyless.draft.clone().with_tier(judge.policy.rule(), tier), key)
                }
            };
            match resolved {
                Resolved::Waiting(next) => (self.keyless, self.stage) = (next.keyless, next.stage),
                Resolved::Skip(skip) => {
                    self.skipped = Some(skip);
                    return Poll::Ready(self.resolution(Resolved::Skip(skip)));
                }
                resolved => return Poll::Ready(self.resolution(resolved)),
            }
        }
    }

    fn timed_out(&self) -> Resolution<Box<Refusal>> {
        self.resolution(match &self.stage {
            Stage::Key(_) => {
                let late = Error::new(Kind::Timeout, "the lookup of a key timed out");
                self.judge().without_key(self.keyless.clone(), late)
            }
            Stage::Tier(key, _) => self.judge().check(self.keyless.draft.clone(), key.clone()),
        })
    }
}
