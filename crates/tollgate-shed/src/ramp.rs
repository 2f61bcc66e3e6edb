//! Shedding by utilization: a ramp turns utilization over time into a level of shedding, and a level into a share of
//! each class.
//!
//! It reads no clock. The slopes are constant: however bad the utilization is, the level moves by at most the same
//! small part per second, and it stops moving between the two thresholds. So the loop of shedding and utilization
//! settles there, instead of swinging from all to nothing.

use std::time::Duration;

use tollgate::Error;

use crate::built;
use crate::shedder::Class;

/// Longest time that a bad sample counts for, so that a sample after an hour of silence sheds little. With the default
/// ramp nothing is shed before the fifth.
const GAP: Duration = Duration::from_secs(10);

/// Longest time of a ramp: as much good time recovers from any.
const MAX_SAMPLE: Duration = Duration::from_secs(86_400);

const ALL_TESTS: f64 = 0.1;
const ALL_READS: f64 = 0.55;

/// Thresholds and times by which utilization turns into shedding.
///
/// While the utilization is bad, shedding begins after a time and grows from then on: test traffic first, reads next,
/// then writes, and critical requests never. While it is good, shedding declines at a slower rate. In between nothing
/// changes.
///
/// | after bad utilization for | by default | is shed |
/// | --- | --- | --- |
/// | `first` | 30 s | the first test traffic |
/// | a tenth of the way from `first` to `all` | 39 s | all test traffic, the first reads |
/// | 55 % of it | 79.5 s | all reads, the first writes |
/// | `all` | 120 s | all writes |
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_shed::{Class, Ramp};
///
/// let ramp = Ramp::new();
/// let bad_for = |seconds| ramp.level((0..=seconds).map(|second| (Duration::from_secs(second), 0.9)));
/// assert_eq!(bad_for(30), 0.0);
/// assert_eq!(Ramp::share(bad_for(40), Class::Test), 1.0);
/// assert_eq!(Ramp::share(bad_for(40), Class::Write), 0.0);
/// assert_eq!(Ramp::share(bad_for(120), Class::Write), 1.0);
/// assert_eq!(Ramp::share(bad_for(600), Class::Critical), 0.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Ramp {
    good: f64,
    bad: f64,
    first: Duration,
    all: Duration,
    recovery: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    at: Option<Duration>,
    /// Bad time, less the recovery since.
    bad_for: Duration,
}

impl Ramp {
    /// The default: good below 0.7, bad above 0.8, first after 30 s, all after 120 s, and a recovery of 240 s.
    pub const fn new() -> Self {
        Self {
            good: 0.7,
            bad: 0.8,
            first: Duration::from_secs(30),
            all: Duration::from_secs(120),
            recovery: Duration::from_secs(240),
        }
    }

    /// Sets the utilization below which shedding declines, and the one above which it grows.
    ///
    /// # Panics
    ///
    /// If `good` is not above 0 and below `bad`, or `bad` is not finite.
    #[track_caller]
    pub fn thresholds(self, good: f64, bad: f64) -> Self {
        built(self.try_thresholds(good, bad))
    }

    /// Fallible version of [`thresholds`](Self::thresholds).
    ///
    /// # Errors
    ///
    /// If `good` is not above 0 and below `bad`, or `bad` is not finite.
    pub fn try_thresholds(self, good: f64, bad: f64) -> Result<Self, Error> {
        Self { good, bad, ..self }.checked()
    }

    /// Sets for how long utilization is bad before the first requests are shed, and until all are that may be.
    ///
    /// [`recovery`](Self::recovery) must not be shorter than `all`: set it first if `all` becomes longer than 240 s.
    ///
    /// # Panics
    ///
    /// If `first` is below 1 s or not below `all`, or `all` is above a day or the recovery.
    #[track_caller]
    pub fn after(self, first: Duration, all: Duration) -> Self {
        built(self.try_after(first, all))
    }

    /// Fallible version of [`after`](Self::after).
    ///
    /// # Errors
    ///
    /// If `first` is below 1 s or not below `all`, or `all` is above a day or the recovery.
    pub fn try_after(self, first: Duration, all: Duration) -> Result<Self, Error> {
        Self { first, all, ..self }.checked()
    }

