//! The task that reports once in each tick.
//!
//! It begins with the store, or with a decision, and ends after a while without any, or with the last clone of the
//! store, of which it holds none while it waits. After one that is dropped with its runtime, or that did not wake for a
//! life, the next decision starts another one.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::time::{Instant, sleep_until, timeout};

use super::choose::{Scale, begin, choose, hear, known};
use super::shared::Shared;
use super::tally::{CounterId, Report};
use crate::core::error::Kind;
use crate::core::{Error, OutageLines};

/// No time of a tally is later, in microseconds: 2,283 years since the Unix epoch.
const MOST_TIME: u64 = 1 << 56;

/// The task of a store: what it knows of the tally's clock.
struct Ticking {
    weak: Weak<Shared>,
    /// The number of the task.
    id: u64,
    /// When it first ran.
    began: Option<Instant>,
    /// The time of the tally at the start of the store, in microseconds; `None` before it has replied.
    epoch: Option<u64>,
    /// The tick of the last report.
    last: Option<u64>,
    outage: Outage,
}

/// Since when the tally does not reply.
struct Outage {
    since: Option<Instant>,
    /// Whether it was logged that no ratios are known.
    by_share: bool,
    lines: OutageLines,
}

/// Starts the task, unless there is one or the store was closed; without a runtime there is none.
///
/// A task that should have woken a life ago is replaced: its runtime stands still.
pub(super) fn start(shared: &Arc<Shared>, now: Instant) {
    let (micros, next) = (shared.touch(now), shared.next_task.load(Ordering::Relaxed));
    if micros < next || shared.closed.load(Ordering::Relaxed) {
        return;
    }
    let Some(runtime) = shared.runtime() else { return };
    if shared.next_task.compare_exchange(next, shared.life_from(now), Ordering::SeqCst, Ordering::Relaxed).is_err() {
        return;
    }
    let id = micros + 1;
    shared.task.store(id, Ordering::SeqCst);
    let weak = Arc::downgrade(shared);
    drop(runtime.spawn(Ticking { weak, id, began: None, epoch: None, last: None, outage: Outage::none() }.run()));
}

/// Reports once more, and has the task end.
///
/// The report is a task too: outside of a runtime, where nobody could wait for the tally, it is that of the runtime from
/// which requests came, and is not waited for.
pub(super) async fn close(shared: &Arc<Shared>) {
    if shared.closed.swap(true, Ordering::SeqCst) || shared.task.load(Ordering::SeqCst) == 0 {
        return;
    }
    let counters = choose(shared, Instant::now(), Scale::Exact);
    let report = Report::new(shared.settings.tick, 0).shards(shared.settings.shards).live(false);
    let report = report.counters(counters);
    let Some(runtime) = shared.runtime() else { return };
    let reporting = runtime.spawn(report_last(Arc::clone(shared), report));
    if Runtime::try_current().is_ok() {
        // It fails if the tally panics, or the runtime ends.
        drop(reporting.await);
    }
}

async fn report_last(shared: Arc<Shared>, report: Report) {
    let count = report.counters.len();
    let result = call(&shared, report).await;
    shared.telemetry.ratios_reported(count, result.is_ok());
    if let Err(error) = result {
        shared.telemetry.store_failed(&error);
    }
}

impl Ticking {
    async fn run(mut self) {
        loop {
            let Some(shared) = self.weak.upgrade() else { return };
            let (now, is_replaced) = (Instant::now(), shared.task.load(Ordering::SeqCst) != self.id);
            if is_replaced || shared.closed.load(Ordering::SeqCst) || shared.is_idle(now) {
                return;
            }
            // Not before it runs: on a runtime that has ended it never does, and each decision would begin a tick.
            if self.began.is_none() {
                self.began = Some(now);
                begin(&shared, now);
            }
            self.tick(&shared).await;
            let next = self.next(&shared);
            shared.next_task.store(shared.life_from(next), Ordering::SeqCst);
            drop(shared);
            sleep_until(next).await;
        }
    }

