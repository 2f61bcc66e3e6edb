//! What is left for the client who sent a request: judged as the layer would, and only looked at.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http::request::Parts;

use super::document::Status;
use crate::core::Mode;
use crate::http::admission::{Judge, Resolved, Waiting};
use crate::http::gate::Gate;
use crate::http::policy::Policy;
use crate::http::response::Refusal;
use crate::limiter::Plan;
use crate::lookup::Warning;
use crate::store::{Deadline, Decided, Store};

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

/// What the client who sent this request has left; or why the layer would turn it away before the store decides, or
/// the store's failure.
pub(super) async fn status(
    gate: &Arc<Gate>,
    parts: &Parts,
    scope: Scope,
    panics: &Warning,
) -> Result<Status, Box<Refusal>> {
    let mut plan: Plan<Waiting> = Plan::default();
    for (place, policy) in gate.policies.iter().enumerate() {
        let resolved = resolve_unless_it_panics(gate, place, parts, panics);
        let resolved = if scope.tells_of(policy) { resolved } else { only_if_refused(resolved) };
        if let Some(refusal) = resolved.add_to(&mut plan, place) {
            return Err(Box::new(refusal));
        }
    }
    let limits = &gate.limits;
    let deadline = if plan.findings.is_empty() { Deadline::none() } else { limits.deadline() };
    limits.find_out(&mut plan, deadline).await?;
    let decided = limits.store.decide(&plan.checks, deadline).wait().await;
    let Decided { decision, receipt } = decided.map_err(|error| Box::new(Refusal::Failed(error)))?;
    limits.store.settle(receipt, &[]);
    Ok(Status::of(gate, &decision))
}

/// As [`resolve`]. What a closure of the program makes of a request to another route than those it is for is its own
/// business: a policy whose closure panics is left out.
fn resolve_unless_it_panics(gate: &Arc<Gate>, place: usize, parts: &Parts, panics: &Warning) -> Resolved {
    catch_unwind(AssertUnwindSafe(|| resolve(gate, place, parts))).unwrap_or_else(|_| {
        if panics.is_due() {
            let policy = gate.policies[place].name();
            tracing::warn!(code = "status_panicked", policy, "a policy is left out of a status: its closure panicked");
        }
        Resolved::Skip
    })
}

/// What a policy makes of a request that only looks, whatever its method and route: it has its own.
///
/// It is turned away only by a policy that covers it altogether.
fn resolve(gate: &Arc<Gate>, place: usize, parts: &Parts) -> Resolved {
    let policy = &gate.policies[place];
    let scope = &policy.options().scope;
    let covered = scope.terms(parts).is_some();
    if policy.rule().mode() == Mode::Shadow || !(covered || scope.applies_when(parts)) {
        return Resolved::Skip;
    }
    let resolved = Judge::new(gate, place, parts).resolve_look();
    if covered { resolved } else { resolved.in_shadow() }
}

/// What is left of it for a policy that is not shown.
fn only_if_refused(resolved: Resolved) -> Resolved {
    if let Resolved::Refused(_) = resolved { resolved } else { Resolved::Skip }
}
