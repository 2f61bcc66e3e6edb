//! What came of one case, and what is wrong with it.

use std::time::Duration;

use tokio::time::Instant;

use super::app::{BURST, INSTANCES, LIFE, LIMIT, TICK};
use crate::case::{Case, Setup};
use crate::report::{BOUND, BUSY, Latency, told};
use crate::rig::{Judged, Times};
use crate::sample::{By, Request, Sample as SampleOf};
use crate::table::{Row, millis};

type Sample = SampleOf<Request>;

/// So late is a request with a limit, beyond one without, on a machine with nothing else to do.
const ADDED: Duration = Duration::from_millis(20);
/// Connections are back within a second, and ratios three ticks later.
const RETURN: Duration = Duration::from_millis(1_600);
/// Of what is admitted in a second, above and below the limit or the share: counts of few requests vary.
const ERROR: f64 = 0.25;

pub(super) struct Report {
    pub(super) name: &'static str,
    times: Times,
    pub(super) sent: usize,
    pub(super) hung: usize,
    late: usize,
    pub(super) errors: usize,
    pub(super) critical_refused: usize,
    pub(super) calm: Latency,
    pub(super) meanwhile: Latency,
    /// Of requests without a limit, meanwhile.
    pub(super) free: Latency,
    pub(super) worst: Duration,
    /// By ratio and by share, meanwhile, in percent.
    pub(super) shares: [f64; 2],
    /// Admitted in a second: before it, while the last ratio holds, after its life, and when ratios are there again.
    pub(super) rates: [Option<f64>; 4],
    /// By ratio while the last one holds and by share after its life, in percent.
    held: Option<[f64; 2]>,
    pub(super) again: Option<Duration>,
    /// Admitted by ratio and by share.
    admitted: [usize; 2],
    is_outage: bool,
}

impl Report {
    pub(super) fn new(case: &Case, times: Times, all: &[Sample]) -> Self {
        let (free, samples): (Vec<Sample>, Vec<Sample>) = all.iter().partition(|sample| sample.user == Request::Free);
        let is_away_first = case.setup == Setup::Outage;
        let begin = if is_away_first { times.start } else { times.begin };
        let since = within(&samples, begin, times.end + BOUND);
        let meanwhile = within(&samples, begin, times.whole);
        let again = samples.iter().filter(|sample| sample.by == By::Ratio && sample.done >= times.whole);
        // The last reply came up to two ticks before.
        let holds = (begin, begin + LIFE - 3 * TICK);
        let holds = Some(holds).filter(|_| case.is_outage && !is_away_first);
        let shares = Some((if is_away_first { begin } else { begin + LIFE + TICK }, times.whole));
        let shares = shares.filter(|_| case.is_outage);
        let before = Some((times.start + 5 * TICK, times.begin)).filter(|_| !is_away_first);
        let again_from = Some((times.whole + RETURN, times.end));
        let rate = |span: Option<(Instant, Instant)>| span.map(|(from, to)| rate(&samples, from, to));
        let by = |span: (Instant, Instant), by: By| percent(&within(&samples, span.0, span.1), |of| of.by == by);
        let is_admitted_by = |by: By| samples.iter().filter(|sample| sample.is_admitted() && sample.by == by).count();
        Self {
            name: case.name,
            times,
            sent: all.len(),
            hung: all.iter().filter(|sample| sample.status == 0).count(),
            late: samples.iter().filter(|sample| sample.took() > BOUND).count(),
            errors: all.iter().filter(|sample| !matches!(sample.status, 0 | 200 | 429)).count(),
            critical_refused: refused(&samples, Request::Critical),
            calm: Latency::of(&within(&samples, times.start, times.begin)),
            meanwhile: Latency::of(&meanwhile),
            free: Latency::of(&within(&free, begin, times.whole)),
            worst: since.iter().map(Sample::took).max().unwrap_or_default(),
            shares: [By::Ratio, By::Fallback].map(|by| percent(&meanwhile, |sample| sample.by == by)),
            rates: [before, holds, shares, again_from].map(rate),
            held: shares.map(|shares| [holds.map_or(100.0, |holds| by(holds, By::Ratio)), by(shares, By::Fallback)]),
            again: again.map(|sample| sample.done - times.whole).min(),
            admitted: [By::Ratio, By::Fallback].map(is_admitted_by),
            is_outage: case.is_outage,
        }
    }

