//! Task that reports once in each tick, by the tally's clock.
//!
//! It starts with the store or a decision. It ends after a while without decisions, or with the last clone of the
//! store, because it holds no clone while it waits. If the task was dropped with its runtime, or did not wake for a
//! TTL, the next decision starts another one.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::time::{Instant, sleep_until, timeout};
use tollgate::Error;
use tracing::field::debug;

use crate::events::{Metrics, OutageLines};
use crate::shared::{CLOSED, RatioInner};
use crate::tally::{Report, Totals, micros};

const IDLE: u32 = 60;

struct Ticking {
    weak: Weak<RatioInner>,
    /// Microseconds at which the next task may start. Another value means that this task was replaced.
    until: u64,
    /// Microseconds of the tally's clock at the start of the store, or `None` before it has replied.
    epoch: Option<u64>,
    last: u64,
    outage: Option<(Instant, bool)>,
    lines: OutageLines,
}

pub(super) fn start(shared: &Arc<RatioInner>, now: Instant) {
    let next = shared.next_task.load(Ordering::Relaxed);
    if shared.micros(now) < next {
        return;
    }
    let Ok(runtime) = Runtime::try_current() else { return };
    let until = shared.micros(now + shared.settings.ratio_life());
    if shared.next_task.compare_exchange(next, until, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
        let (weak, lines) = (Arc::downgrade(shared), OutageLines::default());
        drop(runtime.spawn(Ticking { weak, until, epoch: None, last: 0, outage: None, lines }.run()));
    }
}

pub(super) async fn close(shared: &Arc<RatioInner>) {
    let next = shared.next_task.swap(CLOSED, Ordering::SeqCst);
    shared.metrics.known(|| (0, HashMap::new()));
    let Ok(runtime) = Runtime::try_current() else { return };
    if next == 0 || next == CLOSED {
        return;
    }
    let settings = &shared.settings;
    let report = Report::new(settings.tick, 0).shards(settings.shards).live(false);
    let report = report.counters(shared.begin_tick(Instant::now(), true));
    let shared = Arc::clone(shared);
    // It fails if the tally panics, or the runtime ends or has no timers.
    drop(runtime.spawn(async move { drop(call(&shared, report).await) }).await);
}

impl Ticking {
    async fn run(mut self) {
        let mut idle = 0;
        loop {
            let Some(shared) = self.weak.upgrade() else { return };
            idle = if shared.is_used.swap(false, Ordering::Relaxed) { 0 } else { idle + 1 };
            if idle > IDLE || shared.next_task.load(Ordering::SeqCst) != self.until {
                return;
            }
            self.tick(&shared).await;
            let next = self.next(&shared);
            let until = shared.micros(next + shared.settings.ratio_life());
            if shared.next_task.compare_exchange(self.until, until, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                return;
            }
            self.until = until;
            drop(shared);
            sleep_until(next).await;
        }
    }

    async fn tick(&mut self, shared: &RatioInner) {
        let (began, settings) = (Instant::now(), &shared.settings);
        let (counters, report) =
            (shared.begin_tick(began, false), Report::new(settings.tick, 0).shards(settings.shards));
        let report = match self.epoch {
            None => report.live(false),
            Some(epoch) => {
                let current = epoch.saturating_add(shared.micros(began)) / micros(settings.tick);
                self.last = current.max(self.last + 1);
                Report { target: self.last, ..report }.counters(counters)
            }
        };
        let reported: Vec<_> = report.counters.iter().map(|offered| offered.id).collect();
        match call(shared, report).await {
            Ok(totals) => {
                let now = Instant::now();
                let middle = u64::midpoint(shared.micros(began), shared.micros(now));
                let time = micros(totals.now);
                self.epoch = Some(time.saturating_sub(middle));
                // A clock that stepped back is not waited for until it is there again.
                if self.last > time / micros(settings.tick) + 1 {
                    self.last = 0;
                }
                if let Some((since, _)) = self.outage.take() {
                    self.lines.ended(|| {
                        tracing::info!(code = "tally_available", failed_for = ?since.elapsed(), "tally replies again");
                    });
                }
                shared.hear(reported.into_iter(), totals, now);
            }
            Err(error) => self.note_outage(shared, &error),
        }
        shared.metrics.known(|| shared.highest(Instant::now()));
    }

    fn note_outage(&mut self, shared: &RatioInner, error: &Error) {
        let now = Instant::now();
        let is_known = shared.live(now).is_some();
        let (since, was_known) = self.outage.unwrap_or((now, !is_known));
        self.outage = Some((since, is_known));
        if was_known == is_known {
            return;
        }
        let life = is_known.then(|| debug(shared.settings.ratio_life()));
        let held = if is_known {
            "the last ratios hold for their life"
        } else {
            "this process admits its share of each limit"
        };
        self.lines.began(|more| {
            let error = format!("{error:#}");
            tracing::warn!(code = "tally_unavailable", error, life, more, "the tally does not reply: {held}");
        });
    }

    fn next(&self, shared: &RatioInner) -> Instant {
        let (now, tick) = (Instant::now(), shared.settings.tick);
        let Some(epoch) = self.epoch else { return now + tick };
        // Units offered in less than a quarter of a tick wait for the next one.
        let least = if self.last == 0 { tick / 4 } else { Duration::ZERO };
        let from = epoch.saturating_add(shared.micros(now + least)).saturating_sub(shared.phase);
        let number = from.div_ceil(micros(tick)).max(self.last + 1);
        let next = number.saturating_mul(micros(tick)).saturating_add(shared.phase).saturating_sub(epoch);
        // Bounded whatever the tally's clock says, because a wrong reply must neither end the reports nor repeat them
        // without a pause. A phase is at most 0.9 of a tick, so a tenth of a tick later is in the same tick.
        (shared.start + Duration::from_micros(next)).clamp(now + tick / 10, now + 2 * tick)
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        let Some(shared) = self.weak.upgrade() else { return };
        // A tally that panics, or a runtime that has ended, leads to no more than one task in a tick.
        let next = shared.micros(Instant::now() + shared.settings.tick);
        if shared.next_task.compare_exchange(self.until, next, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            // These values are not renewed any more. If this task was replaced, another one does.
            shared.metrics.known(|| (0, HashMap::new()));
        }
    }
}

/// Times out after a quarter of a tick.
async fn call(shared: &RatioInner, report: Report) -> Result<Totals, Error> {
    let (limit, count) = (shared.settings.tick / 4, report.counters.len());
    let late = || Error::timeout(format!("the tally did not reply in {limit:?}"));
    let reporting = timeout(limit, shared.settings.tally.report(report));
    let result = reporting.await.unwrap_or_else(|_| Err(late()));
    Metrics::reported(count, result.is_ok());
    result
}
