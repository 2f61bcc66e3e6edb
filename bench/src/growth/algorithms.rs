//! What a check of each algorithm costs in memory, beside a token bucket.

use std::time::{Duration, Instant};

use tollgate::Quota;
use tollgate::policy::Algorithm;

use super::clocked::Clocked;
use super::report::{Table, Unit};
use crate::effort::Effort;

const LIMIT: u64 = 100;
const WINDOW: Duration = Duration::from_secs(100);

/// Half of what the limit admits, so that each algorithm admits all.
const STEP: Duration = Duration::from_secs(2);

pub(super) fn run(Effort { rounds, calls, .. }: Effort) -> Table {
    let checks = calls * 100;
    let work = format!(
        "One unit of work is a check of one key in memory, which is admitted: {LIMIT} units in {} s, of which half are \
         taken, as the store's clock moves on by {} s before each check (medians of {rounds} rounds of {checks} \
         checks, interleaved; one thread). Slots of a concurrency are not released, but expire.",
        WINDOW.as_secs(),
        STEP.as_secs()
    );
    let algorithms = algorithms();
    let names = algorithms.iter().map(|algorithm| algorithm.as_str().replace('_', " ")).collect();
    let mut table = Table::new("algorithms", "algorithm", Unit::Nanoseconds, names, work).side("tollgate", None);
    let quota = |algorithm| Quota::try_new(algorithm, LIMIT, WINDOW).expect("every algorithm has this quota");
    let counters: Vec<_> = algorithms.iter().map(|&algorithm| Clocked::new(quota(algorithm))).collect();
    for counter in &counters {
        // As many units as there will be at any time.
        nanos(counter, 200);
    }
    for _ in 0..rounds {
        for (row, counter) in counters.iter().enumerate() {
            table.note(0, row, nanos(counter, checks));
        }
    }
    table
}

/// Each algorithm, first the one that the others are compared with.
fn algorithms() -> Vec<Algorithm> {
    let mut each = Algorithm::ALL.to_vec();
    each.sort_by_key(|algorithm| *algorithm != Algorithm::TokenBucket);
    each
}

fn nanos(counter: &Clocked, checks: usize) -> f64 {
    let begun = Instant::now();
    for _ in 0..checks {
        counter.advance(STEP);
        assert!(counter.check(), "half of the limit is admitted");
    }
    begun.elapsed().as_nanos() as f64 / checks as f64
}
