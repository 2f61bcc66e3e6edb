//! Tables of ratios to the first row, and the same figures in a file.

use std::fmt::Write;
use std::fs::File;
use std::io::Write as _;

use crate::table::{median, median_of, print};

/// A figure of one side, at every row of a table.
pub(super) struct Curve {
    name: String,
    /// The values by row, then by round.
    rows: Vec<Vec<f64>>,
    /// The curve this one is compared with.
    peer: Option<usize>,
}

impl Curve {
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
            Unit::PerSecond => "checks/s",
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
}

impl Table {
    pub(super) fn new(name: &'static str, cause: &'static str, unit: Unit, rows: Vec<String>, work: String) -> Self {
        Self { name, work, cause, unit, rows, curves: Vec::new() }
    }

    /// A table of numbers, from few to many.
    pub(super) fn of(name: &'static str, cause: &'static str, unit: Unit, rows: &[usize], work: String) -> Self {
        Self::new(name, cause, unit, rows.iter().map(ToString::to_string).collect(), work)
    }

    /// Adds a side, and its peer of those that are there.
    pub(super) fn side(mut self, name: &str, peer: Option<&str>) -> Self {
        assert!(!name.contains(','), "a comma ends a field of the file");
        let peer = peer.map(|peer| self.curves.iter().position(|curve| curve.name == peer).expect("a side is there"));
        self.curves.push(Curve { name: name.to_owned(), rows: vec![Vec::new(); self.rows.len()], peer });
        self
    }

    /// Notes the figure of one round.
    pub(super) fn note(&mut self, side: usize, row: usize, value: f64) {
        assert!(value.is_finite() && value > 0.0, "{}: {value} is no figure", self.curves[side].name);
        self.curves[side].rows[row].push(value);
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
        if let Some(exponents) = self.exponents() {
            println!("{exponents}\n");
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

    /// By which power of the cause each cost grew between the first and the last row; `None` of what has no number.
    fn exponents(&self) -> Option<String> {
        let last = self.rows.len() - 1;
        let [from, to] = [0, last].map(|row| self.rows[row].parse::<f64>().ok());
        let growth = (to? / from?).ln();
        let sign = if self.unit == Unit::PerSecond { -1.0 } else { 1.0 };
        // A hundredth is what is printed, and no zero has a sign.
        let exponent = |curve: &Curve| (sign * curve.ratio(last, curve, 0).ln() / growth * 100.0).round() / 100.0 + 0.0;
        let each: Vec<_> = self.curves.iter().map(|curve| (&curve.name, exponent(curve))).collect();
        let named: Vec<_> = each.iter().map(|(name, exponent)| format!("{name} {exponent:.2}")).collect();
        let faster: Vec<_> =
            each.iter().filter(|(_, exponent)| *exponent > 1.0).map(|(name, _)| name.as_str()).collect();
        let verdict = if faster.is_empty() {
            "none grows faster than its cause".to_owned()
        } else {
            format!("above 1, and so faster than the cause: {}", faster.join(", "))
        };
        let cost = if sign < 0.0 { "time for each check" } else { "cost" };
        Some(format!("Exponent of the {cost}, first row to last: {}; {verdict}.", named.join(", ")))
    }

    fn lines(&self, text: &mut String) {
        for curve in &self.curves {
            for (row, cause) in self.rows.iter().enumerate() {
                let (value, ratio) = (curve.typical(row), curve.ratio(row, curve, 0));
                let (table, side, unit) = (self.name, &curve.name, self.unit.name());
                writeln!(text, "{table},{side},{unit},{cause},{value:.3},{ratio:.4}").expect("text takes all");
            }
        }
    }
}

/// All tables, printed as they come.
pub(super) struct Report {
    file: Option<File>,
    text: String,
}

impl Report {
    /// Opens the file, so that a path that is wrong ends the run before it begins.
    pub(super) fn new(out: Option<&str>) -> Self {
        let file = out.map(|out| File::create(out).unwrap_or_else(|error| panic!("{out} cannot be written: {error}")));
        Self { file, text: "table,side,unit,cause,median,ratio\n".to_owned() }
    }

    pub(super) fn add(&mut self, table: &Table) {
        table.print();
        table.lines(&mut self.text);
    }

    pub(super) fn write(self) {
        if let Some(mut file) = self.file {
            file.write_all(self.text.as_bytes()).expect("the file takes all");
        }
    }
}
