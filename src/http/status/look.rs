//! Checks what is left for the client that sent a request, as the layer decides, at cost 0.
//!
//! It differs from a decision in two points: methods and routes of policies do not matter, as the status request has
//! its own; and policies that are not shown are resolved only to see whether they refuse the client.

use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;

use http::request::Parts;

use crate::core::{Decision, Mode, Outcome};
use crate::http::admission::{Judge, Resolved, Skip, Waiting};
use crate::http::gate::Gate;
use crate::http::headers::{Advertised, used, whole_seconds};
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

/// Returns what the client that sent this request has left, as JSON.
///
/// # Errors
///
/// The refusal, if the layer would refuse the client before the store decides, or if no decision could be made.
pub(super) async fn status(gate: &Arc<Gate>, parts: &Parts, scope: Scope) -> Result<String, Box<Refusal>> {
    let mut plan: Plan<Waiting> = Plan::default();
    for (place, policy) in gate.policies.iter().enumerate() {
        let resolved = resolve(gate, place, parts);
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
    Ok(document(gate, &decided.decision))
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

/// Returns the status as JSON: under `resources`, each policy by its name, with `limit`, `used` and `remaining` in
/// units and `reset` in Unix time (seconds, rounded up), which slots do not have; of slots and bytes also `unit`, and of
/// one by which the client is banned `banned`, the end of the ban.
fn document(gate: &Gate, decision: &Decision) -> String {
    let headers = &gate.responses.headers;
    let mut json = String::from(r#"{"resources":{"#);
    for (index, outcome) in decision.outcomes().iter().filter(|outcome| headers.shows(outcome)).enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write_policy(&mut json, comma, outcome, headers.unit(outcome)).expect("writing to a string cannot fail");
    }
    json.push_str("}}");
    json
}

/// Writes what is left of one policy, in the numbers that headers have. A policy's name needs no escaping.
fn write_policy(json: &mut String, comma: &str, outcome: &Outcome, unit: Option<&str>) -> std::fmt::Result {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (policy, Advertised { q, .. }) = (outcome.policy(), Advertised::of(outcome.quota()));
    let left = outcome.remaining().min(q);
    let used = used(outcome, left);
    write!(json, r#"{comma}"{policy}":{{"limit":{q},"used":{used},"remaining":{left}"#)?;
    // When slots are free again is not known.
    let reset = (!outcome.is_held()).then(|| outcome.reset_after());
    for (name, after) in [("reset", reset), ("banned", outcome.banned_for())] {
        if let Some(after) = after {
            write!(json, r#","{name}":{}"#, whole_seconds(now.saturating_add(after)))?;
        }
    }
    if let Some(unit) = unit {
        write!(json, r#","unit":"{unit}""#)?;
    }
    json.write_char('}')
}
