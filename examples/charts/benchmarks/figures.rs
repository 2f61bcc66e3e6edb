//! The figures of all files of a folder.

use std::error::Error;
use std::fs;
use std::path::Path;

/// The first line of each file.
const HEADER: &str = "table,side,unit,cause,rounds";

struct Figure {
    table: String,
    side: String,
    cause: String,
    rounds: Vec<f64>,
}

/// Figures of all tables, each with a value for every round.
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    pub(crate) fn read(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let mut figures = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "csv") {
                let text = fs::read_to_string(&path)?;
                let mut lines = text.lines();
                if lines.next() != Some(HEADER) {
                    return Err(format!("{}: the first line is not {HEADER}", path.display()).into());
                }
                figures.extend(lines.map(parse).collect::<Result<Vec<_>, _>>()?);
            }
        }
        Ok(Self(figures))
    }

    /// The rounds of a figure, if it was measured.
    pub(crate) fn rounds(&self, table: &str, side: &str, cause: &str) -> Option<&[f64]> {
        let is_it = |figure: &&Figure| figure.table == table && figure.side == side && figure.cause == cause;
        self.0.iter().find(is_it).map(|figure| &*figure.rounds)
    }

    pub(crate) fn median(&self, table: &str, side: &str, cause: &str) -> Option<f64> {
        self.rounds(table, side, cause).map(|rounds| median(rounds.to_vec()))
    }

    /// The causes of one side of a table, in their order.
    pub(crate) fn causes(&self, table: &str, side: &str) -> Vec<&str> {
        let of_side = self.0.iter().filter(|figure| figure.table == table && figure.side == side);
        of_side.map(|figure| &*figure.cause).collect()
    }
}

fn parse(line: &str) -> Result<Figure, Box<dyn Error>> {
    let fields: Vec<&str> = line.split(',').collect();
    let [table, side, _, cause, rounds] = fields[..] else { return Err(format!("not a figure: {line}").into()) };
    let rounds = rounds.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    if rounds.is_empty() {
        return Err(format!("a figure without rounds: {line}").into());
    }
    let [table, side, cause] = [table, side, cause].map(str::to_owned);
    Ok(Figure { table, side, cause, rounds })
}

/// The median; of an even number of values, the upper one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median of what each round makes of two figures.
pub(crate) fn paired(ours: &[f64], theirs: &[f64], pair: impl Fn(f64, f64) -> f64) -> f64 {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| pair(*ours, *theirs)).collect())
}
