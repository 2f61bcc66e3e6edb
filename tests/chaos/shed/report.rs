//! What came of one case, and what is wrong with it.

use std::time::Duration;

use super::app::{INSTANCES, LIFE, OTHERS};
use super::jobs::Seen;
use crate::case::{Case, Setup};
use crate::report::{BOUND, BUSY, FEW_PERCENT, Latency, MOST_PERCENT, RETURN, WARMING, told};
use crate::rig::{Judged, Times};
use crate::sample::{By, Request, Sample as SampleOf, Shedder};
use crate::table::{Row, millis};

type Sample = SampleOf<Request>;

/// Slots are back so soon after the last request, on a machine with nothing else to do, unless replies were lost: their
/// slots are free after a life.
const BACK: Duration = Duration::from_secs(1);

/// What was counted in the server.
pub(super) struct Outcome {
    /// Most requests at once that are not critical, admitted by Redis and by the fallback.
    pub(super) peaks: [u64; 2],
    pub(super) jobs: Seen,
    /// How long after the end no slot was taken.
    pub(super) back: Option<Duration>,
}

pub(super) struct Report {
    pub(super) name: &'static str,
    is_outage: bool,
    losses: u64,
    pub(super) sent: usize,
    /// Without an answer, and answered late.
    pub(super) hung: usize,
    late: usize,
    /// Errors that no shedder is the reason of.
    pub(super) errors: usize,
    pub(super) critical_refused: usize,
    pub(super) shed_by_worker: usize,
    /// In percent of those that are not critical, meanwhile.
    pub(super) shed: f64,
    pub(super) calm: Latency,
    pub(super) meanwhile: Latency,
    pub(super) worst: Duration,
    /// By Redis and by the fallback, meanwhile, in percent.
    pub(super) shares: [f64; 2],
    /// Of the first decision by Redis since it works again.
    pub(super) again: Option<Duration>,
    pub(super) outcome: Outcome,
    /// Jobs that ended before, meanwhile and after it.
    pub(super) jobs: [usize; 3],
    free: Latency,
    stall: Duration,
}

impl Report {
    pub(super) fn new(case: &Case, times: Times, all: &[Sample], outcome: Outcome) -> Self {
        let (free, samples): (Vec<Sample>, Vec<Sample>) = all.iter().partition(|sample| sample.user == Request::Free);
        let count = |is: &dyn Fn(&Sample) -> bool| samples.iter().filter(|sample| is(sample)).count();
        let calm = |sample: &&Sample| sample.due >= times.start + WARMING && sample.done < times.begin;
        // Without Redis from the start it is so all the time before.
        let begin = if case.setup == Setup::Outage { times.start } else { times.begin };
        let since: Vec<Sample> = samples.iter().filter(|sample| sample.done >= begin).copied().collect();
        let meanwhile: Vec<Sample> = since.iter().filter(|sample| sample.due < times.whole).copied().collect();
        let by = |by: By| percent(&meanwhile, |sample| sample.by == by);
        let others: Vec<Sample> = of(&meanwhile, |sample| sample.user == Request::Other);
        let again = samples.iter().filter(|sample| sample.by == By::Redis && sample.done >= times.whole);
        let job = |from, until| outcome.jobs.done.iter().filter(|done| (from..until).contains(*done)).count();
        Self {
            name: case.name,
            is_outage: case.is_outage,
            losses: case.losses.into(),
            sent: all.len(),
            hung: all.iter().filter(|sample| sample.status == 0).count(),
            late: count(&|sample| sample.took() > BOUND),
            errors: all.iter().filter(|sample| !matches!(sample.status, 0 | 200) && sample.shed.is_none()).count(),
            critical_refused: count(&|sample| sample.user == Request::Critical && !matches!(sample.status, 0 | 200)),
            shed_by_worker: count(&|sample| sample.shed == Some(Shedder::Worker)),
            shed: percent(&others, |sample| sample.shed.is_some()),
            calm: Latency::of(samples.iter().filter(calm)),
            meanwhile: Latency::of(&meanwhile),
            worst: since.iter().map(Sample::took).max().unwrap_or_default(),
            shares: [by(By::Redis), by(By::Fallback)],
            again: again.map(|sample| sample.done - times.whole).min(),
            jobs: [(times.start, begin), (begin, times.whole), (times.whole, times.end)].map(|(a, b)| job(a, b)),
            outcome,
            // A handler that blocks holds up what has no layer, too.
            free: Latency::of(free.iter().filter(|sample| sample.done < times.begin || sample.due > times.whole)),
            stall: times.stall,
        }
    }

