//! What all services of a worker shedder share, and what becomes of a request.
//!
//! The utilization is sampled once a second at most, by a request that comes or ends. A request that is shed is never
//! in progress: else shedding would keep up the load that it is caused by.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use crate::core::PolicyName;
use crate::http::shed::ramp::{Progress, Ramp};
use crate::http::shed::shedder::{Classifier, Report, response};
use crate::random;
use crate::store::Clock;

/// The time between two samples.
const SAMPLE: Duration = Duration::from_secs(1);

/// How the utilization is known.
#[derive(Clone)]
pub(super) enum Gauge {
    /// By the requests in progress, of so many that fit.
    InProgress(NonZeroU32),
    /// By a closure, where 1 is full.
    Measured(Arc<dyn Fn() -> f64 + Send + Sync>),
}

/// What a layer is built with.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) name: PolicyName,
    pub(super) gauge: Gauge,
    pub(super) ramp: Ramp,
    pub(super) class: Classifier,
    pub(super) clock: Arc<dyn Clock>,
    /// The least time in `Retry-After`.
    pub(super) wait: Duration,
}

/// A shedder in use.
pub(super) struct State {
    settings: Settings,
    report: Report,
    now: Mutex<Now>,
    /// When the next sample is due, in nanoseconds of the clock.
    due: AtomicU64,
    /// The level of shedding.
    level: Number,
    /// The utilization by the last sample.
    utilization: Number,
}

/// A number that is read without a lock, by its bits.
#[derive(Default)]
struct Number(AtomicU64);

impl Number {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, number: f64) {
        self.0.store(number.to_bits(), Ordering::Relaxed);
    }
}

/// What changes from request to request.
struct Now {
    usage: Usage,
    progress: Progress,
}

