//! The task that reports once in each tick.
//!
//! It begins with the store, or with a decision, and ends after a while without any, or with the last clone of the
//! store, of which it holds none while it waits. A task that is dropped with its runtime clears the mark, and the next
//! decision starts another one.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::choose::{begin, choose, hear, known};
use super::shared::Shared;
use super::tally::{CounterId, Report};
use crate::core::Error;
use crate::core::error::Kind;

/// The latest time of a tally, in microseconds: none after it is near an overflow.
const LATEST: u64 = 1 << 62;

/// The task of a store: what it knows of the tally's clock.
struct Ticking {
    weak: Weak<Shared>,
    /// The time of the tally at the start of the store, in microseconds; `None` before it has replied.
    epoch: Option<u64>,
    /// The tick of the last report.
    last: Option<u64>,
    outage: Outage,
}

/// Since when the tally does not reply.
#[derive(Default)]
struct Outage {
    since: Option<Instant>,
    /// Whether it was logged that no ratios are known.
    by_share: bool,
}

/// Starts the task, unless there is one or the store was closed; without a runtime there is none.
pub(super) fn start(shared: &Arc<Shared>, now: Instant) {
    shared.touch(now);
    if shared.ticks.load(Ordering::Relaxed) || shared.closed.load(Ordering::Relaxed) {
        return;
    }
    let Some(runtime) = shared.runtime() else { return };
    if shared.ticks.swap(true, Ordering::SeqCst) {
        return;
    }
    let weak = Arc::downgrade(shared);
    let ticking = Ticking { weak, epoch: None, last: None, outage: Outage::default() };
    drop(runtime.spawn(ticking.run()));
}

/// Reports once more, and has the task end.
pub(super) async fn close(shared: &Arc<Shared>) {
    if shared.closed.swap(true, Ordering::SeqCst) || !shared.ticks.load(Ordering::SeqCst) {
        return;
    }
    let counters = choose(shared, Instant::now());
    let report = Report::new(shared.settings.tick, 0).shards(shared.settings.shards).live(false);
    let report = report.counters(counters);
    let count = report.counters.len();
    let is_replied = call(shared, report).await.is_ok();
    shared.ratios.reported(count, is_replied);
}

impl Ticking {
    async fn run(mut self) {
        // Not before it runs: on a runtime that has ended it never does, and each decision would begin a tick.
        match self.weak.upgrade() {
            Some(shared) => begin(&shared, Instant::now()),
            None => return,
        }
        loop {
            let Some(shared) = self.weak.upgrade() else { return };
            if shared.closed.load(Ordering::SeqCst) || shared.is_idle(Instant::now()) {
                return;
            }
            self.tick(&shared).await;
            let next = self.next(&shared);
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
                Report { target, ..base }.counters(choose(shared, began))
            }
        };
        let reported: Vec<CounterId> = report.counters.iter().map(|offered| offered.id).collect();
        let result = call(shared, report).await;
        shared.ratios.reported(reported.len(), result.is_ok());
        match result {
            Ok(totals) => {
                let now = Instant::now();
                let middle = u64::midpoint(shared.micros(began), shared.micros(now));
                let time = u64::try_from(totals.now.as_micros()).map_or(LATEST, |time| time.min(LATEST));
                self.epoch = Some(time.saturating_sub(middle));
                // A clock that was set back: its ticks begin anew.
                let next = shared.phase.tick_of(time).saturating_add(1);
                self.last = self.last.filter(|last| *last <= next);
                self.outage.end();
                hear(shared, &reported, totals, now);
            }
            Err(error) => self.outage.note(shared, &error),
        }
        shared.ratios.known(|| known(shared, Instant::now()));
    }

    /// Returns when to call next.
    fn next(&self, shared: &Shared) -> Instant {
        let (now, tick) = (Instant::now(), shared.settings.tick);
        let Some(epoch) = self.epoch else { return now + tick };
        // What was offered in less than a quarter of a tick waits for the next one.
        let least = if self.last.is_none() { tick / 4 } else { Duration::ZERO };
        let from = epoch.saturating_add(shared.micros(now + least));
        let next = shared.phase.next(from, self.last);
        // Whatever the tally's clock is: a wrong reply must not end the reports.
        (shared.start + Duration::from_micros(next.saturating_sub(epoch))).min(now + 2 * tick)
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        if let Some(shared) = self.weak.upgrade() {
            shared.ticks.store(false, Ordering::SeqCst);
            // What was known is not renewed.
            shared.ratios.known(|| (0, HashMap::new()));
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
    fn note(&mut self, shared: &Shared, error: &Error) {
        shared.observer.failed(error);
        let (now, life) = (Instant::now(), shared.settings.life);
        let (is_known, error) = (shared.is_known(now), format!("{error:#}"));
        if self.since.is_none() && is_known {
            tracing::warn!(error, ?life, "the tally does not reply: the last ratios hold for their life");
        }
        self.since.get_or_insert(now);
        if !self.by_share && !is_known {
            self.by_share = true;
            tracing::warn!(error, "the tally does not reply: this process admits its share of each limit");
        }
    }

    fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.by_share = false;
            tracing::info!(failed_for = ?since.elapsed(), "the tally replies again");
        }
    }
}
