//! What a limit adds to the latency of a request, beside other crates, at loads that do not depend on the answers.
//!
//! Each side is an axum server in a process of its own, with the `redis-server` that it needs. A process of one thread
//! sends requests over 64 connections that are kept alive, at random moments of a fixed rate. The latency of a request
//! counts from the moment at which it was due, also if the sender was late or no connection was free.
//!
//! All sides of a store have the same rates, as a latency at one rate says nothing about one at another. They are parts
//! of the most that the slowest of them can do, which is measured first: at parts of what a server does without a limit,
//! slower sides would be overloaded, and wait without bound. The same server without a limit takes its turn in every
//! round, and what a side adds is the difference within a round. `--out FILE` writes the figures.

mod report;
mod sender;

use std::path::PathBuf;
use std::time::Duration;

use self::report::{Group, Quantiles};
use self::sender::Load;
use crate::http::{self, Runner};
use crate::record::Record;
use crate::table::median_of;

/// What all others of a store are compared with.
const NONE: &str = "none";

const MEMORY: [&str; 4] = [NONE, "memory-bare-no-handle", "memory", "tower_governor"];
const REDIS: [&str; 5] = [NONE, "redis-bare-no-handle", "redis", "tower-rate-limit-redis", "tower-redis-cell"];

/// Percent of the most that the slowest side can do.
const LOADS: [u32; 3] = [20, 50, 80];

struct Options {
    rounds: usize,
    span: Duration,
    out: Option<PathBuf>,
}

pub(crate) async fn run(flags: &[String]) {
    if let [first, arguments @ ..] = flags
        && first == sender::SEND
    {
        return sender::run(arguments);
    }
    let options = options(flags);
    let mut record = Record::new(options.out.as_deref());
    for (store, names) in [("memory", &MEMORY[..]), ("redis", &REDIS[..])] {
        let group = measure(&options, store, names).await.unwrap_or_else(|fault| http::fail(&fault));
        group.print(options.rounds, options.span);
        group.record(&mut record);
    }
    record.write();
}

fn options(flags: &[String]) -> Options {
    let mut options = Options { rounds: 11, span: Duration::from_secs(2), out: None };
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        match flag.as_str() {
            "--quick" => (options.rounds, options.span) = (3, Duration::from_secs(1)),
            "--out" => options.out = Some(PathBuf::from(flags.next().unwrap_or_else(|| crate::usage()))),
            _ => crate::usage(),
        }
    }
    options
}

async fn measure(options: &Options, store: &'static str, names: &[&str]) -> Result<Group, String> {
    let runners = http::start(names.iter().copied(), &http::Options::parse(std::iter::empty())?).await?;
    let send = |runner: &Runner, load, seed| sender::send(runner, load, options.span, seed);
    for runner in &runners {
        send(runner, Load::Walk, 0)?;
    }
    let mut most = vec![Vec::new(); runners.len()];
    for round in 0..options.rounds {
        for (runner, most) in runners.iter().zip(&mut most) {
            most.push(send(runner, Load::Most, round as u64)?.per_second);
        }
    }
    let most: Vec<f64> = most.into_iter().map(median_of).collect();
    let slowest = most.iter().copied().fold(f64::INFINITY, f64::min);
    let mut sides: Vec<_> = runners.iter().zip(&most).map(|(runner, &most)| report::Side::new(runner, most)).collect();
    let mut late = Vec::new();
    for round in 0..options.rounds {
        eprintln!("round {} of {}, {store}", round + 1, options.rounds);
        for (load, percent) in LOADS.into_iter().enumerate() {
            let rate = slowest * f64::from(percent) / 100.0;
            for (runner, side) in runners.iter().zip(&mut sides) {
                // One seed for all sides: they get the same requests at the same moments.
                let seen = send(runner, Load::Rate(rate), round as u64)?;
                side.latencies[load].push(Quantiles { values: seen.latency });
                late.push(seen.late_us);
            }
        }
    }
    Ok(Group { store, slowest, sides, late_us: median_of(late) })
}
