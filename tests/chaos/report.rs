//! What came of one case, and what is wrong with it.

use std::time::Duration;

use crate::bounds::Flood;
use crate::case::Case;
use crate::rig::{Judged, Times};
use crate::sample::{By, FLOODING, Sample, User};
use crate::table::{Row, millis};

/// A decision has 100 ms; the rest is for a busy machine. A request that waits for Redis without end
/// takes longer.
pub(crate) const BOUND: Duration = Duration::from_secs(1);
/// Redis decides again within this time of its return.
pub(crate) const RETURN: Duration = Duration::from_secs(1);
/// What is left to the fallback, at least while Redis is away, and at most else: a machine that stalls
/// for a moment is an outage too.
pub(crate) const MOST_PERCENT: f64 = 50.0;
pub(crate) const FEW_PERCENT: f64 = 10.0;
/// Without a decision by the fallback for so long, Redis is back for all: what comes later has causes of
/// its own.
const QUIET: Duration = Duration::from_millis(250);
/// Connections and caches are new.
pub(crate) const WARMING: Duration = Duration::from_millis(500);
/// Where requests without a limit take longer, before anything happens or in the end, the machine has
/// too much else to do for times to tell anything.
pub(crate) const BUSY: Duration = Duration::from_millis(50);
/// This part of the requests due in a second came to be sent: all but those of connections that were
/// kept waiting.
const LEAST_RATE: f64 = 0.95;

pub(crate) struct Report {
    pub(crate) name: &'static str,
    is_outage: bool,
    pub(crate) sent: usize,
    /// How many requests a second were to be sent.
    rate: f64,
    per_second: f64,
    /// Answered late, or not at all.
    pub(crate) late: usize,
    /// Statuses of 500 and above.
    pub(crate) errors: usize,
    /// Answers that are neither 200, 429 nor an error of the server, or that nobody decided.
    odd: usize,
    /// Refusals of users who are far below their limit.
    pub(crate) wrongly_refused: usize,
    /// Requests without a limit, before anything happens and in the end.
    free: Latency,
    pub(crate) calm: Latency,
    pub(crate) meanwhile: Latency,
    /// The longest any request took since it began to happen.
    pub(crate) worst: Duration,
    pub(crate) floods: Vec<Flood>,
    pub(crate) shares: Shares,
    pub(crate) recovery: Recovery,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// Who decided meanwhile, in percent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub(crate) redis: f64,
    pub(crate) memory: f64,
    pub(crate) fallback: f64,
}

/// How long after the return of Redis it decided for the first time, and until nothing was left to the
/// fallback any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    pub(crate) first: Option<Duration>,
    pub(crate) all: Duration,
    /// What is left to the fallback in the end, in percent.
    left: f64,
}

impl Report {
    pub(crate) fn new(case: &Case, times: Times, all: &[Sample]) -> Self {
        let (free, samples): (Vec<Sample>, Vec<Sample>) = all.iter().partition(|sample| sample.user == User::Free);
        let count = |is: fn(&Sample) -> bool| samples.iter().filter(|sample| is(sample)).count();
        let calm = |sample: &&Sample| sample.due >= times.start + WARMING && sample.done < times.begin;
        // By when they were due only: on a machine that is very busy few end before it happens.
        let quiet = |sample: &&Sample| {
            (sample.due >= times.start + WARMING && sample.due < times.begin) || sample.due + RETURN >= times.end
        };
        let since = samples.iter().filter(|sample| sample.done >= times.begin);
        let meanwhile: Vec<Sample> = since.clone().filter(|sample| sample.due < times.whole).copied().collect();
        let recovery = Recovery::of(&samples, times);
        Self {
            name: case.name,
            is_outage: case.is_outage,
            sent: all.len(),
            rate: f64::from(case.rate),
            per_second: all.len() as f64 / (times.end - times.start).as_secs_f64(),
            late: count(|sample| sample.status == 0 || sample.took() > BOUND),
            errors: count(|sample| sample.status >= 500),
            odd: count(|sample| {
                !matches!(sample.status, 0 | 200 | 429 | 500..) || (sample.status != 0 && sample.is_by(By::Unknown))
            }),
            wrongly_refused: count(|sample| sample.status == 429 && matches!(sample.user, User::Modest(_))),
            free: Latency::of(free.iter().filter(quiet)),
            calm: Latency::of(samples.iter().filter(calm)),
            meanwhile: Latency::of(&meanwhile),
            worst: since.map(Sample::took).max().unwrap_or_default(),
            floods: (0..FLOODING).map(|user| Flood::of(user, case, times, recovery.all, &samples)).collect(),
            shares: Shares::of(&meanwhile),
            recovery,
        }
    }

