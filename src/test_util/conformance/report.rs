//! What a run of the suite found.

use std::fmt;

use super::subject::Found;

/// How many differences of a case are printed.
const SHOWN: usize = 10;

/// The result of a run of the [conformance suite](super::Conformance), which prints each row that differs.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Report {
    cases: Vec<Case>,
}

#[derive(Clone, Debug)]
struct Case {
    name: String,
    compared: usize,
    differences: Vec<String>,
    /// Why it ended early, if it did.
    stopped: Option<String>,
}

impl Report {
    /// Adds a case, and why it ended early, if it did.
    pub(super) fn add(&mut self, name: String, found: Found, stopped: Option<String>) {
        let Found { compared, differences, .. } = found;
        self.cases.push(Case { name, compared, differences, stopped });
    }

    /// Returns how many cases passed, those that ran [in part](Self::in_part) included.
    #[must_use]
    pub fn passed(&self) -> usize {
        let passed = |case: &&Case| case.differences.is_empty() && (case.compared > 0 || case.stopped.is_none());
        self.cases.iter().filter(passed).count()
    }

    /// Returns how many results were compared in all cases.
    #[must_use]
    pub fn compared(&self) -> usize {
        self.cases.iter().map(|case| case.compared).sum()
    }

    /// Returns the names of the cases that were left out, each with the reason.
    pub fn left_out(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stopped(|compared| compared == 0)
    }

    /// Returns the names of the cases that ended early, as what follows cannot be compared, each with the reason.
    pub fn in_part(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stopped(|compared| compared > 0)
    }

    fn stopped(&self, which: impl Fn(usize) -> bool) -> impl Iterator<Item = (&str, &str)> {
        let cases = self.cases.iter().filter(move |case| which(case.compared));
        cases.filter_map(|case| Some((case.name.as_str(), case.stopped.as_deref()?)))
    }

    /// Returns what differs: the name of the case, and what was expected and found.
    pub fn differences(&self) -> impl Iterator<Item = (&str, &str)> {
        let cases = self.cases.iter();
        cases.flat_map(|case| case.differences.iter().map(move |one| (case.name.as_str(), one.as_str())))
    }

    /// Panics if anything differs, or if no case could run.
    ///
    /// # Panics
    ///
    /// With this report as text.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(self.differences().next().is_none() && self.passed() > 0, "the store does not conform\n{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differing = || self.cases.iter().filter(|case| !case.differences.is_empty());
        let (passed, differ, left_out) = (self.passed(), differing().count(), self.left_out().count());
        writeln!(f, "{passed} cases passed, {differ} differ, {left_out} left out")?;
        writeln!(f, "{} results compared", self.compared())?;
        for Case { name, differences, .. } in differing() {
            writeln!(f, "differs: {name}")?;
            for difference in differences.iter().take(SHOWN) {
                writeln!(f, "    {difference}")?;
            }
            if let Some(more @ 1..) = differences.len().checked_sub(SHOWN) {
                writeln!(f, "    and {more} more")?;
            }
        }
        let in_part = self.in_part().map(|case| ("in part", case));
        let mut early = in_part.chain(self.left_out().map(|case| ("left out", case)));
        early.try_for_each(|(how, (case, reason))| writeln!(f, "{how}: {case}: {reason}"))
    }
}