    /// Reports what was offered; the first call only reads the tally's clock, and what all processes know.
    async fn tick(&mut self, shared: &Shared) {
        let began = Instant::now();
        let base = Report::new(shared.settings.tick, 0).shards(shared.settings.shards);
        let report = match self.epoch {
            None => base.live(false),
            Some(epoch) => {
                let current = shared.phase.tick_of(epoch.saturating_add(shared.micros(began)));
                let target = self.last.map_or(current, |last| current.max(last.saturating_add(1)));
                self.last = Some(target);
                Report { target, ..base }.counters(choose(shared, began, Scale::Whole))
            }
        };
        let reported: Vec<CounterId> = report.counters.iter().map(|offered| offered.id).collect();
        let result = call(shared, report).await;
        shared.telemetry.ratios_reported(reported.len(), result.is_ok());
        match result {
            Ok(totals) => {
                let now = Instant::now();
                let middle = u64::midpoint(shared.micros(began), shared.micros(now));
                let time = u64::try_from(totals.now.as_micros()).unwrap_or(MOST_TIME).min(MOST_TIME);
                self.epoch = Some(time.saturating_sub(middle));
                // A clock that stepped back is not waited for until it is there again.
                let current = shared.phase.tick_of(time);
                self.last = self.last.filter(|last| *last <= current + 1);
                self.outage.end();
                hear(shared, &reported, totals, now);
            }
            Err(error) => self.outage.note(shared, &error),
        }
        shared.telemetry.ratios_known(|| known(shared, Instant::now()));
    }

    /// Returns when to call next.
    fn next(&self, shared: &Shared) -> Instant {
        let (now, tick) = (Instant::now(), shared.settings.tick);
        let Some(epoch) = self.epoch else { return now + tick };
        // What was offered in less than a quarter of a tick waits for the next one.
        let least = if self.last.is_none() { tick / 4 } else { Duration::ZERO };
        let from = epoch.saturating_add(shared.micros(now + least));
        let next = shared.phase.next(from, self.last);
        // Whatever the tally's clock is: a wrong reply must neither end the reports nor make them follow each other
        // without a pause. A phase is at most 0.9 of a tick, so a tenth of one later is in the same tick.
        (shared.start + Duration::from_micros(next.saturating_sub(epoch))).clamp(now + tick / 10, now + 2 * tick)
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        let Some(shared) = self.weak.upgrade() else { return };
        if shared.task.compare_exchange(self.id, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            // What was known is not renewed; by a task that was replaced, another one renews it.
            shared.telemetry.ratios_known(|| (0, HashMap::new()));
            // A tally that panics, or a runtime that has ended, leads to no more than one task in a tick.
            let next = shared.micros(self.began.unwrap_or_else(Instant::now) + shared.settings.tick);
            shared.next_task.store(next, Ordering::SeqCst);
        }
    }
}

/// Calls the tally, for a quarter of a tick at most.
async fn call(shared: &Shared, report: Report) -> Result<super::tally::Totals, Error> {
    let limit = shared.settings.tick / 4;
    let late = |late| Error::new(Kind::Timeout, format!("the tally did not reply in {limit:?}")).with_source(late);
    timeout(limit, shared.tally.report(report)).await.map_err(late)?
}

impl Outage {
    fn none() -> Self {
        Self { since: None, by_share: false, lines: OutageLines::new() }
    }

    fn note(&mut self, shared: &Shared, error: &Error) {
        shared.telemetry.store_failed(error);
        let (now, life) = (Instant::now(), shared.settings.life);
        let (is_known, error) = (shared.is_known(now), format!("{error:#}"));
        if self.since.is_none() && is_known {
            self.lines.began(|more| {
                tracing::warn!(
                    code = "tally_unavailable",
                    error,
                    ?life,
                    more,
                    "the tally does not reply: the last ratios hold for their life"
                );
            });
        }
        self.since.get_or_insert(now);
        if !self.by_share && !is_known {
            self.by_share = true;
            self.lines.began(|more| {
                tracing::warn!(
                    code = "tally_unavailable",
                    error,
                    more,
                    "the tally does not reply: this process admits its share of each limit"
                );
            });
        }
    }

    fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.by_share = false;
            self.lines.ended(|| {
                tracing::info!(code = "tally_available", failed_for = ?since.elapsed(), "the tally replies again");
            });
        }
    }
}
