//! Running many seeds, on all cores.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::server::Vm;
use crate::shrink::run_apart;
use crate::world::plan::{Plan, What};
use crate::world::{FAULTS, Report};

/// Of so many seeds one is run twice, to see whether the same happens.
const TWICE: u64 = 64;

/// After so many seeds there is a line.
const PROGRESS: u64 = 100_000;

/// From so many seeds on every kind of fault has to have happened.
const MANY: u64 = 4_000;

/// Which seeds are run.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// These, in order.
    pub seeds: Range<u64>,
    /// Only the first of so many of them.
    pub every: u64,
    /// None begins after that.
    pub until: Option<Instant>,
    /// Whether others are run after one that fails.
    pub goes_on: bool,
}

/// What was run.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    seeds: u64,
    steps: u64,
    events: u64,
    decisions: u64,
    met: BTreeMap<&'static str, u64>,
    /// Seeds that failed, and what must not have been.
    pub failed: BTreeMap<u64, String>,
    took: Duration,
}

/// Runs seeds, and prints those that fail as they do.
pub fn run_many(wanted: &Wanted) -> Totals {
    let (totals, next) = (Mutex::new(Totals::default()), AtomicU64::new(wanted.seeds.start));
    let (stops, start) = (AtomicBool::new(false), Instant::now());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let vm = Vm::new();
        while !stops.load(Ordering::Relaxed) && wanted.until.is_none_or(|until| Instant::now() < until) {
            let seed = next.fetch_add(wanted.every, Ordering::Relaxed);
            if !wanted.seeds.contains(&seed) {
                return;
            }
            let plan = Plan::of(seed);
            let report = run_once_or_twice(&plan, &vm);
            let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            if totals.add(&plan, report) && !wanted.goes_on {
                stops.store(true, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    Totals { took: start.elapsed(), ..totals }
}

/// Runs a plan; some are run again, as only what repeats itself can be understood.
fn run_once_or_twice(plan: &Plan, vm: &Vm) -> Report {
    let mut report = run_apart(plan, vm, false);
    // A runtime that stops drops its tasks in an order that depends on their numbers, which are the program's.
    let repeats = plan.steps.iter().all(|step| !matches!(step.what, What::Runtime { .. }));
    // Tokio's own randomness follows from a seed only with this.
    if cfg!(tokio_unstable) && repeats && plan.seed % TWICE == plan.seed / TWICE % TWICE {
        let again = run_apart(plan, vm, false).trace.hash();
        if again != report.trace.hash() {
            report.violations.push("the same seed does something else when it is run again".to_owned());
        }
    }
    report
}

impl Totals {
    /// Adds a run; returns whether it failed.
    fn add(&mut self, plan: &Plan, report: Report) -> bool {
        self.seeds += 1;
        self.steps += plan.steps.len() as u64;
        self.events += report.trace.events();
        self.decisions += report.decisions;
        for (fault, count) in report.trace.met() {
            *self.met.entry(fault).or_default() += count;
        }
        if self.seeds.is_multiple_of(PROGRESS) {
            println!("{} seeds, the last one {}", self.seeds, plan.seed);
        }
        let Some(violation) = report.violations.into_iter().next() else { return false };
        println!("seed {}: {violation}", plan.seed);
        self.failed.insert(plan.seed, violation);
        true
    }

    /// Kinds of faults that never happened, though many seeds were run.
    pub fn never_met(&self) -> Vec<&'static str> {
        let never = FAULTS.into_iter().filter(|fault| self.seeds >= MANY && !self.met.contains_key(fault));
        never.collect()
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (fault, count) in &self.met {
            writeln!(f, "{count:>10}  {fault}")?;
        }
        let Self { seeds, steps, events, decisions, failed, took, .. } = self;
        let (failed, took) = (failed.len(), took.as_secs());
        write!(f, "{seeds} seeds, {steps} steps, {events} events, {decisions} decisions in {took} s; {failed} failed")
    }
}
