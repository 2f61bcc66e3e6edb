//! Tables of ratios to the first row, and the powers by which costs grow.

use crate::record::Record;
use crate::table::{median, median_of, print};

/// By how much an exponent may be above 1.
const TOLERANCE: f64 = 0.05;

/// A figure of one side, at every row of a table.
pub(super) struct Curve {
    name: String,
    /// The values by row, then by round.
    rows: Vec<Vec<f64>>,
    /// Whether it is of tollgate.
    is_ours: bool,
    /// The curve this one is compared with.
    peer: Option<usize>,
}

impl Curve {
    fn new(name: &str, rows: usize, is_ours: bool, peer: Option<usize>) -> Self {
        Self { name: name.to_owned(), rows: vec![Vec::new(); rows], is_ours, peer }
    }

    fn typical(&self, row: usize) -> f64 {
        median(self.rows[row].clone())
    }

    /// The ratio to another row, which may be of another curve, as the median of the rounds.
    fn ratio(&self, row: usize, to: &Curve, to_row: usize) -> f64 {
        median_of(self.rows[row].iter().zip(&to.rows[to_row]).map(|(ours, theirs)| ours / theirs))
    }
}

/// What a figure is: it grows with the cost, or falls.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Unit {
    Nanoseconds,
    Microseconds,
    PerSecond,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "µs",
            Unit::PerSecond => "1/s",
        }
    }

    fn format(self, value: f64) -> String {
        if self == Unit::Microseconds { format!("{value:.2}") } else { format!("{value:.0}") }
    }
}

/// One cause, and what it does to some sides.
pub(super) struct Table {
    /// What the file calls it.
    pub(super) name: &'static str,
    /// What one unit of work is.
    pub(super) work: String,
    pub(super) cause: &'static str,
    pub(super) unit: Unit,
    rows: Vec<String>,
    curves: Vec<Curve>,
    conclusion: Option<String>,
}

impl Table {
    pub(super) fn new(name: &'static str, cause: &'static str, unit: Unit, rows: Vec<String>, work: String) -> Self {
        Self { name, work, cause, unit, rows, curves: Vec::new(), conclusion: None }
    }

    /// A table of numbers, from few to many.
    pub(super) fn of(name: &'static str, cause: &'static str, unit: Unit, rows: &[usize], work: String) -> Self {
        Self::new(name, cause, unit, rows.iter().map(ToString::to_string).collect(), work)
    }

    /// Adds a side of others.
    pub(super) fn beside(mut self, name: &str) -> Self {
        self.curves.push(Curve::new(name, self.rows.len(), false, None));
        self
    }

    /// Adds a side of tollgate, and its peer of those that are there.
    pub(super) fn side(mut self, name: &str, peer: Option<&str>) -> Self {
        let peer = peer.map(|peer| self.curves.iter().position(|curve| curve.name == peer).expect("a side is there"));
        self.curves.push(Curve::new(name, self.rows.len(), true, peer));
        self
    }

    /// Notes the figure of one round.
    pub(super) fn note(&mut self, side: usize, row: usize, value: f64) {
        assert!(value.is_finite() && value > 0.0, "{}: {value} is no figure", self.curves[side].name);
        self.curves[side].rows[row].push(value);
    }

    /// Adds what stands after the table.
    pub(super) fn conclude(&mut self, conclusion: String) {
        self.conclusion = Some(conclusion);
    }

    fn print(&self) {
        println!("{}\n", self.work);
        let mut header = vec![self.cause.to_owned()];
        for curve in &self.curves {
            header.extend([format!("{}: {}", curve.name, self.unit.name()), "to the first row".to_owned()]);
            header.extend(curve.peer.map(|peer| format!("over {}", self.curves[peer].name)));
        }
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        print(&header, &self.rows.iter().enumerate().map(|(row, name)| self.cells(row, name)).collect::<Vec<_>>());
        if let Some(conclusion) = &self.conclusion {
            println!("{conclusion}\n");
        }
    }

    fn cells(&self, row: usize, name: &str) -> Vec<String> {
        let mut cells = vec![name.to_owned()];
        for curve in &self.curves {
            cells.extend([self.unit.format(curve.typical(row)), format!("{:.2}", curve.ratio(row, curve, 0))]);
            cells.extend(curve.peer.map(|peer| format!("{:.2}", curve.ratio(row, &self.curves[peer], row))));
        }
        cells
    }

    /// By which power of the cause a cost grew: between the first row and the last, and where it is steepest. `None` of
    /// a cause that is no number.
    fn exponents(&self, curve: &Curve) -> Option<[f64; 2]> {
        let causes: Vec<f64> = self.rows.iter().map(|row| row.parse().ok()).collect::<Option<_>>()?;
        let sign = if self.unit == Unit::PerSecond { -1.0 } else { 1.0 };
        let exponent = |from: usize, to: usize| {
            let exponent = sign * curve.ratio(to, curve, from).ln() / (causes[to] / causes[from]).ln();
            // A hundredth is what is printed, and no zero has a sign.
            (exponent * 100.0).round() / 100.0 + 0.0
        };
        let steps = (1..causes.len()).map(|row| exponent(row - 1, row));
        Some([exponent(0, causes.len() - 1), steps.reduce(f64::max)?])
    }

    /// A row of the last table for each side of tollgate.
    fn verdicts(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for curve in self.curves.iter().filter(|curve| curve.is_ours) {
            let Some([whole, steepest]) = self.exponents(curve) else { continue };
            let peer = curve.peer.map(|peer| &self.curves[peer]);
            let of_peer = peer.and_then(|peer| self.exponents(peer)).map(|exponents| exponents[0]);
            let verdict = if whole <= 1.0 + TOLERANCE { "no faster than its cause" } else { "faster than its cause" };
            rows.push(vec![
                self.name.replace('_', " "),
                curve.name.clone(),
                format!("{whole:.2}"),
                format!("{steepest:.2}"),
                peer.map(|peer| peer.name.clone()).unwrap_or_default(),
                of_peer.map(|exponent| format!("{exponent:.2}")).unwrap_or_default(),
                verdict.to_owned(),
            ]);
        }
        rows
    }

    fn record(&self, record: &mut Record) {
        for curve in &self.curves {
            for (row, cause) in self.rows.iter().enumerate() {
                record.add([self.name, &curve.name, self.unit.name(), cause], &curve.rows[row]);
            }
        }
    }
}

/// All tables, printed as they come, and a last one of all causes.
pub(super) struct Report {
    record: Record,
    verdicts: Vec<Vec<String>>,
}

impl Report {
    pub(super) fn new(record: Record) -> Self {
        Self { record, verdicts: Vec::new() }
    }

    pub(super) fn add(&mut self, table: &Table) {
        table.print();
        table.record(&mut self.record);
        self.verdicts.extend(table.verdicts());
    }

    /// Prints the last table, and writes the file.
    pub(super) fn end(self) {
        println!(
            "By which power of its cause each cost grew, from the first row to the last, and in the steepest step between \
             two rows. A figure a second is a cost as the time for each. Up to {:.2} a cost grows no faster than its \
             cause: the rest is noise, and the waiting for memory.\n",
            1.0 + TOLERANCE
        );
        let header = ["cost", "side", "exponent", "steepest step", "peer", "its exponent", "verdict"];
        print(&header, &self.verdicts);
        self.record.write();
    }
}
