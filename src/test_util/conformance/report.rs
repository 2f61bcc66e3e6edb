//! What a run of the suite found.

use std::fmt;

/// How many differences of a case are printed.
const SHOWN: usize = 10;

/// The result of a run of the [conformance suite](super::Conformance), which prints each row that differs.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Report {
    passed: usize,
    compared: usize,
    left_out: Vec<(String, String)>,
    in_part: Vec<(String, String)>,
    differing: Vec<(String, Vec<String>)>,
}

impl Report {
    pub(super) fn leave_out(&mut self, case: String, reason: impl Into<String>) {
        self.left_out.push((case, reason.into()));
    }

    /// Adds a case, and why it ended early, if it did.
    pub(super) fn add(&mut self, case: String, compared: usize, differences: Vec<String>, stopped: Option<String>) {
        self.compared += compared;
        match stopped {
            Some(reason) if compared == 0 => return self.leave_out(case, reason),
            Some(reason) => self.in_part.push((case.clone(), reason)),
            None => {}
        }
        if differences.is_empty() {
            self.passed += 1;
        } else {
            self.differing.push((case, differences));
        }
    }

    /// Returns how many cases passed, those that ran [in part](Self::in_part) included.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// Returns how many results were compared in all cases.
    #[must_use]
    pub fn compared(&self) -> usize {
        self.compared
    }

    /// Returns the names of the cases that were left out, each with the reason.
    pub fn left_out(&self) -> impl Iterator<Item = (&str, &str)> {
        self.left_out.iter().map(|(case, reason)| (case.as_str(), reason.as_str()))
    }

    /// Returns the names of the cases that ended early, as what follows cannot be compared, each with the reason.
    pub fn in_part(&self) -> impl Iterator<Item = (&str, &str)> {
        self.in_part.iter().map(|(case, reason)| (case.as_str(), reason.as_str()))
    }

    /// Returns what differs: the name of the case, and what was expected and found.
    pub fn differences(&self) -> impl Iterator<Item = (&str, &str)> {
        let each = self.differing.iter();
        each.flat_map(|(case, differences)| differences.iter().map(move |one| (case.as_str(), one.as_str())))
    }

    /// Panics if anything differs, or if no case could run.
    ///
    /// # Panics
    ///
    /// With this report as text.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(self.differing.is_empty() && self.passed > 0, "the store does not conform\n{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (differing, left_out) = (self.differing.len(), self.left_out.len());
        writeln!(f, "{} cases passed, {differing} differ, {left_out} left out", self.passed)?;
        writeln!(f, "{} results compared", self.compared)?;
        for (case, differences) in &self.differing {
            writeln!(f, "differs: {case}")?;
            for difference in differences.iter().take(SHOWN) {
                writeln!(f, "    {difference}")?;
            }
            if let Some(more @ 1..) = differences.len().checked_sub(SHOWN) {
                writeln!(f, "    and {more} more")?;
            }
        }
        for (case, reason) in &self.in_part {
            writeln!(f, "in part: {case}: {reason}")?;
        }
        for (case, reason) in &self.left_out {
            writeln!(f, "left out: {case}: {reason}")?;
        }
        Ok(())
    }
}
