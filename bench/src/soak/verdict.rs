//! Flat, or not: the last quarter of the readings beside the second, as the first one warms up.

use super::reading::Reading;
use crate::table::median_of;

/// What may be more in the end, as a share of what was, beside what varies from reading to reading.
const TOLERANCE: f64 = 0.1;

pub(super) const COLUMNS: [&str; 5] = ["", "second quarter", "last quarter", "at most", "verdict"];

/// A figure, and by how much it varies.
type Figure = (&'static str, fn(&Reading) -> u64, f64);

const FIGURES: [Figure; 5] = [
    ("RSS, kB", |reading| reading.memory_kb, 1_024.0),
    ("open files", |reading| reading.files, 10.0),
    ("tasks", |reading| reading.tasks, 10.0),
    ("Redis connections", |reading| reading.connections, 1.0),
    ("Redis memory, kB", |reading| reading.redis_kb, 256.0),
];

pub(super) struct Row {
    name: &'static str,
    before: f64,
    after: f64,
    most: f64,
}

/// The medians of two quarters, figure by figure.
pub(super) fn rows(readings: &[Reading]) -> Vec<Row> {
    let quarter = readings.len() / 4;
    let (second, last) = (&readings[quarter..2 * quarter], &readings[readings.len() - quarter..]);
    let row = |(name, figure, varies): Figure| {
        let median = |readings: &[Reading]| median_of(readings.iter().map(|reading| figure(reading) as f64));
        let (before, after) = (median(second), median(last));
        Row { name, before, after, most: before * (1.0 + TOLERANCE) + varies }
    };
    FIGURES.into_iter().map(row).collect()
}

impl Row {
    pub(super) fn is_flat(&self) -> bool {
        self.after <= self.most
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let [before, after, most] = [self.before, self.after, self.most].map(|value| format!("{value:.0}"));
        let verdict = if self.is_flat() { "flat" } else { "grows" };
        vec![self.name.to_owned(), before, after, most, verdict.to_owned()]
    }
}
