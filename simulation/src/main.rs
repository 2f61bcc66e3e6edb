//! Runs seeds, and shows the least of the first one that fails.
//!
//! ```text
//! scripts/simulate                         what CI runs
//! scripts/simulate --count 5000            so many seeds, from 0 or --from N on
//! scripts/simulate --every 16 --from 10    every so many-th seed, so those that are about one thing
//! scripts/simulate --for 600               new ones for so many seconds
//! scripts/simulate --keep-going            also after one that failed
//! scripts/simulate --seed 7                one seed, with all that happens
//! ```

use std::env;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mimalloc::MiMalloc;
use tollgate_simulation::many::{Wanted, run_many};
use tollgate_simulation::server::Vm;
use tollgate_simulation::shrink::{run_apart, shrink};
use tollgate_simulation::world::plan::Plan;

/// A run allocates much, and not for long.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Seeds that are run unless it is said how many.
const SEEDS: u64 = 10_000;

fn main() -> ExitCode {
    match wanted(env::args().skip(1)) {
        Ok(Command::Show(seed)) => show(seed),
        Ok(Command::Run { wanted, shows }) => run(&wanted, shows),
        Err(text) => {
            eprintln!("{text}");
            ExitCode::from(2)
        }
    }
}

enum Command {
    Show(u64),
    Run { wanted: Wanted, shows: bool },
}

fn wanted(mut args: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut from, mut count, mut every, mut until, mut goes_on, mut shows) = (0, None, 1, None, false, true);
    while let Some(name) = args.next() {
        let mut number = || {
            let value = args.next().ok_or(format!("{name} takes a number"))?;
            value.parse::<u64>().map_err(|_| format!("{name} takes a number, not {value:?}"))
        };
        match &*name {
            "--seed" => return Ok(Command::Show(number()?)),
            "--for" => until = Some(Instant::now() + Duration::from_secs(number()?)),
            "--from" => from = number()?,
            "--every" => every = number()?.max(1),
            "--count" => count = Some(number()?),
            "--keep-going" => goes_on = true,
            "--no-shrink" => shows = false,
            _ => {
                return Err(format!(
                    "{name} is unknown: give --from, --count, --every, --for, --keep-going, --no-shrink or --seed"
                ));
            }
        }
    }
    let count = count.unwrap_or(if until.is_some() { u64::MAX } else { SEEDS });
    let wanted = Wanted { seeds: from..from.saturating_add(count.saturating_mul(every)), every, until, goes_on };
    Ok(Command::Run { wanted, shows: shows && !goes_on })
}

/// Runs one seed and shows all of it, or the least of it that fails.
fn show(seed: u64) -> ExitCode {
    let (vm, plan) = (Vm::new(), Plan::of(seed));
    let least = shrink(&plan, &vm);
    let shown = least.as_ref().unwrap_or(&plan);
    let report = run_apart(shown, &vm, true);
    println!("{:#?}", shown.setting);
    for step in &shown.steps {
        println!("{:>5} ms later: {:?}", step.after_ms, step.what);
    }
    report.trace.lines().iter().for_each(|line| println!("{line}"));
    if least.is_none() {
        println!("seed {seed}: all is as it must be; its trace is {:016x}", report.trace.hash());
        return ExitCode::SUCCESS;
    }
    println!("seed {seed}, {} of its {} steps:", shown.steps.len(), plan.steps.len());
    report.violations.iter().for_each(|violation| println!("  {violation}"));
    ExitCode::FAILURE
}

fn run(wanted: &Wanted, shows: bool) -> ExitCode {
    let totals = run_many(wanted);
    println!("{totals}");
    let never = totals.never_met();
    if !never.is_empty() {
        println!("never met: {}", never.join(", "));
        return ExitCode::FAILURE;
    }
    match totals.failed.first_key_value() {
        None => ExitCode::SUCCESS,
        Some((seed, _)) if shows => show(*seed),
        Some(_) => ExitCode::FAILURE,
    }
}