    /// Sets for how long utilization is good until it is forgotten that all were shed.
    ///
    /// # Panics
    ///
    /// If it is shorter than the time until all are shed, or longer than a day.
    #[track_caller]
    pub fn recovery(self, time: Duration) -> Self {
        built(self.try_recovery(time))
    }

    /// Fallible version of [`recovery`](Self::recovery).
    ///
    /// # Errors
    ///
    /// If it is shorter than the time until all are shed, or longer than a day.
    pub fn try_recovery(self, time: Duration) -> Result<Self, Error> {
        Self { recovery: time, ..self }.checked()
    }

    /// Returns the level of shedding, from 0 to 1, after a history of samples in order, each with its time and
    /// utilization.
    ///
    /// It depends on nothing else, so your recorded history shows which requests would have been shed. A sample counts
    /// for the time since the sample before, but for at most 10 s of bad utilization. NaN is an unknown utilization,
    /// which changes nothing.
    pub fn level(&self, history: impl IntoIterator<Item = (Duration, f64)>) -> f64 {
        let after = |progress, (now, utilization)| self.next(progress, now, utilization);
        self.level_at(history.into_iter().fold(Progress::default(), after))
    }

    /// Returns which share of a class is shed at a level, from 0 to 1.
    pub fn share(level: f64, class: Class) -> f64 {
        match class {
            Class::Critical => 0.0,
            Class::Write => between(level, ALL_READS, 1.0),
            Class::Read => between(level, ALL_TESTS, ALL_READS),
            Class::Test => between(level, 0.0, ALL_TESTS),
        }
    }

    /// If the clock stepped back, no time has passed.
    pub(crate) fn next(&self, progress: Progress, now: Duration, utilization: f64) -> Progress {
        let passed = now.saturating_sub(progress.at.unwrap_or(now));
        let bad_for = if utilization > self.bad {
            self.all.min(progress.bad_for + passed.min(GAP))
        } else if utilization < self.good {
            let part = self.all.as_secs_f64() / self.recovery.as_secs_f64();
            progress.bad_for.saturating_sub(passed.min(MAX_SAMPLE).mul_f64(part))
        } else {
            // Between the thresholds, or unknown.
            progress.bad_for
        };
        Progress { at: Some(now), bad_for }
    }

    pub(crate) fn level_at(&self, progress: Progress) -> f64 {
        between(progress.bad_for.as_secs_f64(), self.first.as_secs_f64(), self.all.as_secs_f64())
    }

    fn checked(self) -> Result<Self, Error> {
        let Self { good, bad, first, all, recovery } = self;
        let message = if !(good > 0.0 && good < bad && bad.is_finite()) {
            format!("thresholds {good} and {bad} are out of order: use good above 0 and below bad")
        } else if first < Duration::from_secs(1) || first >= all || all > MAX_SAMPLE {
            format!(
                "shedding from {first:?} to {all:?} is out of order: use a first time of at least 1s, and a later one \
                 for all, at most 1 day"
            )
        } else if recovery < all {
            format!("recovery {recovery:?} is faster than shedding, {all:?}: it would flap; give at least that")
        } else if recovery > MAX_SAMPLE {
            format!("recovery {recovery:?} is not allowed: it must be at most 1 day")
        } else {
            return Ok(self);
        };
        Err(Error::invalid(message))
    }
}

impl Default for Ramp {
    fn default() -> Self {
        Self::new()
    }
}

/// Exactly 0 and 1 at the ends.
fn between(number: f64, from: f64, to: f64) -> f64 {
    ((number - from) / (to - from)).clamp(0.0, 1.0)
}

/// Exact average of the requests in flight since the last sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    in_progress: f64,
    /// Requests in flight times seconds, since the last sample.
    area: f64,
    /// Seconds since the last sample.
    passed: f64,
    last: Duration,
}

impl Usage {
    /// `requests` begin at `now`, or end if negative. If the clock steps back, no time has passed.
    pub(crate) fn add(&mut self, requests: f64, now: Duration) {
        let passed = now.saturating_sub(self.last).as_secs_f64();
        self.area += passed * self.in_progress;
        self.passed += passed;
        self.last = now;
        self.in_progress += requests;
    }

    pub(crate) fn take(&mut self, now: Duration) -> f64 {
        self.add(0.0, now);
        let average = if self.passed > 0.0 { self.area / self.passed } else { self.in_progress };
        (self.area, self.passed) = (0.0, 0.0);
        average
    }
}

#[cfg(test)]
mod tests;
