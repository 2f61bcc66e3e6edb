//! What came of cases: the tables of `docs/reliability.md`, and what is wrong.

use std::time::Duration;

use crate::case::Case;

/// What is told of a case, by column.
pub(crate) type Row = Vec<(&'static str, String)>;

/// What came of a case.
pub(crate) struct Report {
    pub(crate) name: &'static str,
    row: Row,
    /// Whether the machine had too much else to do: then times are not judged.
    pub(crate) is_busy: bool,
    /// What is wrong, in words.
    pub(crate) faults: Vec<String>,
}

impl Report {
    pub(crate) fn new(case: &Case, row: Row, is_busy: bool, wrong: Vec<String>, wrong_times: Vec<String>) -> Self {
        let faults = if is_busy { wrong } else { [wrong, wrong_times].concat() };
        Self { name: case.name, row, is_busy, faults }
    }
}

/// Prints a table of cases, and whether their times were judged.
pub(crate) fn print(reports: &[Report]) {
    for (place, report) in reports.iter().enumerate() {
        let (columns, cells): (Vec<_>, Vec<_>) = report.row.iter().cloned().unzip();
        if place == 0 {
            println!("\n| Redis … | {} |\n| ---{} |", columns.join(" | "), " | ---".repeat(columns.len()));
        }
        let busy = if report.is_busy { " (busy machine: times not judged)" } else { "" };
        println!("| {}{busy} | {} |", report.name, cells.join(" | "));
    }
    println!();
}

pub(crate) fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

/// The texts of what is so.
pub(crate) fn told<const N: usize>(wrong: [(bool, String); N]) -> Vec<String> {
    wrong.into_iter().filter_map(|(is_so, text)| is_so.then_some(text)).collect()
}
