//! Runs seeds, and shows the least of the first one that fails.
//!
//! ```text
//! scripts/simulate                         what CI runs
//! scripts/simulate --count 5000            so many seeds, from 0 or --from N on
//! scripts/simulate --every 16 --from 10    every so many-th seed, so those that are about one thing
//! scripts/simulate --for 600               new ones for so many seconds
//! scripts/simulate --seed 7                one seed, with all that happens
//! ```

use std::collections::BTreeMap;
use std::env;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mimalloc::MiMalloc;
use tollgate_simulation::server::Vm;
use tollgate_simulation::world::{Plan, Report, What, run};

/// A run allocates much, and not for long.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Seeds that are run unless it is said how many.
const SEEDS: u64 = 10_000;

/// From so many seeds on, everything that is known to happen has to have happened.
const MANY: u64 = 4_000;

/// Of so many seeds one is run twice, to see whether the same happens.
const TWICE: u64 = 64;

/// What some thousands of seeds meet.
const MET: &str = "\
    ASK; BUSY; CLUSTERDOWN; LOADING; MOVED; NOSCRIPT; OOM; READONLY; TRYAGAIN; WRONGPASS; \
    a ban that is lifted; a cached refusal; a cached refusal by a ban; a wait that was true; \
    a caller that leaves; a changed password; a clock that steps back; a clock that steps forward; \
    a connection to what became a replica; a handler that blocks; a late reply; \
    a pause within a reply; a refusal by a ban; a reply that is swallowed; a reply to nothing; \
    a reset; a runtime that stops; a server that hangs; a slow server; an evicted key; \
    bytes that are a reply to nothing; connection refused; connections cut; cut after a call ran; \
    cut before a call ran; decided by nobody; decided by a share; decided by a lease; \
    decided by a ratio; decided by the store; failover; half a reply; restart; restart without data";

/// Which seeds are run.
struct Wanted {
    from: u64,
    count: u64,
    every: u64,
    until: Option<Instant>,
}

fn main() -> ExitCode {
    let mut wanted = Wanted { from: 0, count: SEEDS, every: 1, until: None };
    let mut args = env::args().skip(1);
    while let Some(name) = args.next() {
        let Some(number) = args.next().and_then(|value| value.parse::<u64>().ok()) else {
            eprintln!("{name} takes a number");
            return ExitCode::from(2);
        };
        match &*name {
            "--seed" => return show(number),
            "--for" => (wanted.until, wanted.count) = (Some(Instant::now() + Duration::from_secs(number)), u64::MAX),
            "--from" => wanted.from = number,
            "--every" => wanted.every = number.max(1),
            "--count" => wanted.count = number,
            _ => {
                eprintln!("{name} is unknown: use --from, --count, --every, --for or --seed");
                return ExitCode::from(2);
            }
        }
    }
    run_many(&wanted)
}

/// Runs seeds on all cores, up to the first that fails.
fn run_many(wanted: &Wanted) -> ExitCode {
    let (next, start, failed) = (AtomicU64::new(0), Instant::now(), Mutex::new(None));
    let met: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
    let work = || {
        let vm = Vm::new();
        while failed.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            let place = next.fetch_add(1, Ordering::Relaxed);
            if place >= wanted.count || wanted.until.is_some_and(|until| Instant::now() > until) {
                return;
            }
            let plan = Plan::of(wanted.from + place * wanted.every);
            let report = run_once_or_twice(&plan, &vm);
            let mut met = met.lock().unwrap_or_else(PoisonError::into_inner);
            report.trace.met.iter().for_each(|(what, count)| *met.entry(what).or_default() += count);
            if !report.violations.is_empty() {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan.seed);
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    let met = met.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (what, count) in &met {
        println!("{count:>10}  {what}");
    }
    let seeds = next.into_inner().min(wanted.count);
    println!("{seeds} seeds in {} s", start.elapsed().as_secs());
    if let Some(seed) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return show(seed);
    }
    let is_missed = |what: &&str| seeds >= MANY && wanted.every == 1 && !met.contains_key(what);
    let never: Vec<_> = MET.split("; ").filter(is_missed).collect();
    if never.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("never met: {never:?}");
    ExitCode::FAILURE
}

/// Runs a plan; some are run again, as only what repeats itself can be understood.
fn run_once_or_twice(plan: &Plan, vm: &Vm) -> Report {
    let mut report = run(plan, vm, false);
    // A runtime that stops drops its tasks in an order that depends on their numbers, which are the program's.
    let repeats = plan.steps.iter().all(|step| !matches!(step.what, What::Runtime(..)));
    // Tokio's own randomness follows from a seed only with this.
    if cfg!(tokio_unstable)
        && repeats
        && plan.seed % TWICE == plan.seed / TWICE % TWICE
        && run(plan, vm, false).trace.hash() != report.trace.hash()
    {
        report.violations.push("the same seed does something else when it is run again".to_owned());
    }
    report
}

/// Runs one seed and shows all of it, or the least of it that fails.
fn show(seed: u64) -> ExitCode {
    let (vm, plan) = (Vm::new(), Plan::of(seed));
    let least = shrink(&plan, &vm);
    let shown = least.as_ref().unwrap_or(&plan);
    let report = run(shown, &vm, true);
    println!("{:#?}", shown.setting);
    shown.steps.iter().for_each(|step| println!("{:>5} ms later: {:?}", step.after_ms, step.what));
    report.trace.lines().iter().for_each(|line| println!("{line}"));
    if least.is_none() && run_once_or_twice(&plan, &vm).violations.is_empty() {
        println!("seed {seed}: all is as it must be");
        return ExitCode::SUCCESS;
    }
    println!("seed {seed}, {} of its {} steps:", shown.steps.len(), plan.steps.len());
    report.violations.iter().for_each(|violation| println!("  {violation}"));
    ExitCode::FAILURE
}

/// The shortest prefix of a plan that fails, without the steps that do not matter; `None` if it does not fail.
fn shrink(plan: &Plan, vm: &Vm) -> Option<Plan> {
    let fails = |plan: &Plan| !run(plan, vm, false).violations.is_empty();
    let prefix = |length: usize| Plan { steps: plan.steps[..length].to_vec(), ..plan.clone() };
    let mut least = (0..=plan.steps.len()).map(prefix).find(fails)?;
    for place in (0..least.steps.len()).rev() {
        let mut without = least.clone();
        let removed = without.steps.remove(place);
        if let Some(next) = without.steps.get_mut(place) {
            next.after_ms += removed.after_ms;
        }
        if fails(&without) {
            least = without;
        }
    }
    Some(least)
}
