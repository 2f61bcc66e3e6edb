//! How often, and how long, each side is measured.

use std::ops::Range;
use std::time::Duration;

#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) rounds: usize,
    /// Seconds at the start of a round.
    start: usize,
    /// Seconds that are measured.
    pub(super) seconds: usize,
    /// Seconds of a cut, and as many after it.
    cut: usize,
    /// How long a round of the last table is.
    pub(super) flood: Duration,
}

const FULL: Plan = Plan { rounds: 3, start: 5, seconds: 6, cut: 3, flood: Duration::from_secs(1) };
const QUICK: Plan = Plan { rounds: 1, start: 3, seconds: 1, cut: 1, flood: Duration::from_millis(200) };

impl Plan {
    /// The seconds that are measured.
    pub(super) fn steady(self) -> Range<usize> {
        self.start..self.start + self.seconds
    }

    /// Those in which the link is cut: not at once, as the last requests are still on their way.
    pub(super) fn cut(self) -> Range<usize> {
        let start = self.steady().end + 1;
        start..start + self.cut
    }

    /// Those after it.
    pub(super) fn after(self) -> Range<usize> {
        let start = self.cut().end;
        start..start + self.cut
    }

    /// How long a round of a side is.
    pub(super) fn length(self, has_link: bool) -> usize {
        if has_link { self.after().end } else { self.steady().end }
    }
}

/// Returns the plan, and the name of the only side if there is one.
pub(super) fn of(flags: &[String]) -> (Plan, Option<String>) {
    let (mut plan, mut only) = (FULL, None);
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        let mut value = || flags.next().cloned().unwrap_or_else(|| crate::usage());
        let number = |value: String| value.parse().ok().filter(|&number| number > 0).unwrap_or_else(|| crate::usage());
        match flag.as_str() {
            "--quick" => plan = QUICK,
            "--rounds" => plan.rounds = number(value()),
            "--seconds" => plan.seconds = number(value()),
            "--only" => only = Some(value()),
            _ => crate::usage(),
        }
    }
    (plan, only)
}
