//! Bounds on log lines: clients cause most of them, so each has a rate that no flood exceeds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Policies that are counted separately, because their names are kept. All others share one rate.
const MAX_POLICIES: usize = 1_024;

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) struct Lines {
    most: u64,
    period: Duration,
    policies: Mutex<BTreeMap<Box<str>, Period>>,
}

struct Period {
    began: Instant,
    events: u64,
}

impl Lines {
    pub(crate) const fn new() -> Self {
        Self::with_rate(1, Duration::from_secs(1))
    }

    pub(crate) const fn ten() -> Self {
        Self::with_rate(10, Duration::from_secs(10))
    }

    const fn with_rate(most: u64, period: Duration) -> Self {
        Self { most, period, policies: Mutex::new(BTreeMap::new()) }
    }

    /// Logs an event of a policy, unless the period has its lines already. `line` receives the number of events in the
    /// period before that were not logged, if any.
    pub(crate) fn log(&self, policy: &str, line: impl FnOnce(Option<u64>)) {
        if let Some(more) = self.note(policy, Instant::now()) {
            line((more > 0).then_some(more));
        }
    }

    fn note(&self, policy: &str, now: Instant) -> Option<u64> {
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |period: &Period| now.saturating_duration_since(period.began) >= self.period;
        if policies.len() >= MAX_POLICIES && !policies.contains_key(policy) {
            policies.retain(|_, period| !is_over(period));
        }
        let policy = if policies.len() < MAX_POLICIES || policies.contains_key(policy) { policy } else { "" };
        let Some(period) = policies.get_mut(policy) else {
            policies.insert(policy.into(), Period { began: now, events: 1 });
            return Some(0);
        };
        if is_over(period) {
            let more = period.events.saturating_sub(self.most);
            *period = Period { began: now, events: 1 };
            return Some(more);
        }
        period.events += 1;
        (period.events <= self.most).then_some(0)
    }
}

#[derive(Debug)]
pub(crate) struct OutageLines {
    lines: Lines,
    /// Cause and time of the last line of this outage.
    last: Mutex<Option<(String, Instant)>>,
}

impl OutageLines {
    pub(crate) const fn new() -> Self {
        Self { lines: Lines::ten(), last: Mutex::new(None) }
    }

    pub(crate) fn began(&self, cause: &str, line: impl FnOnce(Option<u64>)) {
        self.lines.log("", |more| {
            *self.last() = Some((cause.to_owned(), Instant::now()));
            line(more);
        });
    }

    /// Logs an outage that continues each minute, and if its cause changes or no line was left when it began.
    pub(crate) fn goes_on(&self, cause: &str, line: impl FnOnce(Option<u64>)) {
        let is_new = |(last, at): &(String, Instant)| last != cause || at.elapsed() >= MINUTE;
        if self.last().as_ref().is_none_or(is_new) {
            self.began(cause, line);
        }
    }

    pub(crate) fn ended(&self, line: impl FnOnce()) {
        if self.last().take().is_some() {
            line();
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("most", &self.most).field("period", &self.period).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_period_has_its_lines_and_the_next_one_the_count_of_the_others() {
        let (lines, now) = (Lines::with_rate(2, 10 * SECOND), Instant::now());
        let noted = [0, 1, 2, 9].map(|second| lines.note("api", now + second * SECOND));
        assert_eq!(noted, [Some(0), Some(0), None, None]);
        assert_eq!(lines.note("login", now + 9 * SECOND), Some(0), "another policy has a rate of its own");
        assert_eq!([10, 10, 10].map(|second| lines.note("api", now + second * SECOND)), [Some(2), Some(0), None]);
        assert_eq!(lines.note("api", now), None, "a thread that comes late begins no period");
    }

    #[test]
    fn an_outage_that_goes_on_is_logged_once_there_is_a_line_for_it() {
        let (outages, logged, ended) = (OutageLines::new(), Cell::new(0), Cell::new(0));
        let begin = |_| logged.set(logged.get() + 1);
        for _ in 0..10 {
            outages.began("refused", begin);
            outages.goes_on("refused", begin);
            outages.ended(|| ended.set(ended.get() + 1));
        }
        outages.began("refused", begin);
        outages.goes_on("refused", begin);
        assert_eq!((logged.get(), ended.get()), (10, 10), "the eleventh has no line yet");
        let earlier = Instant::now().checked_sub(MINUTE).expect("the machine runs for longer");
        outages.lines.policies.lock().unwrap().get_mut("").unwrap().began = earlier;
        outages.goes_on("refused", begin);
        outages.goes_on("refused", begin);
        assert_eq!(logged.get(), 11);
        outages.goes_on("wrong password", begin);
        outages.goes_on("wrong password", begin);
        assert_eq!(logged.get(), 12, "another cause is logged at once");
        *outages.last() = Some(("wrong password".to_owned(), earlier));
        outages.goes_on("wrong password", begin);
        outages.ended(|| ended.set(ended.get() + 1));
        assert_eq!((logged.get(), ended.get()), (13, 11), "and the same one each minute");
    }

    #[test]
    fn names_of_policies_are_neither_kept_without_end_nor_lines_without_bound() {
        let (lines, now) = (Lines::new(), Instant::now());
        let flood = |second| (0..5_000).filter(|n| lines.note(&n.to_string(), now + second * SECOND).is_some()).count();
        // And those that all others share.
        assert_eq!([flood(0), flood(1)], [MAX_POLICIES + 1, MAX_POLICIES + 1]);
        assert!(lines.policies.lock().unwrap().len() <= MAX_POLICIES + 1);
    }
}
