//! The waits that refusals have are true: who comes back then is admitted, unless something else happened; and who
//! comes back before is not.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::policy::Algorithm;
use tollgate::store::Mode;
use tollgate::{Decision, Source};

use super::super::caller::Record;
use super::super::client::NAMES;
use super::super::plan::Around;
use super::super::{State, World};
use super::WAYS;

/// Who waits for longer does not come back.
const LONGEST: Duration = Duration::from_secs(20);

/// How long a call and its reply are on their ways at most while nothing is wrong, with a grain of timers.
const CALL: Duration = Duration::from_millis(30);

impl State {
    /// How long the caller of a refused request waits before it comes back.
    pub(in super::super) fn wait_told(&self, place: usize, early: bool) -> Option<Duration> {
        let record = &self.records[place];
        let wait = record.decision.as_ref().filter(|_| record.status == Some(429)).and_then(Decision::retry_after)?;
        if !early {
            return Some(wait).filter(|wait| *wait <= LONGEST);
        }
        let before = wait.checked_sub(wait / 10 + CALL).filter(|_| wait > 3 * CALL);
        before.filter(|before| *before <= LONGEST)
    }

    /// The policies that say when to come back, and do not have slots: when one is free, nobody knows.
    fn is_sure(&self, record: &Record) -> bool {
        let is_plain = self.plan.setting.processes[record.process].around == Around::Plain;
        let has_slots = self.plan.setting.policies.iter().any(|policy| policy.algorithm == Algorithm::Concurrency);
        let is_of_store = matches!(record.source(), Some(Source::Store | Source::DenyCache));
        is_plain && !has_slots && is_of_store && !self.is_replaced && !self.may_be_reset
    }

    /// Who was refused and came back is admitted, or not.
    pub(in super::super) fn checks_return(&mut self, first: usize, second: usize, early: bool) {
        let [first, second] = [first, second].map(|place| self.records[place].clone());
        let (Some(before), Some(after)) = (&first.decision, &second.decision) else { return };
        // Whoever refuses may also have a ban begin, whose end it does not know.
        let has_ban = self.plan.setting.policies.iter().any(|policy| policy.ban.is_some()) && !before.is_banned();
        let (from, now) = (first.began, Instant::now());
        let is_quiet = !self.is_touched(&first, [first.place, second.place], from, now)
            && self.is_calm_since(from)
            && !self.is_disturbed(from.checked_sub(WAYS).unwrap_or(from), now);
        if has_ban || !is_quiet || !self.is_sure(&first) || !self.is_sure(&second) {
            return;
        }
        self.trace.meet(if early { "a caller that comes back too early" } else { "a caller that comes back" });
        let refuses = |decision: &Decision| decision.denied_by().any(|outcome| outcome.mode() == Mode::Enforce);
        if refuses(after) != early {
            let (name, wait, told) = (second.name(), before.retry_after(), after.outcomes());
            self.violate(format_args!("{name} came back, after it had been told to wait {wait:?}, and is told {told:?}"));
        }
    }
}

impl World {
    /// A request that is refused from the cache would be refused by the store: it is asked, where one process changes
    /// counters, and did not change them lately.
    pub(in super::super) async fn checks_cached(&self, place: usize) {
        let record = self.lock().records[place].clone();
        let is_alone = self.lock().plan.setting.processes.len() == 1 && self.lock().is_sure(&record);
        if record.source() != Some(Source::DenyCache) || !is_alone {
            return;
        }
        for (policy, name) in NAMES.iter().enumerate() {
            let refused = record.outcome(policy).filter(|(outcome, _)| !outcome.is_allowed());
            let Some(wait) = refused.and_then(|(outcome, _)| outcome.retry_after()) else { continue };
            let Some(left) = self.left(policy, record.user).await else { continue };
            let (mut state, from, now) = (self.lock(), record.began, Instant::now());
            let is_quiet = !state.is_touched(&record, [record.place; 2], from, now)
                && state.is_calm_since(from)
                && !state.is_disturbed(from.checked_sub(2 * WAYS).unwrap_or(from), now);
            if is_quiet && left >= record.cost && wait > now - from + CALL {
                let who = record.name();
                state.violate(format_args!("{who} is refused from the cache for {wait:?}, and {name} has {left} units left"));
            }
        }
    }
}
