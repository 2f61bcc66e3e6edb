//! Flows of a key, by the rules of a limiter.

use std::sync::Weak;

use super::Limiter;
use super::flow::{Each, Flow, can_flow};
use super::limits::Limits;
use super::resolve::looks;
use super::rule::Rule;
use crate::core::{Error, Key, Lines};
use crate::store::{Check, Counter, Settles};

impl Limiter {
    /// Returns a flow of a key: units that pass one after the other, such as bytes or messages.
    ///
    /// Each unit is taken from every rule, in portions: [`Flow`] has the rules, and what it costs. A first portion is
    /// leased before this returns, unless the store refuses it. The [cost](crate::Rule::cost) of the rules does not
    /// matter.
    ///
    /// The limiter of a [layer](crate::LiveLayer::limiter) takes each unit from all policies that it uses for the
    /// key, which count requests; so give messages a limiter of their own, or [name](Self::only) a policy.
    ///
    /// A portion that is refused is no strike of a [ban](crate::Rule::ban). While the key is banned no more is leased,
    /// and [`Flow::decision`](crate::bandwidth::Flow::decision) has it; what was leased before still passes.
    ///
    /// If rules are replaced, flows follow from their next portion on. A flow keeps the quota of its tier.
    ///
    /// # Errors
    ///
    /// If no rule is for the key, as of [`check`](Self::check). If a rule, or the tier of the key, has a
    /// [concurrency](crate::Quota::concurrency) or a [leaky bucket](crate::Quota::leaky_bucket), or the store cannot
    /// refund units. If the store fails, and [`OnFailure::Deny`](crate::OnFailure::Deny) is set.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, nothing stays taken but a portion whose decision is in flight, which is refunded when
    /// it comes.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("messages", Quota::per_second(50))]);
    /// let flow = limiter.flow(&Key::new("user", "ada")).await?;
    /// flow.check(1).await?;
    /// assert!(limiter.flow(&Key::new("user", "bob")).await?.try_acquire(51).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flow(&self, key: &Key) -> Result<Flow, Error> {
        let limits = &*self.in_force.now();
        let places = self.places(limits, key)?;
        let mut rules = places.iter().map(|place| &limits.rules[*place]);
        rules.try_for_each(|rule| can_flow(rule.name(), rule.quota()))?;
        limits.supports_refunds(&places)?;
        let checks = looks(limits, &places, key).await?;
        checks.iter().try_for_each(|check| can_flow(check.counter.policy(), check.counter.quota()))?;
        let flow = flow_of(limits, checks);
        match flow.begin().await {
            Err(error) if error.is_unavailable() => Err(error.into_error()),
            _ => Ok(flow),
        }
    }
}

/// Returns the flow of the counters of these checks, which were made of `limits`. Each portion is that of the rules in
/// force; a tier's quota that has no portions leaves a rule its own.
pub(crate) fn flow_of(limits: &Limits, checks: impl IntoIterator<Item = Check>) -> Flow {
    let rule_of = |check: &Check| limits.rules.iter().find(|rule| check.counter.policy() == rule.name());
    let leased = |mut check: Check| {
        if let (Err(_), Some(rule)) = (can_flow(check.counter.policy(), check.counter.quota()), rule_of(&check)) {
            warn_of_tier(rule.name().as_str());
            check.counter = Counter::of(rule.limit(None), check.counter.key().clone());
        }
        // It may be that of a share of the quota.
        if let Some(share) = rule_of(&check).and_then(Rule::reserve).filter(|_| check.floor > 0) {
            check.floor = share.of(check.counter.quota());
        }
        // A portion that is refused is no strike, as clients do not choose portions; but nothing is leased to a banned key.
        check.cost(0).settles(Settles::ByOutcome).without_strikes()
    };
    let checks: Each = checks.into_iter().map(leased).collect();
    // A flow keeps the quota of a tier.
    let follows: Vec<bool> =
        checks.iter().map(|check| rule_of(check).is_some_and(|rule| check.counter.quota() == rule.quota())).collect();
    let source = Weak::clone(&limits.source);
    let now = move |checks: &[Check]| {
        let Some(now) = source.upgrade().map(|source| source.now()) else { return checks.into() };
        let rules = &now.rules;
        let each = checks.iter().zip(&follows);
        each.filter_map(|(check, follows)| if *follows { by_rules(check, rules) } else { Some(check.clone()) })
            .collect()
    };
    Flow::new(&limits.pools, checks, Box::new(now), &limits.store)
}

/// Logs that a tier's quota cannot limit bytes.
fn warn_of_tier(policy: &str) {
    static TIER: Lines = Lines::new();
    TIER.log(policy, |more| {
        tracing::warn!(
            code = "tier_without_portions",
            policy,
            more,
            "the quota of a tier cannot limit bytes, which take units in portions: the policy's own quota does"
        );
    });
}

/// Returns a check by the rules in force; a rule that is gone limits no more.
fn by_rules(check: &Check, rules: &[Rule]) -> Option<Check> {
    let rule = rules.iter().find(|rule| check.counter.policy() == rule.name())?;
    let ban = rule.ban_check().map(Box::new);
    let mut check = Check { ban, ..check.clone().mode(rule.mode()) }.without_strikes();
    if can_flow(rule.name(), rule.quota()).is_ok() {
        check.counter = Counter::of(rule.limit(None), check.counter.key().clone());
    }
    Some(check)
}
