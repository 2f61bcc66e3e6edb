//! How often, and how long, each side is measured.

use std::ops::Range;

/// Seconds at the start of a round, of a cut, and after it.
const START: usize = 5;
const CUT: usize = 3;
const AFTER: usize = 3;

#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) rounds: usize,
    /// Seconds that are measured.
    pub(super) seconds: usize,
}

impl Plan {
    /// The seconds that are measured.
    pub(super) fn steady(self) -> Range<usize> {
        START..START + self.seconds
    }

    /// Those in which the link is cut.
    pub(super) fn cut(self) -> Range<usize> {
        let start = self.steady().end;
        start..start + CUT
    }

    /// Those after it.
    pub(super) fn after(self) -> Range<usize> {
        let start = self.cut().end;
        start..start + AFTER
    }

    /// How long a round of a side is.
    pub(super) fn length(self, has_link: bool) -> usize {
        if has_link { self.after().end } else { self.steady().end }
    }
}

/// Returns the plan, and the name of the only side if there is one.
pub(super) fn of(flags: &[String]) -> (Plan, Option<String>) {
    let (mut plan, mut only) = (Plan { rounds: 3, seconds: 8 }, None);
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        let mut value = || flags.next().cloned().unwrap_or_else(|| crate::usage());
        let number = |value: String| value.parse().ok().filter(|&number| number > 0).unwrap_or_else(|| crate::usage());
        match flag.as_str() {
            "--quick" => plan = Plan { rounds: 1, seconds: 2 },
            "--rounds" => plan.rounds = number(value()),
            "--seconds" => plan.seconds = number(value()),
            "--only" => only = Some(value()),
            _ => crate::usage(),
        }
    }
    (plan, only)
}
