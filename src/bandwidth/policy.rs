//! Policies that count bytes, and what is refused by them before a body begins.

use crate::core::{Decision, Error, Mode, Source};
use crate::http::Policy;
use crate::limiter::{can_flow, refuses_frames};
use crate::store::Decided;

/// The unit, as headers name it.
const UNIT: &str = "content-bytes";

/// Returns a policy that counts bytes.
///
/// # Errors
///
/// If it cannot; the message names the policy and the option.
pub(super) fn of_bytes(policy: Policy) -> Result<Policy, Error> {
    let (rule, options) = (policy.rule(), policy.options());
    can_flow(rule.name(), rule.quota())?;
    let wrong = [
        ("cost", options.cost_by.is_some() || rule.units() != 1),
        ("count", options.count.is_some()),
        ("metered", options.metered),
        ("refund_dropped", options.refund_dropped),
        ("ban", rule.banning().is_some()),
    ];
    let Some((option, _)) = wrong.iter().find(|(_, is_set)| *is_set) else { return Ok(policy.in_units(UNIT)) };
    Err(Error::invalid(format!("policy {:?}: it counts the bytes that pass: leave out {option}", policy.name())))
}

/// Returns the refusal of a request whose body could only be cut; `None` if there is enough left for a frame.
pub(super) fn refuses(looked: &Decided) -> Option<Decision> {
    let Decided { decision, receipt } = looked;
    let mut refused = false;
    let outcomes = decision.outcomes().iter().enumerate().map(|(place, outcome)| {
        let floor = receipt.taken().get(place).map_or(0, |taken| taken.floor);
        // A fallback has a share of each quota, of which it says no more than what is left.
        let is_share = decision.source() == Source::Fallback;
        let free = if is_share { 1 } else { outcome.quota().capacity().saturating_sub(floor) };
        let refusal = refuses_frames(outcome, free).filter(|_| outcome.mode() == Mode::Enforce);
        refused |= refusal.is_some();
        refusal.unwrap_or_else(|| outcome.clone())
    });
    let decision = Decision::new(outcomes, decision.source());
    refused.then_some(decision)
}
