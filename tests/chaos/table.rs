//! The table of `docs/reliability.md`.

use std::time::Duration;

use crate::report::Report;
use crate::rig::Judged;

const COLUMNS: [&str; 12] = [
    "Redis …",
    "requests",
    "hung",
    "5xx",
    "wrongly refused",
    "p99 before, ms",
    "p99 meanwhile, ms",
    "worst added, ms",
    "admitted of each flood",
    "allowed",
    "by Redis / memory / fallback, %",
    "first / all again, ms",
];

pub(crate) fn print(reports: &[Report]) {
    print_rows(COLUMNS, reports.iter().map(row));
}

/// Prints a table.
pub(crate) fn print_rows<const N: usize>(columns: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    println!("\n| {} |\n|{}", columns.join(" | "), " --- |".repeat(N));
    for row in rows {
        println!("| {} |", row.join(" | "));
    }
    println!();
}

/// The name of a case, and whether its times were judged.
pub(crate) fn name(case: &str, report: &impl Judged) -> String {
    let busy = if report.is_of_a_busy_machine() { " (busy machine: times not judged)" } else { "" };
    format!("{case}{busy}")
}

fn row(report: &Report) -> [String; COLUMNS.len()] {
    let Report { shares, recovery, floods, .. } = report;
    let admitted: Vec<String> = floods.iter().map(|flood| flood.admitted().to_string()).collect();
    // All floods are alike.
    let allowed = floods.first().map(|flood| format!("{:.0} to {:.0}", flood.least, flood.most()));
    [
        name(report.name, report),
        report.sent.to_string(),
        report.late.to_string(),
        report.errors.to_string(),
        report.wrongly_refused.to_string(),
        millis(report.calm.p99),
        millis(report.meanwhile.p99),
        millis(report.worst.saturating_sub(report.calm.p50)),
        admitted.join(", "),
        allowed.unwrap_or_default(),
        format!("{:.1} / {:.1} / {:.1}", shares.redis, shares.memory, shares.fallback),
        format!("{} / {}", recovery.first.map_or("never".to_owned(), millis), millis(recovery.all)),
    ]
}

pub(crate) fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
