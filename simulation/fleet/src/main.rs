//! A fleet of processes that limit together by ratios, on simulated time. Each is a real `RatioStore`; all report to one
//! `MemoryTally`, through a network that delays and loses by a seed. Nothing listens and nothing waits.
//!
//! `cargo run --release -p tollgate-fleet -- [--processes 1,8,100] [--seed N] [--charts FOLDER]` prints the tables of
//! crates/tollgate-ratio/docs/ratios.md, and draws its charts.

mod cases;
mod charts;
mod faulty;
mod fleet;
mod load;
mod measure;
mod table;

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let mut processes = vec![1, 8, 100, 1_000, 10_000];
    let (mut seed, mut folder) = (1, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match &*argument {
            "--processes" => processes = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--seed" => seed = value.parse()?,
            "--charts" => folder = Some(value),
            _ => return Err(format!("{argument} is unknown: use --processes, --seed or --charts").into()),
        }
    }
    print!("{}", table::tables(&processes, seed));
    if let Some(folder) = folder {
        charts::draw(Path::new(&folder), seed, processes.iter().copied().max().unwrap_or(1))?;
    }
    Ok(())
}
