//! Logs in memory, on a clock that each check sets.

use std::time::{Duration, Instant};

use tollgate::Quota;

use super::{LIMITS, QUOTAS, sides};
use crate::effort::Effort;
use crate::growth::clocked::Clocked;
use crate::growth::report::{Table, Unit};

/// A whole number of milliseconds for a unit of any limit, and so short that all checks end before 2077, when the clocks
/// of stores stop.
const WINDOW: Duration = Duration::from_secs(1_000);

pub(in crate::growth) fn run(Effort { rounds, calls, .. }: Effort) -> Table {
    let checks = calls * 20;
    let work = format!(
        "One unit of work is a check of one key in memory, under a limit of so many units, all of which are taken. \
         Before each check that is admitted the store's clock moves on by the time of one unit, so that one has become \
         free; it stands still for those that are refused (medians of {rounds} rounds of {checks} checks, interleaved; \
         one thread)."
    );
    let mut table = sides(Table::of("log_memory", "units", Unit::Nanoseconds, &LIMITS, work));
    let full = |&limit: &usize| QUOTAS.map(|quota| Full::new(quota(limit as u64, WINDOW)));
    let rows: Vec<_> = LIMITS.iter().map(full).collect();
    for _ in 0..rounds {
        for (row, quotas) in rows.iter().enumerate() {
            for (quota, full) in quotas.iter().enumerate() {
                table.note(2 * quota, row, full.admitted(checks));
                table.note(2 * quota + 1, row, full.refused(checks));
            }
        }
    }
    table
}

/// A counter of which all units are taken.
struct Full {
    counter: Clocked,
    /// How long after one unit the next becomes free.
    step: Duration,
}

impl Full {
    fn new(quota: Quota) -> Self {
        let limit = u32::try_from(quota.limit()).expect("a small limit");
        let full = Self { counter: Clocked::new(quota), step: WINDOW / limit };
        for _ in 0..limit {
            full.counter.advance(full.step);
            assert!(full.counter.check(), "the limit is not exceeded");
        }
        // That was all there is in a log, while a bucket has filled up again but for the last one.
        let more = (0..limit).take_while(|_| full.counter.check()).count();
        assert!(more == 0 || more + 1 == limit as usize, "{more} of {limit} units were left");
        full
    }

    /// Nanoseconds of a check that takes the one unit that has become free.
    fn admitted(&self, checks: usize) -> f64 {
        let begun = Instant::now();
        for _ in 0..checks {
            self.counter.advance(self.step);
            assert!(self.counter.check(), "a unit is free");
        }
        let took = begun.elapsed();
        assert!(!self.counter.check(), "no other unit is free");
        took.as_nanos() as f64 / checks as f64
    }

    /// Nanoseconds of a check that finds all units taken.
    fn refused(&self, checks: usize) -> f64 {
        let begun = Instant::now();
        for _ in 0..checks {
            assert!(!self.counter.check(), "no unit is free");
        }
        begun.elapsed().as_nanos() as f64 / checks as f64
    }
}
