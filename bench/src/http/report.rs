//! The tables.

use super::pass::Rounds;
use crate::record::Record;
use crate::table::{self, median};

/// The first of all is what the others are compared to.
pub(super) fn print(all: &[Rounds<'_>], connections: u32) {
    let [base, sides @ ..] = all else { return };
    let rounds = base.loads.len();
    println!("Requests/s over no limit, connections: {connections} (median of {rounds} rounds, interleaved):\n");
    let rows: Vec<_> = sides.iter().map(|side| ratio(side, base)).collect();
    table::print(&["side", "ratio", "lowest to highest", "Redis calls for 100 requests"], &rows);
    println!("Latency in ms, and processor time of the server's process, connections: {connections}:\n");
    let rows: Vec<_> = all.iter().map(|side| latency(side, base)).collect();
    table::print(&["side", "p50", "p99", "requests/s", "processor time a request, over no limit"], &rows);
}

/// Notes requests/s for the file.
pub(super) fn record(all: &[Rounds<'_>], connections: u32, record: &mut Record) {
    for side in all {
        let rates: Vec<_> = side.loads.iter().map(|load| load.per_second).collect();
        record.add(["requests", side.side.name, "1/s", &connections.to_string()], &rates);
    }
}

fn ratio(side: &Rounds<'_>, base: &Rounds<'_>) -> Vec<String> {
    let mut ratios = side.over(base);
    ratios.sort_by(f64::total_cmp);
    let (lowest, highest) = (ratios[0], ratios[ratios.len() - 1]);
    let ratio = median(ratios);
    vec![
        side.side.title.to_owned(),
        format!("{ratio:.2}"),
        format!("{lowest:.2} to {highest:.2}"),
        side.calls().map_or_else(dash, |calls| format!("{calls:.2}")),
    ]
}

fn latency(side: &Rounds<'_>, base: &Rounds<'_>) -> Vec<String> {
    let cpu = side.cpu().zip(base.cpu()).map_or_else(dash, |(side, base)| format!("{:.2}", side / base));
    let [p50, p99, per_second] = [
        median(side.loads.iter().map(|load| load.p50).collect()),
        median(side.loads.iter().map(|load| load.p99).collect()),
        median(side.loads.iter().map(|load| load.per_second).collect()),
    ];
    vec![side.side.title.to_owned(), format!("{p50:.2}"), format!("{p99:.2}"), format!("{per_second:.0}"), cpu]
}

fn dash() -> String {
    "-".to_owned()
}
