//! The tables of `docs/reliability.md`.

use std::time::Duration;

use crate::rig::Judged;

/// What is told of a case, by column.
pub(crate) type Row = Vec<(&'static str, String)>;

/// Prints a table of cases, and whether their times were judged.
pub(crate) fn print(reports: &[impl Judged]) {
    for (place, report) in reports.iter().enumerate() {
        let (columns, cells): (Vec<_>, Vec<_>) = report.row().into_iter().unzip();
        if place == 0 {
            println!("\n| Redis … | {} |\n| ---{} |", columns.join(" | "), " | ---".repeat(columns.len()));
        }
        let busy = if report.is_of_a_busy_machine() { " (busy machine: times not judged)" } else { "" };
        println!("| {}{busy} | {} |", report.name(), cells.join(" | "));
    }
    println!();
}

pub(crate) fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
