//! The tables.

use super::figures::{PAIRS, pair};
use super::pass::{Rounds, Run};
use crate::record::Record;
use crate::table::{Figure, median, print as print_table, print_figures};

/// The first of all is what the others are compared to.
pub(super) fn print(all: &[Rounds<'_>], connections: u32) -> Result<(), String> {
    let [base, sides @ ..] = all else { return Ok(()) };
    let rounds = base.runs.len();
    println!("Requests/s over no limit, connections: {connections} (median of {rounds} rounds, interleaved):\n");
    let rows: Vec<_> = sides.iter().map(|side| ratio(side, base)).collect();
    print_table(&["side", "ratio", "lowest to highest", "Redis calls for 100 requests"], &rows);
    println!("Latency in ms, and processor time of the server's process, connections: {connections}:\n");
    let rows: Vec<_> = all.iter().map(|side| latency(side, base)).collect();
    print_table(&["side", "p50", "p99", "requests/s", "processor time a request, over no limit"], &rows);
    let mut pairs = Vec::new();
    for (side, over) in PAIRS {
        let name = format!("requests/s, {side} over {}", over.names().join(" and "));
        pairs.extend(pair(all, side, over)?.map(|figure| Figure { name, ..figure }));
    }
    if !pairs.is_empty() {
        print_figures(&pairs);
    }
    Ok(())
}

/// Notes requests/s for the file.
pub(super) fn record(all: &[Rounds<'_>], connections: u32, record: &mut Record) {
    for side in all {
        record
            .add(["requests", side.side.name, "1/s", &connections.to_string()], &side.each(|run| run.load.per_second));
    }
}

fn ratio(side: &Rounds<'_>, base: &Rounds<'_>) -> Vec<String> {
    let mut ratios = side.over(base, |run| run.load.per_second);
    ratios.sort_by(f64::total_cmp);
    let (lowest, highest) = (ratios[0], ratios[ratios.len() - 1]);
    let (ratio, calls) = (median(ratios), median(side.each(|run| run.calls)));
    vec![
        side.side.title.clone(),
        format!("{ratio:.2}"),
        format!("{lowest:.2} to {highest:.2}"),
        if calls > 0.0 { format!("{calls:.2}") } else { "-".to_owned() },
    ]
}

fn latency(side: &Rounds<'_>, base: &Rounds<'_>) -> Vec<String> {
    let of = |figure: fn(&Run) -> f64| median(side.each(figure));
    let cpu = median(side.over(base, |run| run.cpu));
    vec![
        side.side.title.clone(),
        format!("{:.2}", of(|run| run.load.p50)),
        format!("{:.2}", of(|run| run.load.p99)),
        format!("{:.0}", of(|run| run.load.per_second)),
        format!("{cpu:.2}"),
    ]
}