    /// What holds on any machine, however busy: in each tick of its own a process admits no more than the burst.
    fn wrong_counts(&self) -> Vec<String> {
        let span = self.times.end - self.times.start + BOUND;
        let [by_ratio, by_share] = self.admitted;
        let most_by_ratio = f64::from(BURST) * (span.as_secs_f64() / TICK.as_secs_f64() + 2.0);
        let most_by_share = (f64::from(BURST) + f64::from(LIMIT) * span.as_secs_f64()) / f64::from(INSTANCES.get());
        told([
            (self.hung > 0, format!("{} requests had no answer", self.hung)),
            (self.errors > 0, format!("{} answers were errors", self.errors)),
            (by_ratio as f64 > most_by_ratio, format!("{by_ratio} were admitted by ratio, of {most_by_ratio:.0}")),
            (by_share as f64 > most_by_share, format!("{by_share} were admitted by share, of {most_by_share:.0}")),
            (by_ratio + by_share == 0, "nothing was admitted".to_owned()),
        ])
    }

    fn wrong_times(&self) -> Vec<String> {
        let added = self.meanwhile.p99.saturating_sub(self.free.p99);
        let [_, by_share] = self.shares;
        let limit = f64::from(LIMIT);
        let expected = [limit, limit, limit / f64::from(INSTANCES.get()), limit];
        let mut wrong = told([
            (self.late > 0, format!("{} requests took more than {BOUND:?}", self.late)),
            (added > ADDED, format!("requests with a limit took {added:?} more")),
            (self.critical_refused > 0, format!("{} critical requests were refused", self.critical_refused)),
            (self.again.is_none_or(|again| again > RETURN), format!("ratios were there again after {:?}", self.again)),
            (!self.is_outage && by_share > 0.0, format!("{by_share:.1}% were left to the share")),
        ]);
        if let Some(held) = self.held.filter(|held| held.iter().any(|percent| *percent < 99.0)) {
            wrong.push(format!("by the last ratio within its life and by share after it were {held:.1?}%"));
        }
        for (rate, expected) in self.rates.iter().zip(expected) {
            let is_off = |rate: &f64| (rate / expected - 1.0).abs() > ERROR;
            wrong.extend(rate.filter(is_off).map(|rate| format!("{rate:.0} were admitted in a second, of {expected}")));
        }
        wrong
    }
}

impl Judged for Report {
    fn name(&self) -> &'static str {
        self.name
    }

    fn row(&self) -> Row {
        let [by_ratio, by_share] = self.shares;
        let rate = |rate: &Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
        let rates = self.rates.each_ref().map(rate).join(" / ");
        vec![
            ("requests", self.sent.to_string()),
            ("hung", self.hung.to_string()),
            ("5xx", self.errors.to_string()),
            ("critical refused", self.critical_refused.to_string()),
            ("p99 meanwhile, ms", millis(self.meanwhile.p99)),
            ("p99 without a layer, ms", millis(self.free.p99)),
            ("worst added, ms", millis(self.worst.saturating_sub(self.calm.p50))),
            ("admitted a second: before / within the life / after it / again", rates),
            ("by ratio / share, %", format!("{by_ratio:.1} / {by_share:.1}")),
            ("ratios again, ms", self.again.map_or("never".to_owned(), millis)),
        ]
    }

    fn is_of_a_busy_machine(&self) -> bool {
        self.calm.p99 > BUSY || self.times.stall > BUSY
    }

    fn faults(&self) -> Vec<String> {
        let mut wrong = self.wrong_counts();
        if !self.is_of_a_busy_machine() {
            wrong.extend(self.wrong_times());
        }
        wrong
    }
}

/// Those that were due between two moments.
fn within(samples: &[Sample], from: Instant, until: Instant) -> Vec<Sample> {
    samples.iter().filter(|sample| (from..until).contains(&sample.due)).copied().collect()
}

fn rate(samples: &[Sample], from: Instant, until: Instant) -> f64 {
    let admitted = within(samples, from, until).iter().filter(|sample| sample.is_admitted()).count();
    admitted as f64 / (until - from).as_secs_f64()
}

fn refused(samples: &[Sample], user: Request) -> usize {
    samples.iter().filter(|sample| sample.user == user && sample.status == 429).count()
}

fn percent(samples: &[Sample], is: impl Fn(&Sample) -> bool) -> f64 {
    100.0 * samples.iter().filter(|sample| is(sample)).count() as f64 / samples.len().max(1) as f64
}
