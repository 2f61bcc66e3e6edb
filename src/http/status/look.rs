//! Checks what is left for the client that sent a request, as the layer decides, at cost 0.
//!
//! It differs from a decision in three points: methods and routes of policies do not matter, as the status request has
//! its own; policies that are not shown are resolved only to see whether they refuse the client; and a closure that
//! panics costs its policy the place in the status, not the client its connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http::request::Parts;

use super::document::Status;
use crate::core::{Lines, Mode};
use crate::http::admission::{Judge, Resolved, Skip, Waiting};
use crate::http::gate::Gate;
use crate::http::policy::Policy;
use crate::http::response::Refusal;
use crate::limiter::Plan;
use crate::store::{Ask, Deadline, Store};

/// Which policies are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those that are advertised and not in shadow mode.
    Shown,
    /// Those of them whose key and quota a client cannot make up.
    Proven,
}

impl Scope {
    /// Returns whether a policy is shown.
    fn has(self, policy: &Policy) -> bool {
        policy.is_shown() && (self == Scope::Shown || policy.is_unforgeable())
    }
}

/// Returns what the client that sent this request has left.
///
/// # Errors
///
/// The refusal, if the layer would refuse the client before the store decides, or if no decision could be made.
pub(super) async fn status(
    gate: &Arc<Gate>,
    parts: &Parts,
    scope: Scope,
    panics: &Lines,
) -> Result<Status, Box<Refusal>> {
    let mut plan: Plan<Waiting> = Plan::default();
    for (place, policy) in gate.policies.iter().enumerate() {
        let resolved = resolve_unless_it_panics(gate, place, parts, panics);
        let resolved = if scope.has(policy) { resolved } else { only_if_refused(resolved) };
        if let Some(refusal) = resolved.add_to(&mut plan, place) {
            return Err(Box::new(refusal));
        }
    }
    let limits = &gate.limits;
    let deadline = if plan.pending.is_empty() { Deadline::none() } else { limits.deadline() };
    limits.resolve_pending(&mut plan, deadline).await?;
    let decided = limits.store.decide(&plan.checks, Ask::default().deadline(deadline)).wait().await;
    let decided = decided.map_err(|error| Box::new(Refusal::Failed(error)))?;
    Ok(Status::of(gate, &decided.decision))
}

/// Resolves a policy as [`resolve`] does, and leaves it out if a closure panics: the application wrote it for other
/// routes than that of the status.
fn resolve_unless_it_panics(gate: &Arc<Gate>, place: usize, parts: &Parts, panics: &Lines) -> Resolved {
    catch_unwind(AssertUnwindSafe(|| resolve(gate, place, parts))).unwrap_or_else(|_| {
        let policy = gate.policies[place].name();
        panics.log(policy, |more| {
            tracing::warn!(
                code = "status_panicked",
                policy,
                more,
                "a policy was left out of a status: its closure panicked"
            );
        });
        Resolved::Skip(Skip::Scope)
    })
}

/// Resolves a policy for a status request, whatever methods and routes the policy has.
///
/// Only a policy that covers the request itself, by its method and route too, can refuse it.
fn resolve(gate: &Arc<Gate>, place: usize, parts: &Parts) -> Resolved {
    let policy = &gate.policies[place];
    let scope = &policy.options().scope;
    let covered = scope.terms(parts).is_some();
    if policy.rule().mode() == Mode::Shadow || !(covered || scope.applies_when(parts)) {
        return Resolved::Skip(Skip::Scope);
    }
    let resolved = Judge::resolve_look(gate, place, parts);
    if covered { resolved } else { resolved.in_shadow() }
}

/// Keeps only the refusal of a policy that is not shown.
fn only_if_refused(resolved: Resolved) -> Resolved {
    if let Resolved::Refused(_) = resolved { resolved } else { Resolved::Skip(Skip::Scope) }
}
