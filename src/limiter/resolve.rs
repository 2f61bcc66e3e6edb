//! What a key means for each rule, at once or after a lookup: its check, and its counter.
//!
//! Limits and a key come in; the plan of a decision goes out, with the tiers that are still to be looked up.

use std::pin::Pin;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::limits::{Limits, Tiered, in_time, late};
use super::plan::{Draft, PendingCheck, Plan};
use super::rule::Rule;
use crate::core::{Error, Key, Mode, Quota};
use crate::lookup::RawValues;
use crate::store::{Answer, Check, Counter, Deadline};

/// Returns the checks of the rules at these places about a key; those whose tier is not cached are still to be looked up.
///
/// # Errors
///
/// If a tier is not known, and its rule denies such requests.
pub(super) fn plan_for<'a>(
    limits: &'a Limits,
    places: &[usize],
    key: &Key,
    units: Option<u64>,
) -> Result<Plan<Tier<'a>>, Error> {
    let mut plan = Plan::default();
    for &place in places {
        let rule = &limits.rules[place];
        let draft = Draft::new(place, rule, units.unwrap_or(rule.units()));
        let tier = rule.tiers().map_or(Answer::Ready(Ok(None)), |lookup| lookup.find(key, RawValues::default));
        match tier {
            Answer::Ready(found) => {
                if let Some(check) = check(limits, rule, draft, key, found)? {
                    plan.add(place, check);
                }
            }
            Answer::Pending(pending) => plan.pending.push(Tier { limits, draft, rule, key: key.clone(), pending }),
        }
    }
    Ok(plan)
}

/// Returns the check of a rule by what was looked up; `None` if it does not apply without a tier.
fn check(
    limits: &Limits,
    rule: &Rule,
    draft: Draft,
    key: &Key,
    found: Result<Option<Quota>, Error>,
) -> Result<Option<Check>, Error> {
    Ok(match limits.tiered(rule, found) {
        Ok(Tiered::Quota(tier)) => Some(draft.with_tier(rule, tier).check(rule, key.clone())),
        // A ban is that of the key, whatever its quota.
        Ok(Tiered::Skip) if rule.banning().is_some() => {
            Some(Draft { only_ban: true, ..draft }.check(rule, key.clone()))
        }
        Ok(Tiered::Skip) => None,
        Err(_) if rule.mode() == Mode::Shadow => None,
        Err(error) => return Err(error),
    })
}

/// Returns the counter of the rule at a place and a key, of its present tier.
pub(super) async fn counter(limits: &Limits, place: usize, key: &Key) -> Result<Counter, Error> {
    let rule = &limits.rules[place];
    let tier = match rule.tiers() {
        Some(lookup) => lookup.find(key, RawValues::default).wait().await?,
        None => None,
    };
    Ok(Draft::new(place, rule, 0).with_tier(rule, tier).check(rule, key.clone()).counter)
}

/// Returns a look at the counter of a key of each of these rules, after the lookups of tiers, and the deadline of the
/// decision.
///
/// # Errors
///
/// As of [`plan_for`].
pub(super) async fn looks(
    limits: &Limits,
    places: &[usize],
    key: &Key,
) -> Result<(SmallVec<[Check; 4]>, Deadline), Error> {
    let mut plan = plan_for(limits, places, key, Some(0))?;
    let deadline = if plan.pending.is_empty() { Deadline::none() } else { limits.deadline() };
    limits.resolve_pending(&mut plan, deadline).await?;
    Ok((plan.checks, deadline))
}

/// A rule whose quota is being looked up.
pub(super) struct Tier<'a> {
    limits: &'a Limits,
    draft: Draft,
    rule: &'a Rule,
    key: Key,
    pending: Pin<Box<dyn Future<Output = Result<Option<Quota>, Error>> + Send>>,
}

impl PendingCheck for Tier<'_> {
    type Refusal = Error;

    fn place(&self) -> usize {
        self.draft.place
    }

    async fn resolve(&mut self, until: Option<Instant>) -> Result<Option<Check>, Error> {
        let found = in_time(until, &mut self.pending).await.unwrap_or_else(|| Err(late("tier")));
        check(self.limits, self.rule, self.draft.clone(), &self.key, found)
    }
}
