//! Counters by windows of a calendar: what was taken in the last one, by its end.

use super::answer::State;
use super::event::Rule;

#[derive(Clone, Debug)]
pub(super) struct Dated {
    /// When the window ends that was counted last, in ticks.
    ends: u64,
    count: u64,
}

impl Dated {
    pub(super) fn new(rule: &Rule, now: u64) -> Self {
        Self { ends: end(rule, now), count: 0 }
    }

    /// The counter that a state tells of; `None` if it is none of this kind.
    pub(super) fn adopt(state: &State) -> Option<Self> {
        match *state {
            State::Fixed { start, count } => Some(Self { ends: start, count }),
            _ => None,
        }
    }

    /// The state that a script would tell.
    pub(super) fn state(&self) -> State {
        State::Fixed { start: self.ends, count: self.count }
    }

    /// Whether it is of a window more than two after that of a time, which no clock was right for.
    pub(super) fn is_ahead(&self, rule: &Rule, now: u64) -> bool {
        rule.named.at(now).is_some_and(|(start, ends)| self.ends > ends + 2 * (ends - start))
    }

    /// Units that count at a time.
    pub(super) fn used(&self, now: u64) -> u64 {
        if now < self.ends { self.count } else { 0 }
    }

    pub(super) fn add(&mut self, rule: &Rule, now: u64, units: u64) {
        if now >= self.ends {
            *self = Self::new(rule, now);
        }
        self.count += units;
    }

    /// Gives back units, of the window that ends at `stamp` or of any; returns how many.
    pub(super) fn refund(&mut self, now: u64, asked: u64, stamp: Option<u64>) -> u64 {
        let is_its = stamp.is_none_or(|stamp| stamp == self.ends);
        let back = if is_its { asked.min(self.used(now)) } else { 0 };
        self.count -= back;
        back
    }
}

/// The end of the window of a time.
fn end(rule: &Rule, now: u64) -> u64 {
    rule.named.at(now).map_or(now, |(_, ends)| ends)
}
