//! The table of `docs/reliability.md`.

use std::time::Duration;

use crate::report::Report;

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
    println!("\n| {} |\n|{}", COLUMNS.join(" | "), " --- |".repeat(COLUMNS.len()));
    for report in reports {
        println!("| {} |", row(report).join(" | "));
    }
    println!();
}

fn row(report: &Report) -> [String; COLUMNS.len()] {
    let Report { shares, recovery, floods, .. } = report;
    let admitted: Vec<String> = floods.iter().map(|flood| flood.admitted().to_string()).collect();
    // All floods are alike.
    let allowed = floods.first().map(|flood| format!("{:.0} to {:.0}", flood.least, flood.most()));
    [
        format!(
            "{}{}",
            report.name,
            if report.is_of_a_busy_machine() { " (busy machine: times not judged)" } else { "" }
        ),
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

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
