//! The figures of a run as a file, of which `examples/charts/benchmarks` draws pictures.

use std::fmt::Write;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// The first line. The rounds of a figure are separated by spaces.
const HEADER: &str = "table,side,unit,cause,rounds\n";

/// Figures, which are written to the file at the end, if there is one.
pub(crate) struct Record {
    file: Option<File>,
    text: String,
}

impl Record {
    /// Opens the file, so that a path that is wrong ends the run before it begins.
    pub(crate) fn new(out: Option<&Path>) -> Self {
        let create = |out: &Path| {
            File::create(out).unwrap_or_else(|error| panic!("{} cannot be written: {error}", out.display()))
        };
        Self { file: out.map(create), text: HEADER.to_owned() }
    }

    /// Adds a figure by its table, side, unit and cause.
    pub(crate) fn add(&mut self, fields: [&str; 4], rounds: &[f64]) {
        assert!(fields.iter().all(|field| !field.contains(',')), "a comma ends a field: {fields:?}");
        let rounds: Vec<_> = rounds.iter().map(|value| format!("{value:.3}")).collect();
        writeln!(self.text, "{},{}", fields.join(","), rounds.join(" ")).expect("text takes all");
    }

    pub(crate) fn write(self) {
        if let Some(mut file) = self.file {
            file.write_all(self.text.as_bytes()).expect("the file takes all");
        }
    }
}
