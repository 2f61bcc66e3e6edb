//! What a key means for each rule, at once or after a lookup: its check, and its counter.
//!
//! Limits and a key come in; the plan of a decision goes out, with the tiers that are still to be looked up.

use std::convert::Infallible;
use std::pin::Pin;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::limits::{Limits, in_time};
use super::plan::{Draft, PendingCheck, Plan};
use super::rule::Rule;
use crate::core::{Error, Key, Quota};
use crate::lookup::RawValues;
use crate::store::{Answer, Check, Counter, Deadline};

/// Returns the checks of the rules at these places about a key; those whose tier is not cached are still to be looked up.
pub(super) fn plan_for<'a>(limits: &'a Limits, places: &[usize], key: &Key, units: Option<u64>) -> Plan<Tier<'a>> {
    let mut plan = Plan::default();
    for &place in places {
        let rule = &limits.rules[place];
        let draft = Draft::new(place, rule, units.unwrap_or(rule.units()));
        let tier = rule.tiers().map_or(Answer::Ready(None), |lookup| lookup.find(key, RawValues::default));
        match tier {
            Answer::Ready(tier) => plan.add(place, draft.with_tier(rule, tier).check(rule, key.clone())),
            Answer::Pending(pending) => plan.pending.push(Tier { draft, rule, key: key.clone(), pending }),
        }
    }
    plan
}

/// Returns the counter of the rule at a place and a key, of its present tier.
pub(super) async fn counter(limits: &Limits, place: usize, key: &Key) -> Result<Counter, Error> {
    let rule = &limits.rules[place];
    let tier = match rule.tiers() {
        Some(lookup) => lookup.try_find(key, RawValues::default).wait().await?,
        None => None,
    };
    Ok(Draft::new(place, rule, 0).with_tier(rule, tier).check(rule, key.clone()).counter)
}

/// Returns a look at the counter of a key of each of these rules, after the lookups of tiers, and the deadline of the
/// decision.
pub(super) async fn looks(limits: &Limits, places: &[usize], key: &Key) -> (SmallVec<[Check; 4]>, Deadline) {
    let mut plan = plan_for(limits, places, key, Some(0));
    let deadline = if plan.pending.is_empty() { Deadline::none() } else { limits.deadline() };
    limits.resolve_pending(&mut plan, deadline).await.unwrap_or_else(|refused| match refused {});
    (plan.checks, deadline)
}

/// A rule whose quota is being looked up; without one in time it is the rule's own, so it never refuses.
pub(super) struct Tier<'a> {
    draft: Draft,
    rule: &'a Rule,
    key: Key,
    pending: Pin<Box<dyn Future<Output = Option<Quota>> + Send>>,
}

impl PendingCheck for Tier<'_> {
    type Refusal = Infallible;

    fn place(&self) -> usize {
        self.draft.place
    }

    async fn resolve(&mut self, until: Option<Instant>) -> Result<Option<Check>, Infallible> {
        let tier = in_time(until, &mut self.pending).await.flatten();
        Ok(Some(self.draft.clone().with_tier(self.rule, tier).check(self.rule, self.key.clone())))
    }
}
