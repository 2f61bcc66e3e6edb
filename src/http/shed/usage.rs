//! How many requests were in progress, on average over a time: exact, whatever came and went in it.

use std::time::Duration;

/// The requests in progress, and their sum over the time since the last sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
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
    pub(super) fn new(now: Duration) -> Self {
        Self { in_progress: 0, area: 0, passed: Duration::ZERO, last: now }
    }

    /// A request begins.
    pub(super) fn begin(&mut self, now: Duration) {
        self.advance(now);
        self.in_progress += 1;
    }

    /// A request ends, which has begun.
    pub(super) fn end(&mut self, now: Duration) {
        self.advance(now);
        self.in_progress -= 1;
    }

    /// Returns how many requests were in progress since the last sample, on average, and begins anew.
    pub(super) fn take(&mut self, now: Duration) -> f64 {
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
