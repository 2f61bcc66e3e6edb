//! What came of one case, and what is wrong with it.

use std::time::Duration;

use super::app::{INSTANCES, LIFE, OTHERS};
use super::jobs::Seen;
use crate::case::{Case, Setup};
use crate::report::{BOUND, BUSY, FEW_PERCENT, MAX_PERCENT, RETURN, WARMING};
use crate::rig::Times;
use crate::sample::{By, Latency, Request, Sample as SampleOf, Shedder, percent};
use crate::table::{Report, millis, told};

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

pub(super) fn report(case: &Case, times: Times, all: &[Sample], outcome: &Outcome) -> Report {
    let (free, samples): (Vec<Sample>, Vec<Sample>) = all.iter().partition(|sample| sample.user == Request::Free);
    let count = |is: fn(&Sample) -> bool| samples.iter().filter(|sample| is(sample)).count();
    let calm = samples.iter().filter(|sample| sample.due >= times.start + WARMING && sample.done < times.begin);
    let calm = Latency::of(calm);
    // A handler that blocks holds up what has no layer, too.
    let free = Latency::of(free.iter().filter(|sample| sample.done < times.begin || sample.due > times.whole));
    let is_busy = free.p99 > BUSY || times.stall > BUSY;
    // Without Redis from the start it is so all the time before.
    let begin = if case.setup == Setup::Outage { times.start } else { times.begin };
    let since = samples.iter().filter(|sample| sample.done >= begin);
    let meanwhile: Vec<Sample> = since.clone().filter(|sample| sample.due < times.whole).copied().collect();
    let worst = since.map(Sample::took).max().unwrap_or_default();

    let hung = all.iter().filter(|sample| sample.status == 0).count();
    let late = count(|sample| sample.took() > BOUND);
    let errors = all.iter().filter(|sample| !matches!(sample.status, 0 | 200) && sample.shed.is_none()).count();
    let critical_refused = count(|sample| sample.user == Request::Critical && !matches!(sample.status, 0 | 200));
    let shed_by_worker = count(|sample| sample.shed == Some(Shedder::Worker));
    let others = meanwhile.iter().filter(|sample| sample.user == Request::Other);
    let shed = others.clone().filter(|sample| sample.shed.is_some()).count();
    let shed = 100.0 * shed as f64 / others.count().max(1) as f64;
    let [redis, fallback] = [By::Redis, By::Fallback].map(|by| percent(&meanwhile, by));
    let again = samples.iter().filter(|sample| sample.is_by(By::Redis) && sample.done >= times.whole);
    let again = again.map(|sample| sample.done - times.whole).min();

    let Outcome { peaks: [by_redis, by_fallback], jobs: Seen { begun, done }, back } = outcome;
    let spans = [(times.start, begin), (begin, times.whole), (times.whole, times.end)];
    let jobs = spans.map(|(from, until)| done.iter().filter(|done| (from..until).contains(*done)).count());
    let share = OTHERS.div_ceil(INSTANCES.get().into());

    let row = vec![
        ("requests", all.len().to_string()),
        ("hung", hung.to_string()),
        ("5xx but shed", errors.to_string()),
        ("critical refused", critical_refused.to_string()),
        ("others shed, %", format!("{shed:.1}")),
        ("p99 before, ms", millis(calm.p99)),
        ("p99 meanwhile, ms", millis(Latency::of(&meanwhile).p99)),
        ("worst added, ms", millis(worst.saturating_sub(calm.p50))),
        ("by Redis / fallback, %", format!("{redis:.1} / {fallback:.1}")),
        ("Redis again, ms", again.map_or("never".to_owned(), millis)),
        ("slots back, ms", back.map_or("never".to_owned(), millis)),
        ("jobs before / meanwhile / after", jobs.map(|jobs| jobs.to_string()).join(" / ")),
    ];
    // What holds on any machine, however busy.
    let wrong = told([
        (hung > 0, format!("{hung} requests had no answer")),
        (errors > 0, format!("{errors} answers were errors, and not shed")),
        (critical_refused > 0, format!("{critical_refused} critical requests were refused")),
        // Each time Redis forgets, all slots are free.
        (*by_redis > OTHERS * (1 + u64::from(case.losses)), format!("Redis admitted {by_redis} others at once")),
        (*by_fallback > share, format!("the fallback admitted {by_fallback} others at once")),
        (back.is_none(), format!("slots were taken for longer than {LIFE:?} after the last request")),
        (jobs[1] == 0, "no job was done meanwhile".to_owned()),
        (*begun != done.len() as u64, format!("{} of {begun} jobs ended", done.len())),
    ]);
    let wrong_times = told([
        (late > 0, format!("{late} requests took more than {BOUND:?}")),
        (shed_by_worker > 0, format!("{shed_by_worker} were shed as requests wait for Redis")),
        (again.is_none_or(|again| again > RETURN), format!("Redis decided again after {again:?}")),
        (case.is_outage && fallback < MAX_PERCENT, format!("Redis was not away: {fallback:.1}% by the fallback")),
        (!case.is_outage && fallback > FEW_PERCENT, format!("{fallback:.1}% were left to the fallback")),
        (!case.is_outage && back.is_some_and(|back| back > BACK), format!("slots were back {back:?} after the end")),
    ]);
    Report::new(case, row, is_busy, wrong, wrong_times)
}