    /// What holds on any machine, however busy.
    fn wrong_counts(&self) -> Vec<String> {
        let [by_redis, by_fallback] = self.outcome.peaks;
        let (lost, jobs) = (self.outcome.back.is_none(), &self.outcome.jobs);
        let share = OTHERS.div_ceil(INSTANCES.get().into());
        told([
            (self.hung > 0, format!("{} requests had no answer", self.hung)),
            (self.errors > 0, format!("{} answers were errors, and not shed", self.errors)),
            (self.critical_refused > 0, format!("{} critical requests were refused", self.critical_refused)),
            // Each time Redis forgets, all slots are free.
            (by_redis > OTHERS * (1 + self.losses), format!("Redis admitted {by_redis} others at once")),
            (by_fallback > share, format!("the fallback admitted {by_fallback} others at once")),
            (lost, format!("slots were taken for longer than {LIFE:?} after the last request")),
            (self.jobs[1] == 0, "no job was done meanwhile".to_owned()),
            (jobs.begun != jobs.done.len() as u64, format!("{} of {} jobs ended", jobs.done.len(), jobs.begun)),
        ])
    }

    fn wrong_times(&self) -> Vec<String> {
        let [_, fallback] = self.shares;
        let late_back = !self.is_outage && self.outcome.back.is_some_and(|back| back > BACK);
        told([
            (self.late > 0, format!("{} requests took more than {BOUND:?}", self.late)),
            (self.shed_by_worker > 0, format!("{} were shed as requests wait for Redis", self.shed_by_worker)),
            (self.again.is_none_or(|again| again > RETURN), format!("Redis decided again after {:?}", self.again)),
            (self.is_outage && fallback < MOST_PERCENT, format!("Redis was not away: {fallback:.1}% by the fallback")),
            (!self.is_outage && fallback > FEW_PERCENT, format!("{fallback:.1}% were left to the fallback")),
            (late_back, format!("slots were back {:?} after the end", self.outcome.back)),
        ])
    }
}

impl Judged for Report {
    fn name(&self) -> &'static str {
        self.name
    }

    fn row(&self) -> Row {
        let [by_redis, by_fallback] = self.shares;
        vec![
            ("requests", self.sent.to_string()),
            ("hung", self.hung.to_string()),
            ("5xx but shed", self.errors.to_string()),
            ("critical refused", self.critical_refused.to_string()),
            ("others shed, %", format!("{:.1}", self.shed)),
            ("p99 before, ms", millis(self.calm.p99)),
            ("p99 meanwhile, ms", millis(self.meanwhile.p99)),
            ("worst added, ms", millis(self.worst.saturating_sub(self.calm.p50))),
            ("by Redis / fallback, %", format!("{by_redis:.1} / {by_fallback:.1}")),
            ("Redis again, ms", self.again.map_or("never".to_owned(), millis)),
            ("slots back, ms", self.outcome.back.map_or("never".to_owned(), millis)),
            ("jobs before / meanwhile / after", self.jobs.map(|jobs| jobs.to_string()).join(" / ")),
        ]
    }

    fn is_of_a_busy_machine(&self) -> bool {
        self.free.p99 > BUSY || self.stall > BUSY
    }

    fn faults(&self) -> Vec<String> {
        let mut wrong = self.wrong_counts();
        if !self.is_of_a_busy_machine() {
            wrong.extend(self.wrong_times());
        }
        wrong
    }
}

fn of(samples: &[Sample], is: impl Fn(&Sample) -> bool) -> Vec<Sample> {
    samples.iter().filter(|sample| is(sample)).copied().collect()
}

fn percent(samples: &[Sample], is: impl Fn(&Sample) -> bool) -> f64 {
    100.0 * of(samples, is).len() as f64 / samples.len().max(1) as f64
}
