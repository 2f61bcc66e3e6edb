//! What came of one case, and what is wrong with it.

use std::time::Duration;

use crate::bounds::Flood;
use crate::case::Case;
use crate::rig::Times;
use crate::sample::{By, FLOODING, Latency, Sample, User, percent};
use crate::table::{Report, millis, told};

/// A decision has 100 ms; the rest is for a busy machine. A request that waits for Redis without end
/// takes longer.
pub(crate) const BOUND: Duration = Duration::from_secs(1);
/// Redis decides again within this time of its return.
pub(crate) const RETURN: Duration = Duration::from_secs(1);
/// What is left to the fallback, at least while Redis is away, and at most else: a machine that stalls
/// for a moment is an outage too.
pub(crate) const MAX_PERCENT: f64 = 50.0;
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
const MIN_RATE: f64 = 0.95;

pub(crate) fn report(case: &Case, times: Times, all: &[Sample]) -> Report {
    let (free, samples): (Vec<Sample>, Vec<Sample>) = all.iter().partition(|sample| sample.user == User::Free);
    let count = |is: fn(&Sample) -> bool| samples.iter().filter(|sample| is(sample)).count();
    let calm = |sample: &&Sample| sample.due >= times.start + WARMING && sample.done < times.begin;
    // By when they were due only: on a machine that is very busy few end before it happens.
    let quiet = |sample: &&Sample| {
        (sample.due >= times.start + WARMING && sample.due < times.begin) || sample.due + RETURN >= times.end
    };
    let since = samples.iter().filter(|sample| sample.done >= times.begin);
    let meanwhile: Vec<Sample> = since.clone().filter(|sample| sample.due < times.whole).copied().collect();
    let worst = since.map(Sample::took).max().unwrap_or_default();
    let calm = Latency::of(samples.iter().filter(calm));
    let is_busy = Latency::of(free.iter().filter(quiet)).p99 > BUSY;
    let per_second = all.len() as f64 / (times.end - times.start).as_secs_f64();

    let late = count(|sample| sample.status == 0 || sample.took() > BOUND);
    let errors = count(|sample| sample.status >= 500);
    // Neither 200, 429 nor an error of the server, or nobody decided.
    let odd = count(|sample| {
        !matches!(sample.status, 0 | 200 | 429 | 500..) || (sample.status != 0 && sample.is_by(By::Unknown))
    });
    let wrongly_refused = count(|sample| sample.status == 429 && matches!(sample.user, User::Modest(_)));
    let [redis, memory, fallback] = [By::Redis, By::Memory, By::Fallback].map(|by| percent(&meanwhile, by));
    let (first, recovery) = recovery(&samples, times);
    let last: Vec<Sample> = samples.iter().filter(|sample| sample.due + RETURN >= times.end).copied().collect();
    let left = percent(&last, By::Fallback);
    let floods: Vec<_> = (0..FLOODING).map(|user| Flood::of(user, case, times, recovery, &samples)).collect();
    let admitted: Vec<String> = floods.iter().map(|flood| flood.admitted().to_string()).collect();

    let row = vec![
        ("requests", all.len().to_string()),
        ("hung", late.to_string()),
        ("5xx", errors.to_string()),
        ("wrongly refused", wrongly_refused.to_string()),
        ("p99 before, ms", millis(calm.p99)),
        ("p99 meanwhile, ms", millis(Latency::of(&meanwhile).p99)),
        ("worst added, ms", millis(worst.saturating_sub(calm.p50))),
        ("admitted of each flood", admitted.join(", ")),
        // All floods are alike.
        ("allowed", format!("{:.0} to {:.0}", floods[0].least, floods[0].most())),
        ("by Redis / memory / fallback, %", format!("{redis:.1} / {memory:.1} / {fallback:.1}")),
        ("first / all again, ms", format!("{} / {}", first.map_or("never".to_owned(), millis), millis(recovery))),
    ];
    let mut wrong = told([
        (errors > 0, format!("{errors} answers were errors")),
        (odd > 0, format!("{odd} answers were neither 200 nor 429, or nobody's")),
        (wrongly_refused > 0, format!("{wrongly_refused} requests below their limit were refused")),
    ]);
    wrong.extend(floods.iter().filter_map(Flood::excess));
    let mut wrong_times = told([
        (per_second < MIN_RATE * f64::from(case.rate), format!("only {per_second:.0} requests/s were sent")),
        (late > 0, format!("{late} requests took more than {BOUND:?}")),
        (first.is_none_or(|first| first > RETURN), format!("Redis decided again after {first:?}")),
        (recovery > RETURN, format!("the fallback still decided {recovery:?} after the return of Redis")),
        (left > FEW_PERCENT, format!("{left:.1}% were left to the fallback in the end")),
        (case.is_outage && fallback < MAX_PERCENT, format!("Redis was not away: {fallback:.1}% by the fallback")),
        (!case.is_outage && fallback > FEW_PERCENT, format!("{fallback:.1}% were left to the fallback")),
    ]);
    wrong_times.extend(floods.iter().filter_map(Flood::shortage));
    Report::new(case, row, is_busy, wrong, wrong_times)
}

/// How long after the return of Redis it decided for the first time, and until nothing was left to the
/// fallback any more.
fn recovery(samples: &[Sample], times: Times) -> (Option<Duration>, Duration) {
    let after = |sample: &Sample| sample.done.saturating_duration_since(times.whole);
    let by = |by: By| samples.iter().filter(move |sample| sample.is_by(by));
    let first = by(By::Redis).filter(|sample| sample.done >= times.whole).map(after).min();
    let mut local: Vec<Duration> = by(By::Fallback).map(after).filter(|after| !after.is_zero()).collect();
    local.sort_unstable();
    (first, local.into_iter().fold(Duration::ZERO, |all, next| if next <= all + QUIET { next } else { all }))
}