impl State {
    pub(super) fn new(settings: Settings) -> Self {
        let report = Report::new(settings.name.clone());
        let usage = Usage::new(settings.clock.now());
        let now = Mutex::new(Now { usage, progress: Progress::default() });
        let (level, utilization) = (Number::default(), Number::default());
        Self { settings, report, now, due: AtomicU64::new(0), level, utilization }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn level(&self) -> f64 {
        self.level.get()
    }

    /// Admits a request, which is in progress as long as the guard is there, or returns the response to one that is
    /// shed. Its class is inserted into its extensions.
    pub(super) fn admit(self: &Arc<Self>, parts: &mut Parts) -> Result<InProgress, Box<Response<Bytes>>> {
        let now = self.settings.clock.now();
        self.sample(now);
        let class = self.settings.class.classify(parts);
        self.report.offered(class, || now);
        if is_drawn(Ramp::share(self.level(), class)) {
            self.report.shed(class, now, Some(self.utilization.get()));
            return Err(Box::new(response(parts, &self.settings.name, class, self.wait())));
        }
        let counts = matches!(self.settings.gauge, Gauge::InProgress(_));
        if counts {
            self.now().usage.begin(now);
        }
        Ok(InProgress(counts.then(|| Arc::clone(self))))
    }

    /// Samples the utilization if that is due.
    fn sample(&self, now: Duration) {
        if !self.takes_sample(now) {
            return;
        }
        let (utilization, mut state) = match &self.settings.gauge {
            Gauge::InProgress(at_once) => {
                let mut state = self.now();
                (state.usage.take(now) / f64::from(at_once.get()), state)
            }
            // No lock is held meanwhile: it may take a time, and may call the layer.
            Gauge::Measured(measure) => (measure(), self.now()),
        };
        state.progress = self.settings.ramp.next(state.progress, now, utilization);
        let level = self.settings.ramp.level_at(state.progress);
        self.level.set(level);
        self.utilization.set(utilization);
        drop(state);
        self.report.level(level, utilization);
    }

    /// Returns whether a sample is due, and is to be taken by the caller: by no other one. It is if the clock stepped back.
    fn takes_sample(&self, now: Duration) -> bool {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (now, next, due) = (nanos(now), nanos(now.saturating_add(SAMPLE)), self.due.load(Ordering::Relaxed));
        (now >= due || next < due) && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Ends a request in progress.
    fn end(&self) {
        let now = self.settings.clock.now();
        self.now().usage.end(now);
        self.sample(now);
    }

    /// Returns when to retry: clients that are shed together should not come back together.
    fn wait(&self) -> Duration {
        let least = self.settings.wait;
        let jitter = random::up_to(u64::try_from(least.as_millis()).unwrap_or(u64::MAX));
        least.saturating_add(Duration::from_millis(jitter))
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a request is one of a share, by chance: of requests in turns, every n-th would always be the same
/// client's.
fn is_drawn(share: f64) -> bool {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is from 0 to 1")]
    let bound = (share * 2_f64.powi(64)) as u64;
    share >= 1.0 || (bound > 0 && random::up_to(u64::MAX - 1) < bound)
}

/// A request in progress, until this is dropped; nothing if requests are not counted.
pub(super) struct InProgress(Option<Arc<State>>);

impl InProgress {
    pub(super) fn ended() -> Self {
        Self(None)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        if let Some(state) = self.0.take() {
            state.end();
        }
    }
}

impl fmt::Debug for InProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InProgress").field(&self.0.is_some()).finish()
    }
}

/// The requests in progress, and their sum over the time since the last sample.
#[derive(Clone, Copy, Debug)]
pub(in crate::http::shed) struct Usage {
    in_progress: u64,
    /// The requests in progress times the nanoseconds for which they were, since the last sample.
    area: u128,
    /// The time since the last sample.
    passed: Duration,
    /// The time up to which both count.
    last: Duration,
}

impl Usage {
    /// No requests, from `now` on.
    pub(in crate::http::shed) fn new(now: Duration) -> Self {
        Self { in_progress: 0, area: 0, passed: Duration::ZERO, last: now }
    }

    /// A request begins.
    pub(in crate::http::shed) fn begin(&mut self, now: Duration) {
        self.advance(now);
        self.in_progress += 1;
    }

    /// A request ends, which has begun.
    pub(in crate::http::shed) fn end(&mut self, now: Duration) {
        self.advance(now);
        self.in_progress -= 1;
    }

    /// Returns how many requests were in progress since the last sample, on average, and begins anew.
    pub(in crate::http::shed) fn take(&mut self, now: Duration) -> f64 {
        self.advance(now);
        let time = self.passed.as_nanos();
        #[allow(clippy::cast_precision_loss, reason = "an average needs no more digits")]
        let average = if time == 0 { self.in_progress as f64 } else { self.area as f64 / time as f64 };
        (self.area, self.passed) = (0, Duration::ZERO);
        average
    }

    /// Counts up to `now`. From a clock that steps back, no time has passed.
    fn advance(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.last);
        self.area = self.area.saturating_add(passed.as_nanos().saturating_mul(self.in_progress.into()));
        self.passed = self.passed.saturating_add(passed);
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
    }

    #[test]
    fn the_average_weighs_each_number_by_its_time() {
        let mut usage = Usage::new(S);
        usage.begin(S);
        usage.begin(2 * S);
        usage.end(5 * S);
        // 1 for 1 s, 2 for 3 s, 1 for 4 s.
        assert_near(usage.take(9 * S), 11.0 / 8.0);
        usage.end(10 * S);
        // 1 for 1 s, 0 for 99 s.
        assert_near(usage.take(109 * S), 0.01);
    }

    #[test]
    fn samples_in_between_change_no_sum() {
        let mut whole = Usage::new(S);
        whole.begin(S);
        let mut parts = whole;
        let mut sum = 0.0;
        for second in 2..=7 {
            if second == 4 {
                whole.begin(S * second);
                parts.begin(S * second);
            }
            sum += parts.take(S * second);
        }
        assert_near(whole.take(7 * S), sum / 6.0);
    }

    #[test]
    fn a_sample_of_no_time_is_what_is_in_progress_now() {
        let mut usage = Usage::new(S);
        for _ in 0..3 {
            usage.begin(S);
        }
        assert_near(usage.take(S), 3.0);
    }

    #[test]
    fn a_clock_that_steps_back_counts_on_from_there() {
        let mut usage = Usage::new(10 * S);
        usage.begin(10 * S);
        usage.begin(5 * S);
        usage.end(12 * S);
        // 2 for 7 s, 1 for 2 s.
        assert_near(usage.take(14 * S), 16.0 / 9.0);
    }

    #[test]
    fn the_longest_times_and_most_requests_do_not_overflow() {
        let mut usage = Usage::new(Duration::ZERO);
        for _ in 0..1_000 {
            usage.begin(Duration::ZERO);
        }
        assert_near(usage.take(Duration::MAX) / 1_000.0, 1.0);
    }
}
