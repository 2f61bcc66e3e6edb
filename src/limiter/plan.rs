//! The checks of one decision: those that are known, and those that something has to be looked up for.

use std::task::{Context, Poll};

use smallvec::SmallVec;

use super::rule::Rule;
use crate::store::{Check, Counter};
use crate::{Key, Quota};

/// Rules by their places in the list of all.
pub(crate) type Places = SmallVec<[usize; 4]>;

/// The rules that one decision is made by, and what they check.
pub(crate) struct Plan<F> {
    /// The rules whose checks are known.
    pub(crate) rules: Places,
    /// Their checks, in the same order.
    pub(crate) checks: SmallVec<[Check; 2]>,
    /// Those of the other rules, which are looked up before the decision.
    pub(crate) findings: Vec<F>,
}

/// A rule's check while its key or its quota is being looked up.
pub(crate) trait Finding {
    /// What ends the request without a decision.
    type Refusal;

    /// The rule's place.
    fn rule(&self) -> usize;

    /// Goes on with the look-up.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Found<Self::Refusal>>;

    /// What becomes of the rule if the look-up takes too long.
    fn late(&self) -> Found<Self::Refusal>;
}

/// What was found out about a rule.
pub(crate) enum Found<R> {
    /// What it checks.
    Check(Check),
    /// That it does not apply.
    Skip,
    /// That it refuses the request, or that nobody can decide about it.
    Refused(R),
}

impl<F> Default for Plan<F> {
    fn default() -> Self {
        Self { rules: Places::new(), checks: SmallVec::new(), findings: Vec::new() }
    }
}

impl<F> Plan<F> {
    /// Adds the check of a rule that comes after all before.
    pub(crate) fn add(&mut self, rule: usize, check: Check) {
        self.rules.push(rule);
        self.checks.push(check);
    }

    /// Adds checks that were looked up, in the order of the rules.
    pub(super) fn insert(&mut self, found: Vec<(usize, Check)>) {
        for (rule, check) in found {
            let place = self.rules.partition_point(|before| *before < rule);
            self.rules.insert(place, rule);
            self.checks.insert(place, check);
        }
    }
}

/// A rule's check before its key is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft {
    /// The rule's place.
    pub(crate) rule: usize,
    /// Units to take.
    pub(crate) cost: u64,
    /// Whether it may use what is kept for the critical.
    pub(crate) critical: bool,
    pub(crate) quota: Quota,
}

impl Draft {
    pub(crate) fn new(rule: usize, cost: u64, quota: Quota) -> Self {
        Self { rule, cost, critical: true, quota }
    }

    /// The same with the quota of a tier, if there is one.
    pub(crate) fn with_tier(self, tier: Option<Quota>) -> Self {
        Self { quota: tier.unwrap_or(self.quota), ..self }
    }

    /// The check of `rule`, which is the draft's.
    pub(crate) fn check(&self, rule: &Rule, key: Key) -> Check {
        let floor = rule.reserve().filter(|_| !self.critical).map_or(0, |share| share.of(&self.quota));
        let counter = Counter { policy: rule.name().clone(), key, quota: self.quota };
        Check { counter, cost: self.cost, floor, mode: rule.mode(), settles: rule.settles() }
    }
}
