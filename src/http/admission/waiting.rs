//! Going on with a policy that has to look something up before its check is known.

use std::task::{Context, Poll};

use super::judge::Judge;
use super::resolved::{Resolved, Stage, Waiting};
use crate::Error;
use crate::core::error::Kind;
use crate::http::response::Refusal;
use crate::limiter::{Finding, Found};

impl Waiting {
    fn judge(&self) -> Judge<'_> {
        Judge::without_parts(&self.gate, self.ask.draft.rule)
    }

    fn found(&self, resolved: Resolved) -> Found<Box<Refusal>> {
        match resolved {
            Resolved::Check(check) => Found::Check(check),
            Resolved::Refused(refusal) if !self.in_shadow => Found::Refused(refusal),
            Resolved::Skip | Resolved::Refused(_) | Resolved::Waiting(_) => Found::Skip,
        }
    }
}

impl Finding for Waiting {
    type Refusal = Box<Refusal>;

    fn rule(&self) -> usize {
        self.ask.draft.rule
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Found<Box<Refusal>>> {
        loop {
            let resolved = match &mut self.stage {
                Stage::Key(pending) => {
                    let Poll::Ready(extracted) = pending.as_mut().poll(cx) else { return Poll::Pending };
                    self.judge().resolve_key(self.ask, extracted)
                }
                Stage::Tier(key, pending) => {
                    let Poll::Ready(tier) = pending.as_mut().poll(cx) else { return Poll::Pending };
                    let key = key.clone();
                    self.judge().check(self.ask.draft.with_tier(tier), key)
                }
            };
            match resolved {
                Resolved::Waiting(next) => self.stage = next.stage,
                resolved => return Poll::Ready(self.found(resolved)),
            }
        }
    }

    fn late(&self) -> Found<Box<Refusal>> {
        self.found(match &self.stage {
            Stage::Key(_) => {
                let late = Error::new(Kind::Timeout, "a key was not looked up in time");
                self.judge().without_key(self.ask, late)
            }
            Stage::Tier(key, _) => self.judge().check(self.ask.draft, key.clone()),
        })
    }
}
