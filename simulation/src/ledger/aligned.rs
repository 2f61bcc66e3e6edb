//! Counters by aligned windows: what was taken in each of them.

use super::answer::State;
use super::event::{Algorithm, Rule};

/// Units by the start of the aligned window that they were taken in.
#[derive(Clone, Debug)]
pub(super) struct Aligned {
    /// Of a fixed window the start of the last one written, else the last time written, in ticks.
    pub(super) seen: u64,
    units: Vec<(u64, u64)>,
}

impl Aligned {
    pub(super) fn new(rule: &Rule, now: u64) -> Self {
        Self { seen: mark(rule, now), units: Vec::new() }
    }

    /// The counter that a state tells of; `None` if it is none of this kind.
    pub(super) fn adopt(rule: &Rule, state: &State) -> Option<Self> {
        let window = rule.window();
        Some(match *state {
            State::Fixed { start, count } => Self { seen: start, units: vec![(start, count)] },
            State::Sliding { time, count, previous } => {
                let start = time - time % window;
                let earlier = start.checked_sub(window).map(|before| (before, previous));
                Self { seen: time, units: earlier.into_iter().chain([(start, count)]).collect() }
            }
            _ => return None,
        })
    }

    /// The state that a script would tell.
    pub(super) fn state(&self, rule: &Rule) -> State {
        let (count, previous) = self.counts(rule, self.seen);
        match rule.algorithm {
            Algorithm::FixedWindow => State::Fixed { start: self.seen, count },
            _ => State::Sliding { time: self.seen, count, previous },
        }
    }

    /// Units of the window of a time, and of the one before.
    fn counts(&self, rule: &Rule, time: u64) -> (u64, u64) {
        let (window, start) = (rule.window(), time - time % rule.window());
        let sum = |of: Option<u64>| self.units.iter().filter(|(start, _)| Some(*start) == of).map(|(_, sum)| sum).sum();
        (sum(Some(start)), sum(start.checked_sub(window)))
    }

    /// Units that count at a time.
    pub(super) fn used(&self, rule: &Rule, now: u64) -> i128 {
        let time = self.seen.max(now);
        let (count, previous) = self.counts(rule, time);
        let (window, left) = (i128::from(rule.window()), i128::from(rule.window() - time % rule.window()));
        match rule.algorithm {
            Algorithm::FixedWindow => i128::from(count),
            _ => i128::from(previous) * left / window + i128::from(count),
        }
    }

    /// Whether nothing matters that happened before a time.
    pub(super) fn is_over(&self, rule: &Rule, now: u64) -> bool {
        let (count, previous) = self.counts(rule, self.seen.max(now));
        count == 0 && (previous == 0 || rule.algorithm == Algorithm::FixedWindow)
    }

    pub(super) fn add(&mut self, rule: &Rule, now: u64, units: u64) {
        let time = self.seen.max(now);
        let start = time - time % rule.window();
        self.seen = mark(rule, time);
        self.units.retain(|(of, _)| of + rule.window() >= start);
        match self.units.iter_mut().find(|(of, _)| *of == start) {
            Some((_, sum)) => *sum += units,
            None => self.units.push((start, units)),
        }
    }

    /// Gives back units, of the window that starts at `stamp` or of any, the newest first; returns how many.
    pub(super) fn refund(&mut self, rule: &Rule, now: u64, asked: u64, stamp: Option<u64>) -> u64 {
        let time = self.seen.max(now);
        let start = time - time % rule.window();
        let earlier = start.checked_sub(rule.window()).filter(|_| rule.algorithm == Algorithm::SlidingWindow);
        let mut back = 0;
        for of in [Some(start), earlier].into_iter().flatten().filter(|of| stamp.is_none_or(|stamp| stamp == *of)) {
            for (_, sum) in self.units.iter_mut().filter(|(start, _)| *start == of) {
                let part = (*sum).min(asked - back);
                *sum -= part;
                back += part;
            }
        }
        if back > 0 {
            self.add(rule, now, 0);
        }
        back
    }
}

/// What a counter remembers of the time at which it was written.
fn mark(rule: &Rule, time: u64) -> u64 {
    if rule.algorithm == Algorithm::FixedWindow { time - time % rule.window() } else { time }
}
