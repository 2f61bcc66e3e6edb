//! The tables.

use super::pass::Rounds;
use super::sides::Goal;
use crate::table::{self, median};

/// The first of all is what the others are compared to.
pub(super) fn print(all: &[Rounds<'_>], connections: u32) {
    let [base, sides @ ..] = all else { return };
    let rounds = base.loads.len();
    println!("Requests/s over no limit, connections: {connections} (median of {rounds} rounds, interleaved):\n");
    let rows: Vec<_> = sides.iter().map(|side| ratio(side, base, connections)).collect();
    let calls = "Redis calls for 100 requests";
    table::print(&["side", "ratio", "lowest to highest", "must", "stretch", "verdict", calls], &rows);
    println!("Latency in ms, and processor time of the server's process, connections: {connections}:\n");
    let rows: Vec<_> = all.iter().map(|side| latency(side, base)).collect();
    table::print(&["side", "p50", "p99", "requests/s", "processor time a request, over no limit"], &rows);
}

fn ratio(side: &Rounds<'_>, base: &Rounds<'_>, connections: u32) -> Vec<String> {
    let pairs = side.loads.iter().zip(&base.loads);
    let mut ratios: Vec<f64> = pairs.map(|(load, base)| load.per_second / base.per_second).collect();
    ratios.sort_by(f64::total_cmp);
    let (lowest, highest) = (ratios[0], ratios[ratios.len() - 1]);
    let ratio = median(ratios);
    let calls = side.calls.map(|calls| 100.0 * calls as f64 / side.requests() as f64);
    // The design's bounds are for many connections.
    let goal = side.side.goal.as_ref().filter(|_| connections > 1);
    let bound = |of: fn(&Goal) -> f64| goal.map_or_else(dash, |goal| format!("{:.2}", of(goal)));
    vec![
        side.side.title.to_owned(),
        format!("{ratio:.2}"),
        format!("{lowest:.2} to {highest:.2}"),
        bound(|goal| goal.must),
        bound(|goal| goal.stretch),
        goal.map_or_else(dash, |goal| verdict(goal, ratio, calls)),
        calls.map_or_else(dash, |calls| format!("{calls:.2}")),
    ]
}

fn verdict(goal: &Goal, ratio: f64, calls: Option<f64>) -> String {
    if let (Some(bound), Some(calls)) = (goal.calls_below, calls)
        && calls >= bound
    {
        return format!("missed: {bound} calls or more");
    }
    let reached = [(goal.stretch, "stretch"), (goal.must, "must")];
    reached.iter().find(|(bound, _)| ratio >= *bound).map_or("missed", |(_, name)| name).to_owned()
}

fn latency(side: &Rounds<'_>, base: &Rounds<'_>) -> Vec<String> {
    let cpu = |rounds: &Rounds<'_>| rounds.cpu.map(|cpu| cpu / rounds.requests() as f64);
    let cpu = cpu(side).zip(cpu(base)).map_or_else(dash, |(side, base)| format!("{:.2}", side / base));
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
