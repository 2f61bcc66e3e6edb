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

/// What a figure has to be: at least so much, or at most.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtLeast { must: f64, stretch: f64 },
    AtMost { must: f64, stretch: f64 },
}

impl Target {
    fn verdict(self, figure: f64) -> &'static str {
        let (reached, stretched) = match self {
            Target::AtLeast { must, stretch } => (figure >= must, figure >= stretch),
            Target::AtMost { must, stretch } => (figure <= must, figure <= stretch),
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

/// A ratio of two sides or another figure, one value a round, and its target if it has one.
#[derive(Default)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) rounds: Vec<f64>,
    pub(crate) target: Option<Target>,
    /// The processor time of the same rounds, as a ratio of the same sides, if it was taken.
    pub(crate) processor: Vec<f64>,
    /// In what the work of the two sides differs.
    pub(crate) unequal: String,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, rounds: Vec<f64>, target: impl Into<Option<Target>>) -> Self {
        Self { name: name.into(), rounds, target: target.into(), ..Self::default() }
    }

    fn row(&self) -> Vec<String> {
        let [low, high] = [f64::min, f64::max].map(|pick| self.rounds.iter().copied().reduce(pick));
        let range = low.zip(high).map(|(low, high)| format!("{}–{}", text(low), text(high)));
        let figure = median(self.rounds.clone());
        let [must, stretch] = self.target.map(Target::columns).unwrap_or_default();
        let verdict = self.target.map(|target| target.verdict(figure)).unwrap_or_default();
        vec![self.name.clone(), text(figure), range.unwrap_or_default(), must, stretch, verdict.to_owned()]
    }

    /// What only some figures have.
    fn more(&self) -> [String; 2] {
        let processor = (!self.processor.is_empty()).then(|| text(median(self.processor.clone())));
        [processor.unwrap_or_default(), self.unequal.clone()]
    }
}

/// Ratios with what their size tells, and numbers of instructions as such.
fn text(figure: f64) -> String {
    if figure < 1_000.0 { format!("{figure:.2}") } else { format!("{figure:.0}") }
}

/// Prints figures, the median of their rounds, beside what they have to be; what only some of them have if one has it.
pub(crate) fn print_figures(figures: &[Figure]) {
    let mut header = vec!["figure", "median", "rounds", "must", "stretch", "verdict"];
    let mut rows: Vec<_> = figures.iter().map(Figure::row).collect();
    for (place, name) in ["processor time", "unequal work"].into_iter().enumerate() {
        let cells: Vec<_> = figures.iter().map(|figure| figure.more()[place].clone()).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            header.push(name);
            rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
        }
    }
    print(&header, &rows);
}
