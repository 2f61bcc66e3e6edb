//! The table that a user reads, in microseconds.

use std::time::Duration;

use super::LOADS;
use crate::http::Runner;
use crate::record::Record;
use crate::table::{median_of, print};

const NAMES: [&str; 3] = ["p50", "p99", "p99.9"];

/// p50, p99 and p99.9 of one round.
pub(super) struct Quantiles {
    pub(super) values: [f64; 3],
}

/// One side of a store.
pub(super) struct Side {
    name: &'static str,
    title: String,
    /// Requests/s, when nothing paces them.
    most: f64,
    /// The rounds of each load.
    pub(super) latencies: [Vec<Quantiles>; LOADS.len()],
}

impl Side {
    pub(super) fn new(runner: &Runner, most: f64) -> Self {
        Self { name: runner.side.name, title: runner.side.title.clone(), most, latencies: LOADS.map(|_| Vec::new()) }
    }

    /// One quantile of each round.
    fn rounds(&self, load: usize, quantile: usize) -> Vec<f64> {
        self.latencies[load].iter().map(|round| round.values[quantile]).collect()
    }
}

/// The sides of a store, first the one without a limit.
pub(super) struct Group {
    pub(super) store: &'static str,
    pub(super) slowest: f64,
    pub(super) sides: Vec<Side>,
    pub(super) late_us: f64,
}

impl Group {
    pub(super) fn print(&self, rounds: usize, span: Duration) {
        let most: Vec<_> = self.sides.iter().map(|side| format!("{} {:.0}", side.title, side.most)).collect();
        println!(
            "Latency in µs from when a request was due, at parts of {:.0} requests/s, and what a side adds to no limit \
             (medians of {rounds} rounds of {span:?} a side, lowest and highest in parentheses, interleaved). The most \
             that each side did, in requests/s: {}. Requests were sent {:.0} µs after they were due (median), which is in \
             the latency of all sides.\n",
            self.slowest,
            most.join(", "),
            self.late_us
        );
        let header = ["load", "side", "p50", "p99", "p99.9", "added to p50", "to p99", "to p99.9"];
        let rows = (0..LOADS.len()).flat_map(|load| self.sides.iter().map(move |side| self.row(side, load)));
        print(&header, &rows.collect::<Vec<_>>());
    }

    fn row(&self, side: &Side, load: usize) -> Vec<String> {
        let none = &self.sides[0];
        let mut row = vec![format!("{} %", LOADS[load]), side.title.clone()];
        row.extend((0..NAMES.len()).map(|quantile| cell(&side.rounds(load, quantile))));
        row.extend((0..NAMES.len()).map(|quantile| {
            let pairs = side.rounds(load, quantile).into_iter().zip(none.rounds(load, quantile));
            let added: Vec<f64> = pairs.map(|(with, without)| with - without).collect();
            if side.name == none.name { String::new() } else { cell(&added) }
        }));
        row
    }

    pub(super) fn record(&self, record: &mut Record) {
        for percent in LOADS {
            let rate = self.slowest * f64::from(percent) / 100.0;
            record.add([&format!("latency_{}_rate", self.store), "all", "1/s", &percent.to_string()], &[rate]);
        }
        for side in &self.sides {
            for (load, percent) in LOADS.iter().enumerate() {
                for (quantile, name) in NAMES.iter().enumerate() {
                    let table = format!("latency_{}_{name}", self.store);
                    let fields = [&*table, side.name, "µs", &percent.to_string()];
                    record.add(fields, &side.rounds(load, quantile));
                }
            }
        }
    }
}

/// The median, and the lowest and the highest.
fn cell(rounds: &[f64]) -> String {
    let [low, high] = [f64::min, f64::max].map(|pick| rounds.iter().copied().reduce(pick).unwrap_or_default());
    format!("{:.0} ({low:.0} to {high:.0})", median_of(rounds.iter().copied()))
}
