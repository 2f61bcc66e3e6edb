//! What must be true of slots: they are never more than there may be, and none is left.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate::Source;

use super::plan::{By, PolicyPlan, Setting};
use super::record::Record;
use super::state::State;
use crate::ledger::{Algorithm, Event, What};

/// The number of concurrency.
pub(super) const SLOTS: u8 = 6;

/// Slots live on through all that only delays.
const LONG_LIFE: Duration = Duration::from_secs(10);

impl State {
    /// Those who are served at once hold no more slots than there are.
    pub(super) fn checks_in_progress(&mut self, record: &Record) {
        // What the servers forgot is restored only with the next renewal.
        if self.disturbed.is_some() {
            return;
        }
        let name = record.name();
        let wrong = self.policies.iter().filter(|plan| plan.algorithm == SLOTS && !plan.shadow).find_map(|plan| {
            let life = Duration::from_millis(plan.window_ms);
            let is_held = |other: &&Record| {
                let by_store = other.decision.as_ref().is_some_and(|by| by.source() == Source::Store);
                let is_same = plan.by == By::Everybody || other.user == record.user;
                // A slot lives for so long, even if it cannot be renewed.
                other.is_admitted && other.ended.is_none() && by_store && is_same && other.began.elapsed() < life
            };
            let held: u64 = self.records.iter().filter(is_held).map(|other| other.cost).sum();
            (held > plan.limit).then(|| format!("with {name} {held} slots of {} are held", plan.limit))
        });
        if let Some(wrong) = wrong {
            self.violate(format_args!("{wrong}"));
        }
    }

    /// What was taken was released, and none of it was lost, if nothing else was.
    pub(super) fn wrong_of_slots(&self, setting: &Setting) -> Vec<String> {
        let is_sure = |plan: &PolicyPlan| {
            let only_delays = setting.loses_nothing && Duration::from_millis(plan.window_ms) >= LONG_LIFE;
            !self.is_lossy && self.disturbed.is_none() && (setting.faults == 0 || only_delays)
        };
        let policies = setting.policies.iter().filter(|plan| plan.algorithm == SLOTS && is_sure(plan));
        let windows: Vec<u64> = policies.map(|plan| plan.window_ms * 1_000).collect();
        let mut left: BTreeMap<&[u8], i128> = BTreeMap::new();
        let mut wrong = Vec::new();
        let is_slots =
            |event: &&Event| event.rule.algorithm == Algorithm::Concurrency && windows.contains(&event.rule.window_us);
        for event in self.known_events().filter(is_slots) {
            let left = left.entry(&event.key).or_default();
            match event.what {
                What::Take { .. } => *left += i128::from(event.what.taken()),
                What::Refund { asked, units, .. } | What::Renew { asked, units, .. } if asked != units => {
                    wrong.push(format!("{} slots of {} were lost", asked - units, event.key.escape_ascii()));
                }
                What::Refund { units, .. } => *left -= i128::from(units),
                _ => {}
            }
        }
        let never = left.iter().filter(|(_, left)| **left != 0);
        wrong.extend(never.map(|(key, left)| format!("{left} slots of {} were never released", key.escape_ascii())));
        wrong
    }
}
