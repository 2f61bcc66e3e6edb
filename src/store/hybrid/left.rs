//! What is left of a key, by the results of calls that overlap.
//!
//! Results of calls that are on their way at once may arrive in another order than the inner store decided in. So a
//! result replaces those before it only if its call was sent after they had arrived; among the others the least counts.
//! Where calls overlap without an end, results are dropped in two steps: what arrived before the last replacing one is
//! kept until the next call that was sent after it has a result.

/// A bound from below of what is left, or nothing before the first result.
#[derive(Debug)]
pub(super) struct Left {
    /// The least of the results since `since`; `None` if nothing is known.
    latest: Option<i128>,
    /// The least of results before it that may still count.
    earlier: Option<i128>,
    /// Counts results, and what makes them useless.
    turn: u64,
    /// Calls sent from this turn on replace `latest`.
    since: u64,
    /// Calls sent from this turn on replace both.
    applied: u64,
}

impl Left {
    /// Returns what is left before the first result.
    pub(super) fn unknown() -> Self {
        Self { latest: None, earlier: None, turn: 0, since: 0, applied: 0 }
    }

    /// Returns what is left; `None` if that is unknown.
    pub(super) fn least(&self) -> Option<i128> {
        self.latest.map(|latest| self.earlier.map_or(latest, |earlier| latest.min(earlier)))
    }

    /// Returns the turn of a call that is sent now.
    pub(super) fn turn(&self) -> u64 {
        self.turn
    }

    /// Adds units, or subtracts them.
    pub(super) fn change(&mut self, units: i128) {
        for left in [&mut self.latest, &mut self.earlier].into_iter().flatten() {
            *left = left.saturating_add(units);
        }
    }

    /// Forgets all results: those of calls on their way only lower what later ones report.
    pub(super) fn forget(&mut self) {
        self.turn += 1;
        (self.latest, self.earlier) = (None, None);
        (self.since, self.applied) = (self.turn, self.turn);
    }

    /// Notes the result of a call that was sent at a turn.
    pub(super) fn note(&mut self, sent: u64, left: i128) {
        self.turn += 1;
        if sent >= self.since {
            let kept = if self.latest.is_some() { self.latest } else { self.earlier };
            self.earlier = if sent >= self.applied { None } else { kept };
            (self.latest, self.since) = (Some(left), self.turn);
        } else {
            let least = if self.latest.is_some() { &mut self.latest } else { &mut self.earlier };
            *least = Some(least.map_or(left, |before| before.min(left)));
        }
        self.applied = self.turn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_replaces_those_that_had_arrived_before_its_call() {
        let mut left = Left::unknown();
        assert_eq!(left.least(), None);
        let (first, second) = (left.turn(), left.turn());
        left.note(first, 5);
        left.note(second, 9);
        assert_eq!(left.least(), Some(5), "they overlap");
        let third = left.turn();
        left.note(third, 7);
        assert_eq!(left.least(), Some(7));
    }

    #[test]
    fn of_calls_that_overlap_without_an_end_old_results_are_dropped_in_two_steps() {
        let mut left = Left::unknown();
        let mut on_their_way = vec![left.turn(), left.turn()];
        let mut seen = Vec::new();
        for result in [1, 20, 30, 40, 50, 60] {
            left.note(on_their_way.remove(0), result);
            on_their_way.push(left.turn());
            seen.push(left.least());
        }
        assert_eq!(seen, [1, 1, 1, 1, 30, 30].map(Some));
    }

    #[test]
    fn what_was_sent_before_all_was_forgotten_only_lowers_what_is_left() {
        let mut left = Left::unknown();
        let before = left.turn();
        left.forget();
        let (after, later) = (left.turn(), left.turn());
        left.note(before, 3);
        assert_eq!(left.least(), None);
        left.note(after, 8);
        assert_eq!(left.least(), Some(3));
        left.note(later, 6);
        left.change(2);
        assert_eq!(left.least(), Some(5));
    }
}
