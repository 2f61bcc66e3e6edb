//! Bounds on log lines: clients cause most of them, so each has a rate that no flood exceeds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Policies that are counted separately, because their names are kept. All others share one rate.
const MAX_POLICIES: usize = 1_024;

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
    is_logged: AtomicBool,
}

impl OutageLines {
    pub(crate) const fn new() -> Self {
        Self { lines: Lines::ten(), is_logged: AtomicBool::new(false) }
    }

    pub(crate) fn began(&self, line: impl FnOnce(Option<u64>)) {
        self.lines.log("", |more| {
            self.is_logged.store(true, Ordering::Relaxed);
            line(more);
        });
    }

    /// Logs the beginning of an outage that continues, if no line was left when it began: else the last line would be
    /// the end of the outage before.
    pub(crate) fn goes_on(&self, line: impl FnOnce(Option<u64>)) {
        if !self.is_logged.load(Ordering::Relaxed) {
            self.began(line);
        }
    }

    pub(crate) fn ended(&self, line: impl FnOnce()) {
        if self.is_logged.swap(false, Ordering::Relaxed) {
            line();
        }
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
            outages.began(begin);
            outages.goes_on(begin);
            outages.ended(|| ended.set(ended.get() + 1));
        }
        outages.began(begin);
        outages.goes_on(begin);
        assert_eq!((logged.get(), ended.get()), (10, 10), "the eleventh has no line yet");
        let earlier = Instant::now().checked_sub(10 * SECOND).expect("the machine runs for longer");
        outages.lines.policies.lock().unwrap().get_mut("").unwrap().began = earlier;
        outages.goes_on(begin);
        outages.goes_on(begin);
        outages.ended(|| ended.set(ended.get() + 1));
        assert_eq!((logged.get(), ended.get()), (11, 11));
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
