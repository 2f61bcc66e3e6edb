//! Metrics of a ratio store, registered with their first event, and log lines whose rate is bounded.

#![cfg_attr(
    not(feature = "metrics"),
    allow(unused_variables, clippy::unused_self, reason = "nothing is counted without the feature")
)]

use std::collections::HashMap;
#[cfg(feature = "metrics")]
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

#[cfg(feature = "metrics")]
use metrics::{Counter, Unit, counter, describe_counter, describe_gauge, gauge};
use tollgate::Outcome;
use tollgate::policy::PolicyName;
use tollgate::store::Check;

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    #[cfg(feature = "metrics")]
    policies: RwLock<Vec<(PolicyName, Counter)>>,
}

#[allow(clippy::cast_precision_loss, reason = "there are far fewer counters and processes")]
impl Metrics {
    pub(crate) fn reported(counters: usize, is_replied: bool) {
        #[cfg(feature = "metrics")]
        {
            const REPORTS: &str = "tollgate_ratio_reports_total";
            const COUNTERS: &str = "tollgate_ratio_counters";
            describe_counter!(REPORTS, Unit::Count, "Reports of ratio stores to their tally, by whether it replied.");
            describe_gauge!(COUNTERS, Unit::Count, "Counters in the last report of a ratio store.");
            counter!(REPORTS, "result" => "replied").increment(is_replied.into());
            counter!(REPORTS, "result" => "failed").increment((!is_replied).into());
            gauge!(COUNTERS).set(counters as f64);
        }
    }

    /// `collect` is only called if the gauges are recorded.
    pub(crate) fn known(&self, collect: impl FnOnce() -> (u64, HashMap<PolicyName, f64>)) {
        #[cfg(feature = "metrics")]
        {
            const LIVE: &str = "tollgate_ratio_live";
            const HIGHEST: &str = "tollgate_ratio_highest";
            describe_gauge!(LIVE, Unit::Count, "Processes that reported in the last tick; 0 if that is not known.");
            describe_gauge!(
                HIGHEST,
                Unit::Count,
                "The highest drop ratio of a policy's keys in the last tick, from 0 to 1."
            );
            let (live, highest) = collect();
            gauge!(LIVE).set(live as f64);
            for policy in highest.keys() {
                self.with(policy, |_| {});
            }
            for (policy, _) in &*self.policies.read().unwrap_or_else(PoisonError::into_inner) {
                let ratio = highest.get(policy).copied().unwrap_or_default();
                gauge!(HIGHEST, "policy" => policy.to_string()).set(ratio);
            }
        }
    }

    pub(crate) fn applied(&self, checks: &[Check], outcomes: &[Outcome]) {
        #[cfg(feature = "metrics")]
        for (check, outcome) in checks.iter().zip(outcomes) {
            if !outcome.is_allowed() && outcome.retry_is_guess() {
                self.with(check.counter.policy(), |dropped| dropped.increment(check.cost));
            }
        }
    }
}

#[cfg(feature = "metrics")]
impl Metrics {
    fn with(&self, policy: &PolicyName, count: impl FnOnce(&Counter)) {
        const DROPPED: &str = "tollgate_ratio_dropped_units_total";
        let is = |(name, _): &&(PolicyName, Counter)| name == policy;
        if let Some((_, dropped)) = self.policies.read().unwrap_or_else(PoisonError::into_inner).iter().find(is) {
            return count(dropped);
        }
        let text = "Units that a policy dropped by ratios, or, in shadow mode, would have dropped.";
        describe_counter!(DROPPED, Unit::Count, text);
        let dropped = counter!(DROPPED, "policy" => policy.to_string());
        count(&dropped);
        let mut policies = self.policies.write().unwrap_or_else(PoisonError::into_inner);
        if !policies.iter().any(|(name, _)| name == policy) {
            policies.push((policy.clone(), dropped));
        }
    }
}

/// Several stores may set the gauges: they show the last value, and 0 when a store is dropped.
#[cfg(feature = "metrics")]
impl Drop for Metrics {
    fn drop(&mut self) {
        let policies = self.policies.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !policies.is_empty() {
            for (policy, _) in &*policies {
                gauge!("tollgate_ratio_highest", "policy" => policy.to_string()).set(0.0);
            }
            gauge!("tollgate_ratio_live").set(0.0);
            gauge!("tollgate_ratio_counters").set(0.0);
        }
    }
}

const MAX_LINES: u64 = 10;
const PERIOD: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct OutageLines {
    period: Option<(Instant, u64)>,
    is_logged: bool,
}

impl OutageLines {
    pub(crate) fn began(&mut self, line: impl FnOnce(Option<u64>)) {
        let (began, count) = self.period.filter(|(began, _)| began.elapsed() < PERIOD).unwrap_or((Instant::now(), 0));
        let left_out = self.period.filter(|_| count == 0).map_or(0, |(_, count)| count.saturating_sub(MAX_LINES));
        self.period = Some((began, count + 1));
        self.is_logged = count < MAX_LINES;
        if self.is_logged {
            line((left_out > 0).then_some(left_out));
        }
    }

    pub(crate) fn ended(&mut self, line: impl FnOnce()) {
        if std::mem::take(&mut self.is_logged) {
            line();
        }
    }
}
