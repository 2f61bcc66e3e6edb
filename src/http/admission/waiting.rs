//! Policies that have to look something up: side by side, up to one deadline.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle as Runtime;
use tokio::time::{Instant, sleep_until};

use crate::core::error::Kind;
use crate::http::admission::Verdict;
use crate::http::admission::ask::{Ask, Resolved};
use crate::http::gate::Gate;
use crate::http::key::Extracted;
use crate::store::Check;
use crate::{Error, Key, Quota};

/// A policy that cannot ask the store yet.
pub(crate) struct Waiting {
    ask: Ask,
    stage: Stage,
    /// It never refuses.
    in_shadow: bool,
}

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What is looked up.
pub(crate) enum Stage {
    Key(Pending<Extracted>),
    Tier(Key, Pending<Option<Quota>>),
}

/// A policy that waits, and what it makes of the request once that is known.
type One = (Waiting, Option<Resolved>);

impl Waiting {
    pub(crate) fn new(ask: Ask, stage: Stage) -> Self {
        Self { ask, stage, in_shadow: false }
    }

    pub(crate) fn in_shadow(self) -> Self {
        Self { in_shadow: true, ..self }
    }

    fn judge(&self, resolved: Resolved) -> Resolved {
        if self.in_shadow { resolved.in_shadow() } else { resolved }
    }

    fn poll(&mut self, gate: &Gate, cx: &mut Context<'_>) -> Poll<Resolved> {
        loop {
            let resolved = match &mut self.stage {
                Stage::Key(pending) => {
                    let Poll::Ready(extracted) = pending.as_mut().poll(cx) else { return Poll::Pending };
                    gate.resolve_key(self.ask, extracted, None)
                }
                Stage::Tier(key, pending) => {
                    let Poll::Ready(tier) = pending.as_mut().poll(cx) else { return Poll::Pending };
                    let policy = &gate.policies[self.ask.policy];
                    Resolved::Check(self.ask.with_tier(tier).check(policy, key.clone()))
                }
            };
            match resolved {
                Resolved::Waiting(next) => self.stage = next.stage,
                resolved => return Poll::Ready(self.judge(resolved)),
            }
        }
    }

    /// What is made of a request without what comes too late.
    fn without(&self, gate: &Gate) -> Resolved {
        self.judge(match &self.stage {
            Stage::Key(_) => gate.without_key(self.ask, Error::new(Kind::Timeout, "a key was not looked up in time")),
            Stage::Tier(key, _) => Resolved::Check(self.ask.check(&gate.policies[self.ask.policy], key.clone())),
        })
    }
}

impl Gate {
    /// What policies ask that had to look something up, by their places; what is not known `until` then
    /// is done without. Or the verdict of the first that refuses the request.
    ///
    /// There are no timers outside of a runtime.
    pub(crate) async fn look_up(
        &self,
        waiting: Vec<Waiting>,
        until: Option<Instant>,
    ) -> Result<Vec<(usize, Check)>, Verdict> {
        let until = until.filter(|_| Runtime::try_current().is_ok());
        let mut timer = until.map(|until| Box::pin(sleep_until(until)));
        let mut each: Vec<One> = waiting.into_iter().map(|one| (one, None)).collect();
        poll_fn(|cx| {
            if self.poll_each(&mut each, cx) {
                return Poll::Ready(());
            }
            timer.as_mut().map_or(Poll::Pending, |timer| timer.as_mut().poll(cx))
        })
        .await;
        // Where one refuses, the others are not missed.
        let refusal = each.iter().position(|(_, known)| matches!(known, Some(Resolved::Verdict(_))));
        let missed = refusal.map_or(0..each.len(), |refusal| refusal..refusal + 1);
        let mut checks = Vec::with_capacity(missed.len());
        for (one, known) in each.drain(missed) {
            match known.unwrap_or_else(|| one.without(self)) {
                Resolved::Check(check) => checks.push((one.ask.policy, check)),
                Resolved::Verdict(verdict) => return Err(*verdict),
                Resolved::Skip | Resolved::Waiting(_) => {}
            }
        }
        Ok(checks)
    }

    /// Whether nothing has to be waited for any more.
    fn poll_each(&self, each: &mut [One], cx: &mut Context<'_>) -> bool {
        for (one, known) in each.iter_mut().filter(|(_, known)| known.is_none()) {
            if let Poll::Ready(resolved) = one.poll(self, cx) {
                *known = Some(resolved);
            }
        }
        let refuses = each.iter().any(|(_, known)| matches!(known, Some(Resolved::Verdict(_))));
        refuses || each.iter().all(|(_, known)| known.is_some())
    }
}
