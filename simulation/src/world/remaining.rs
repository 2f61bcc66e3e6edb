//! What must be true of what is left, as decisions tell it.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::{Decision, Outcome, Source};

use super::client::key_of_user;
use super::plan::{Around, By, PolicyPlan};
use super::record::Record;
use super::state::State;
use crate::ledger::{Event, What};

/// The number of the fixed window.
const FIXED: u8 = 1;

/// The number of the sliding log.
const LOG: u8 = 4;

impl State {
    /// The check of a request that an outcome is of.
    pub(super) fn take(&self, cost: u64, outcome: &tollgate::Outcome) -> Option<&Event> {
        let window = outcome.quota().window();
        self.events.iter().rev().find(|event| {
            u128::from(event.rule.window_us) == window.as_micros()
                && matches!(event.what, What::Take { cost: taken, .. } if taken == cost)
        })
    }

    /// The checks that may be a request's: its own, where no other one costs as much, and else those of its counter
    /// that ran while it waited.
    pub(super) fn takes(&self, record: &Record, outcome: &Outcome) -> Vec<&Event> {
        if !self.is_crowd {
            return self.take(record.cost, outcome).into_iter().collect();
        }
        let waited = u64::try_from(record.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let since = self.clock().saturating_sub(waited);
        let name = name_of(&self.policies[0], record.user);
        let is_its = |event: &&Event| {
            let is_alike = matches!(event.what, What::Take { cost, .. } if cost == record.cost);
            let mut parts = event.key.windows(name.len());
            is_alike && event.at_us >= since && parts.any(|part| part == name.as_bytes())
        };
        self.events.iter().filter(is_its).collect()
    }

    /// What the store tells is what was left then.
    pub(super) fn checks_remaining(&mut self, record: &Record, decision: &Decision) {
        if self.is_crowd && self.disturbed.is_some_and(|disturbed| disturbed >= record.began) {
            return;
        }
        for outcome in decision.outcomes() {
            let (who, name, told) = (record.name(), outcome.policy(), outcome.remaining());
            if outcome.is_banned() {
                // Whatever the quota has left.
                if told > 0 {
                    return self.violate(format_args!("{who}: {name} is banned, and has {told} left"));
                }
                continue;
            }
            let left = self.left(record, decision, outcome);
            let is_right = left.iter().any(|left| left.is_none_or(|left| left == told));
            if !is_right && (self.is_crowd || !left.is_empty()) {
                return self.violate(format_args!("{who}: {name} has {left:?} left, and says {told}"));
            }
        }
    }

    /// What was left after the checks that may be a request's; `None` where nobody can know.
    fn left(&self, record: &Record, decision: &Decision, outcome: &Outcome) -> Vec<Option<u64>> {
        let is_its = |event: &&Event| {
            let is_taken = event.what.taken() > 0;
            // What a part took goes back when another one refuses.
            if self.is_crowd { is_taken == decision.is_allowed() } else { decision.is_allowed() || !is_taken }
        };
        self.takes(record, outcome).into_iter().filter(is_its).map(|event| event.remaining).collect()
    }

    /// What a store before the shared one tells is not more than what this process left, were it alone.
    pub(super) fn checks_bounds(&mut self, record: &Record, decision: &Decision) {
        let is_counted = matches!(decision.source(), Source::Store | Source::Lease);
        for outcome in decision.outcomes().iter().filter(|_| is_counted) {
            let (told, most) = (outcome.remaining(), self.most_left(record, outcome));
            if told > most {
                let name = outcome.policy();
                return self
                    .violate(format_args!("{}: {name} has {most} left at most, and says {told}", record.name()));
            }
        }
    }

    /// The most that can be left of a counter after a request.
    fn most_left(&self, record: &Record, outcome: &Outcome) -> u64 {
        let (capacity, plan) = (outcome.quota().capacity(), &self.policies[0]);
        let Some(within) = self.kept(record, outcome).filter(|_| self.is_crowd && !returns(plan)) else {
            return capacity;
        };
        let is_leased = self.is_leased(record);
        let spent = self.records.iter().filter(|other| {
            let by = other.decision.as_ref().map(Decision::source);
            // What was asked of the store by itself changes nothing in what is told of leases.
            let is_paid = by == Some(Source::Lease) || by == Some(Source::Store) && !is_leased;
            let is_same = other.process == record.process && (other.user == record.user || plan.by == By::Everybody);
            // What others take meanwhile may not be told yet.
            let is_before = other.decided.is_some_and(|decided| decided < record.began);
            let is_told = is_before || other.place == record.place;
            // Debts are given up whose charge was not answered.
            let is_settled = self.processes[record.process].around == Around::Lease;
            let is_kept =
                is_settled || !other.is_held_up && self.blocked_between(other.began, Instant::now()).is_zero();
            other.is_admitted && is_kept && is_paid && is_same && is_told && other.began.elapsed() < within
        });
        capacity.saturating_sub(spent.map(|other| other.cost).sum())
    }

    /// For how long units have surely been taken that were since; `None` if they may have come back at any time.
    fn kept(&self, record: &Record, outcome: &Outcome) -> Option<Duration> {
        let window = outcome.quota().window();
        let within = match self.policies[0].algorithm {
            FIXED => Duration::from_micros(self.clock() % u64::try_from(window.as_micros()).ok()?),
            LOG => window,
            _ => return None,
        };
        // A lease may have been taken so long before it is spent.
        let early = if self.is_leased(record) { window / 10 } else { Duration::ZERO };
        within.checked_sub(early).filter(|_| self.disturbed.is_none())
    }

    fn is_leased(&self, record: &Record) -> bool {
        matches!(self.processes[record.process].around, Around::Lease | Around::Overdraft)
    }
}

/// What the name of a counter contains that is a user's, or everybody's.
fn name_of(plan: &PolicyPlan, user: u8) -> String {
    match key_of_user(user).filter(|_| plan.by != By::Everybody) {
        Some(key) => format!("{{{}}}", key.as_str()),
        None => "{global:".to_owned(),
    }
}

/// Whether units of admitted requests may come back.
fn returns(plan: &PolicyPlan) -> bool {
    plan.metered || plan.successes || plan.refund_dropped
}
