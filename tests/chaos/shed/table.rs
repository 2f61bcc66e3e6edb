//! The table of the shedders in `docs/reliability.md`.

use super::report::Report;
use crate::table::{millis, name, print_rows};

const COLUMNS: [&str; 13] = [
    "Redis …",
    "requests",
    "hung",
    "5xx but shed",
    "critical refused",
    "others shed, %",
    "p99 before, ms",
    "p99 meanwhile, ms",
    "worst added, ms",
    "by Redis / fallback, %",
    "Redis again, ms",
    "slots back, ms",
    "jobs before / meanwhile / after",
];

pub(super) fn print(reports: &[Report]) {
    print_rows(COLUMNS, reports.iter().map(row));
}

fn row(report: &Report) -> [String; COLUMNS.len()] {
    let [by_redis, by_fallback] = report.shares;
    [
        name(report.name, report),
        report.sent.to_string(),
        report.hung.to_string(),
        report.errors.to_string(),
        report.critical_refused.to_string(),
        format!("{:.1}", report.shed),
        millis(report.calm.p99),
        millis(report.meanwhile.p99),
        millis(report.worst.saturating_sub(report.calm.p50)),
        format!("{by_redis:.1} / {by_fallback:.1}"),
        report.again.map_or("never".to_owned(), millis),
        report.outcome.back.map_or("never".to_owned(), millis),
        report.jobs.map(|jobs| jobs.to_string()).join(" / "),
    ]
}
