//! Medians, tables and targets.

/// The median; of an even number of values, the upper one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) fn median_of(values: impl IntoIterator<Item = f64>) -> f64 {
    median(values.into_iter().collect())
}

/// Prints a Markdown table.
pub(crate) fn print(header: &[&str], rows: &[Vec<String>]) {
    println!("| {} |", header.join(" | "));
    println!("|{}", " --- |".repeat(header.len()));
    for row in rows {
        println!("| {} |", row.join(" | "));
    }
    println!();
}

/// What a ratio has to be: at least so much, or at most.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtLeast { must: f64, stretch: f64 },
    AtMost { must: f64, stretch: f64 },
}

impl Target {
    fn verdict(self, ratio: f64) -> &'static str {
        let (reached, stretched) = match self {
            Target::AtLeast { must, stretch } => (ratio >= must, ratio >= stretch),
            Target::AtMost { must, stretch } => (ratio <= must, ratio <= stretch),
        };
        match (reached, stretched) {
            (_, true) => "stretch",
            (true, false) => "reached",
            (false, false) => "missed",
        }
    }

    fn columns(self) -> [String; 2] {
        match self {
            Target::AtLeast { must, stretch } => [must, stretch].map(|bound| format!("≥ {bound}")),
            Target::AtMost { must, stretch } => [must, stretch].map(|bound| format!("≤ {bound}")),
        }
    }
}

/// A ratio of two sides, one value a round, and its target if it has one.
pub(crate) struct Ratio {
    pub(crate) name: String,
    pub(crate) rounds: Vec<f64>,
    pub(crate) target: Option<Target>,
}

impl Ratio {
    pub(crate) fn new(name: impl Into<String>, rounds: Vec<f64>, target: impl Into<Option<Target>>) -> Self {
        Self { name: name.into(), rounds, target: target.into() }
    }

    fn row(&self) -> Vec<String> {
        let [low, high] = [f64::min, f64::max].map(|pick| self.rounds.iter().copied().reduce(pick));
        let range = low.zip(high).map(|(low, high)| format!("{low:.2}–{high:.2}"));
        let ratio = median(self.rounds.clone());
        let [must, stretch] = self.target.map(Target::columns).unwrap_or_default();
        let verdict = self.target.map(|target| target.verdict(ratio)).unwrap_or_default();
        vec![self.name.clone(), format!("{ratio:.2}"), range.unwrap_or_default(), must, stretch, verdict.to_owned()]
    }
}

/// Prints ratios, the median of their rounds, beside what they have to be.
pub(crate) fn print_ratios(ratios: &[Ratio]) {
    let rows: Vec<_> = ratios.iter().map(Ratio::row).collect();
    print(&["ratio", "median", "rounds", "must", "stretch", "verdict"], &rows);
}
