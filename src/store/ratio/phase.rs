//! When a process reports: once in each tick of the tally's clock, at a moment of its own.
//!
//! So reports of many processes are spread, and the clocks of their machines do not matter.

use std::time::Duration;

/// When calls are made; all times are in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    tick: u64,
    /// After the beginning of each tick: from 0.1 to 0.9 ticks.
    phase: u64,
}

impl Phase {
    /// The phase that a random number below 2^32 picks.
    pub(super) fn new(tick: Duration, drawn: u64) -> Self {
        let tick = u64::try_from(tick.as_micros()).unwrap_or(1 << 26).clamp(1, 1 << 26);
        // A tick is below 2^26, and the number below 2^32.
        Self { tick, phase: tick / 10 + ((tick * drawn) >> 32) * 8 / 10 }
    }

    /// Returns the number of the tick that a time of the tally is in.
    pub(super) fn tick_of(self, time: u64) -> u64 {
        time / self.tick
    }

    /// Returns the time of the next call, which is at `from` or later, and in a later tick than the last one.
    pub(super) fn next(self, from: u64, last: Option<u64>) -> u64 {
        let current = self.tick_of(from);
        let own = if self.in_tick(current) < from { current.saturating_add(1) } else { current };
        self.in_tick(last.map_or(own, |last| own.max(last.saturating_add(1))))
    }

    /// Returns the time of the call in a tick.
    fn in_tick(self, number: u64) -> u64 {
        number.saturating_mul(self.tick).saturating_add(self.phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_one_tick_apart_and_never_near_its_ends() {
        for drawn in [0, 1 << 31, (1 << 32) - 1] {
            let phase = Phase::new(Duration::from_secs(1), drawn);
            assert!((100_000..900_000).contains(&phase.phase), "{phase:?}");
            let (mut last, mut time) = (None, 5_950_000);
            for tick in 6..20 {
                time = phase.next(time, last);
                assert_eq!(phase.tick_of(time), tick);
                last = Some(tick);
            }
        }
    }

    #[test]
    fn no_time_of_a_tally_is_too_late() {
        let phase = Phase::new(Duration::from_millis(100), (1 << 32) - 1);
        for last in [None, Some(u64::MAX / 100_000), Some(u64::MAX)] {
            assert!(phase.next(u64::MAX, last) >= u64::MAX - 100_000, "after {last:?}");
        }
    }

    #[test]
    fn a_call_that_comes_too_late_is_not_made_up_for() {
        let phase = Phase::new(Duration::from_secs(1), 1 << 31);
        assert_eq!(phase.next(9_700_000, Some(4)), 10_500_000);
        assert_eq!(phase.next(9_300_000, Some(4)), 9_500_000);
        assert_eq!(phase.next(9_300_000, Some(9)), 10_500_000);
    }
}
