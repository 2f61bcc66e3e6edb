//! What came of one case, and what is wrong with it.

use std::time::Duration;

use tokio::time::Instant;

use super::app::{BURST, INSTANCES, LIFE, LIMIT, TICK};
use crate::case::{Case, Setup};
use crate::report::{BOUND, BUSY};
use crate::rig::Times;
use crate::sample::{By, Latency, Request, Sample as SampleOf, percent};
use crate::table::{Report, millis, told};

type Sample = SampleOf<Request>;

/// So late is a request with a limit, beyond one without, on a machine with nothing else to do.
const ADDED: Duration = Duration::from_millis(20);
/// Connections are back within a second, and ratios three ticks later.
const RETURN: Duration = Duration::from_millis(1_600);
/// Of what is admitted in a second, above and below the limit or the share: counts of few requests vary.
const ERROR: f64 = 0.25;

pub(super) fn report(case: &Case, times: Times, all: &[Sample]) -> Report {
    let (free, samples): (Vec<Sample>, Vec<Sample>) = all.iter().partition(|sample| sample.user == Request::Free);
    let count = |is: &dyn Fn(&Sample) -> bool| samples.iter().filter(|sample| is(sample)).count();
    let is_away_first = case.setup == Setup::Outage;
    let begin = if is_away_first { times.start } else { times.begin };
    let meanwhile = within(&samples, begin, times.whole);
    let worst = within(&samples, begin, times.end + BOUND).iter().map(Sample::took).max().unwrap_or_default();
    let [calm, free] = [within(&samples, times.start, times.begin), within(&free, begin, times.whole)];
    let [calm, free, p99] = [Latency::of(&calm), Latency::of(&free), Latency::of(&meanwhile)];
    let added = p99.p99.saturating_sub(free.p99);
    let is_busy = calm.p99 > BUSY || times.stall > BUSY;

    let hung = all.iter().filter(|sample| sample.status == 0).count();
    let late = count(&|sample| sample.took() > BOUND);
    let errors = all.iter().filter(|sample| !matches!(sample.status, 0 | 200 | 429)).count();
    let critical_refused = count(&|sample| sample.user == Request::Critical && sample.status == 429);
    let [by_ratio, by_share] = [By::Ratio, By::Fallback].map(|by| percent(&meanwhile, by));
    let again = samples.iter().filter(|sample| sample.is_by(By::Ratio) && sample.done >= times.whole);
    let again = again.map(|sample| sample.done - times.whole).min();

    // The last reply came up to two ticks before.
    let holds = Some((begin, begin + LIFE - 3 * TICK)).filter(|_| case.is_outage && !is_away_first);
    let shares = Some((if is_away_first { begin } else { begin + LIFE + TICK }, times.whole));
    let shares = shares.filter(|_| case.is_outage);
    let before = Some((times.start + 5 * TICK, times.begin)).filter(|_| !is_away_first);
    let spans = [before, holds, shares, Some((times.whole + RETURN, times.end))];
    let rates = spans.map(|span| span.map(|(from, until)| rate(&samples, from, until)));
    let of = |span: Option<(Instant, Instant)>, by: By| {
        span.map_or(100.0, |(from, until)| percent(&within(&samples, from, until), by))
    };
    let held = [of(holds, By::Ratio), of(shares, By::Fallback)];

    // In each tick of its own a process admits no more than the burst.
    let span = (times.end - times.start + BOUND).as_secs_f64();
    let admitted_by = |by: By| count(&|sample| sample.is_allowed() && sample.is_by(by));
    let [admitted_by_ratio, admitted_by_share] = [By::Ratio, By::Fallback].map(admitted_by);
    let most_by_ratio = f64::from(BURST) * (span / TICK.as_secs_f64() + 2.0);
    let most_by_share = (f64::from(BURST) + f64::from(LIMIT) * span) / f64::from(INSTANCES.get());

    let told_rates = rates.map(|rate| rate.map_or("-".to_owned(), |rate| format!("{rate:.0}")));
    let row = vec![
        ("requests", all.len().to_string()),
        ("hung", hung.to_string()),
        ("5xx", errors.to_string()),
        ("critical refused", critical_refused.to_string()),
        ("p99 meanwhile, ms", millis(p99.p99)),
        ("p99 without a layer, ms", millis(free.p99)),
        ("worst added, ms", millis(worst.saturating_sub(calm.p50))),
        ("admitted a second: before / within the life / after it / again", told_rates.join(" / ")),
        ("by ratio / share, %", format!("{by_ratio:.1} / {by_share:.1}")),
        ("ratios again, ms", again.map_or("never".to_owned(), millis)),
    ];
    let wrong = told([
        (hung > 0, format!("{hung} requests had no answer")),
        (errors > 0, format!("{errors} answers were errors")),
        (admitted_by_ratio as f64 > most_by_ratio, format!("by ratio {admitted_by_ratio} of {most_by_ratio:.0}")),
        (admitted_by_share as f64 > most_by_share, format!("by share {admitted_by_share} of {most_by_share:.0}")),
        (admitted_by_ratio + admitted_by_share == 0, "nothing was admitted".to_owned()),
    ]);
    let mut wrong_times = told([
        (late > 0, format!("{late} requests took more than {BOUND:?}")),
        (added > ADDED, format!("requests with a limit took {added:?} more")),
        (critical_refused > 0, format!("{critical_refused} critical requests were refused")),
        (again.is_none_or(|again| again > RETURN), format!("ratios were there again after {again:?}")),
        (!case.is_outage && by_share > 0.0, format!("{by_share:.1}% were left to the share")),
        (held.iter().any(|held| *held < 99.0), format!("by the last ratio in its life, and by share: {held:.1?}%")),
    ]);
    let limit = f64::from(LIMIT);
    for (rate, expected) in rates.into_iter().zip([limit, limit, limit / f64::from(INSTANCES.get()), limit]) {
        let is_off = |rate: &f64| (rate / expected - 1.0).abs() > ERROR;
        wrong_times.extend(rate.filter(is_off).map(|rate| format!("{rate:.0} a second of {expected}")));
    }
    Report::new(case, row, is_busy, wrong, wrong_times)
}

/// Those that were due between two moments.
fn within(samples: &[Sample], from: Instant, until: Instant) -> Vec<Sample> {
    samples.iter().filter(|sample| (from..until).contains(&sample.due)).copied().collect()
}

fn rate(samples: &[Sample], from: Instant, until: Instant) -> f64 {
    let admitted = within(samples, from, until).iter().filter(|sample| sample.is_allowed()).count();
    admitted as f64 / (until - from).as_secs_f64()
}
