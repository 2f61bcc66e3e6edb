//! The table of drop ratios in `docs/reliability.md`.

use super::report::Report;
use crate::table::{millis, name, print_rows};

const COLUMNS: [&str; 11] = [
    "Redis …",
    "requests",
    "hung",
    "5xx",
    "critical refused",
    "p99 meanwhile, ms",
    "p99 without a layer, ms",
    "worst added, ms",
    "admitted a second: before / within the life / after it / again",
    "by ratio / share, %",
    "ratios again, ms",
];

pub(super) fn print(reports: &[Report]) {
    print_rows(COLUMNS, reports.iter().map(row));
}

fn row(report: &Report) -> [String; COLUMNS.len()] {
    let [by_ratio, by_share] = report.shares;
    let rate = |rate: &Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
    [
        name(report.name, report),
        report.sent.to_string(),
        report.hung.to_string(),
        report.errors.to_string(),
        report.critical_refused.to_string(),
        millis(report.meanwhile.p99),
        millis(report.free.p99),
        millis(report.worst.saturating_sub(report.calm.p50)),
        report.rates.each_ref().map(rate).join(" / "),
        format!("{by_ratio:.1} / {by_share:.1}"),
        report.again.map_or("never".to_owned(), millis),
    ]
}
