//! What is left for the client who sent a request: judged as the layer would, and only looked at.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::request::Parts;

use crate::http::admission::ask::Resolved;
use crate::http::admission::{Asked, Verdict};
use crate::http::gate::Gate;
use crate::lookup::Warning;
use crate::store::{Deadline, Decided, Mode, Store};
use crate::{Policy, Status};

/// Which policies are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those that clients may know of.
    Shown,
    /// Those of them that anybody may be shown.
    Proven,
}

impl Scope {
    fn tells_of(self, policy: &Policy) -> bool {
        policy.is_shown() && (self == Scope::Shown || policy.is_proven())
    }
}

impl Gate {
    /// What the client who sent this request has left; or the verdict by which the layer would turn it away
    /// before it asks the store, or the store's failure.
    pub(super) async fn status(&self, parts: &Parts, scope: Scope, panics: &Warning) -> Result<Status, Verdict> {
        let mut asked = Asked::default();
        for (place, policy) in self.policies.iter().enumerate() {
            let resolved = self.resolve_unless_it_panics(place, parts, panics);
            let resolved = if scope.tells_of(policy) { resolved } else { resolved.only_if_verdict() };
            if let Some(verdict) = asked.add(place, resolved) {
                return Err(verdict);
            }
        }
        let deadline = if asked.waiting.is_empty() { Deadline::none() } else { self.deadline() };
        self.find_out(&mut asked, deadline).await?;
        let Decided { decision, receipt } =
            self.store.decide(&asked.checks, deadline).wait().await.map_err(Verdict::Failed)?;
        self.store.settle(receipt, &[]);
        Ok(Status::of(self, &decision))
    }

    /// As [`resolve_look`](Self::resolve_look). What a closure of the program makes of a request to another
    /// route than those it is for is its own business: a policy whose closure panics is left out.
    fn resolve_unless_it_panics(&self, place: usize, parts: &Parts, panics: &Warning) -> Resolved {
        catch_unwind(AssertUnwindSafe(|| self.resolve_look(place, parts))).unwrap_or_else(|_| {
            if panics.is_due() {
                let policy = self.policies[place].name();
                tracing::warn!(
                    code = "status_panicked",
                    policy,
                    "a policy is left out of a status: its closure panicked"
                );
            }
            Resolved::Skip
        })
    }

    /// What a policy makes of a request that only looks, whatever its method and route: it has its own.
    ///
    /// It is turned away only by a policy that covers it altogether.
    fn resolve_look(&self, place: usize, parts: &Parts) -> Resolved {
        let options = self.policies[place].options();
        let covered = options.scope.terms(parts).is_some();
        if options.mode == Mode::Shadow || !(covered || options.scope.applies_when(parts)) {
            return Resolved::Skip;
        }
        let resolved = self.resolve_covered(place, parts, |_| 0);
        if covered { resolved } else { resolved.in_shadow() }
    }
}

impl Resolved {
    /// What is left of it for a policy that is not shown.
    fn only_if_verdict(self) -> Self {
        if let Resolved::Verdict(_) = self { self } else { Resolved::Skip }
    }
}