    fn wrong_answers(&self) -> Vec<String> {
        let wrong = [
            (self.errors > 0, format!("{} answers were errors", self.errors)),
            (self.odd > 0, format!("{} answers were neither 200 nor 429, or nobody's", self.odd)),
            (self.wrongly_refused > 0, format!("{} requests below their limit were refused", self.wrongly_refused)),
        ];
        told(wrong)
    }

    fn wrong_times(&self) -> Vec<String> {
        let Recovery { first, all, left } = self.recovery;
        let fallback = self.shares.fallback;
        let wrong = [
            (self.per_second < LEAST_RATE * self.rate, format!("only {:.0} requests/s were sent", self.per_second)),
            (self.late > 0, format!("{} requests took more than {BOUND:?}", self.late)),
            (first.is_none_or(|first| first > RETURN), format!("Redis decided again after {first:?}")),
            (all > RETURN, format!("the fallback still decided {all:?} after the return of Redis")),
            (left > FEW_PERCENT, format!("{left:.1}% were left to the fallback in the end")),
            (self.is_outage && fallback < MOST_PERCENT, format!("Redis was not away: {fallback:.1}% by the fallback")),
            (!self.is_outage && fallback > FEW_PERCENT, format!("{fallback:.1}% were left to the fallback")),
        ];
        told(wrong)
    }
}

impl Judged for Report {
    fn name(&self) -> &'static str {
        self.name
    }

    fn row(&self) -> Row {
        let Self { shares, recovery, floods, .. } = self;
        let admitted: Vec<String> = floods.iter().map(|flood| flood.admitted().to_string()).collect();
        // All floods are alike.
        let allowed = floods.first().map(|flood| format!("{:.0} to {:.0}", flood.least, flood.most()));
        let again = recovery.first.map_or("never".to_owned(), millis);
        vec![
            ("requests", self.sent.to_string()),
            ("hung", self.late.to_string()),
            ("5xx", self.errors.to_string()),
            ("wrongly refused", self.wrongly_refused.to_string()),
            ("p99 before, ms", millis(self.calm.p99)),
            ("p99 meanwhile, ms", millis(self.meanwhile.p99)),
            ("worst added, ms", millis(self.worst.saturating_sub(self.calm.p50))),
            ("admitted of each flood", admitted.join(", ")),
            ("allowed", allowed.unwrap_or_default()),
            (
                "by Redis / memory / fallback, %",
                format!("{:.1} / {:.1} / {:.1}", shares.redis, shares.memory, shares.fallback),
            ),
            ("first / all again, ms", format!("{again} / {}", millis(recovery.all))),
        ]
    }

    fn is_of_a_busy_machine(&self) -> bool {
        self.free.p99 > BUSY
    }

    /// Times are not judged on a busy machine.
    fn faults(&self) -> Vec<String> {
        let mut wrong = self.wrong_answers();
        wrong.extend(self.floods.iter().filter_map(Flood::excess));
        if !self.is_of_a_busy_machine() {
            wrong.extend(self.wrong_times());
            wrong.extend(self.floods.iter().filter_map(Flood::shortage));
        }
        wrong
    }
}

/// The texts of what is so.
pub(crate) fn told<const N: usize>(wrong: [(bool, String); N]) -> Vec<String> {
    wrong.into_iter().filter_map(|(is_so, text)| is_so.then_some(text)).collect()
}

impl Latency {
    pub(crate) fn of<'a, U: 'a>(samples: impl IntoIterator<Item = &'a Sample<U>>) -> Self {
        let mut took: Vec<Duration> = samples.into_iter().map(Sample::took).collect();
        took.sort_unstable();
        let at = |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or_default();
        Self { p50: at(50), p99: at(99) }
    }
}

impl Shares {
    fn of(samples: &[Sample]) -> Self {
        let share = |by: By| {
            let those = samples.iter().filter(|sample| sample.is_by(by)).count();
            100.0 * those as f64 / samples.len().max(1) as f64
        };
        Self { redis: share(By::Redis), memory: share(By::Memory), fallback: share(By::Fallback) }
    }
}

impl Recovery {
    fn of(samples: &[Sample], Times { whole, end, .. }: Times) -> Self {
        let after = |sample: &Sample| sample.done.saturating_duration_since(whole);
        let first = samples.iter().filter(|sample| sample.is_by(By::Redis) && sample.done >= whole).map(after).min();
        let mut local: Vec<Duration> = samples
            .iter()
            .filter(|sample| sample.is_by(By::Fallback))
            .map(after)
            .filter(|after| !after.is_zero())
            .collect();
        local.sort_unstable();
        let all = local.into_iter().fold(Duration::ZERO, |all, next| if next <= all + QUIET { next } else { all });
        let last: Vec<Sample> = samples.iter().filter(|sample| sample.due + RETURN >= end).copied().collect();
        Self { first, all, left: Shares::of(&last).fallback }
    }
}
