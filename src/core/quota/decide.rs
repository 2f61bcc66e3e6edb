//! Decisions and changes by the algorithm of a quota.

use std::time::Duration;

use super::Quota;
#[cfg(feature = "redis")]
use crate::core::algorithm::Layout;
use crate::core::algorithm::{Adjusted, Adjustment, Facts, Refusal, Rule, State, Step};

impl Quota {
    /// Decides one check on the stored state, without changing it. `now` is in ticks of the quota.
    #[inline]
    pub(crate) fn decide(&self, state: Option<&State>, now: u64, cost: u64, floor: u64) -> Step {
        self.algorithm.decide(self.rule(now), state, now, cost, floor)
    }

    /// Refunds or charges units after the fact.
    #[inline]
    pub(crate) fn adjust(&self, state: Option<&State>, now: u64, change: Adjustment) -> Adjusted {
        self.algorithm.adjust(self.rule(now), state, now, change)
    }

    /// Returns whether a state could be one of this quota, or of one with another limit.
    pub(crate) fn can_read(&self, state: &State) -> bool {
        self.facts().layout.is_of(state, self.window)
    }

    #[inline]
    fn rule(&self, now: u64) -> Rule {
        // Ticks of a calendar are milliseconds.
        let calendar = self.calendar.map(|calendar| calendar.window_at(now));
        let Self { window, limit, capacity, .. } = *self;
        Rule { window, limit, capacity, calendar, at_once: self.starting_at_once() }
    }

    /// Returns whether the level of a bucket may reach 2^52: then it is decided in units and parts of a unit.
    #[cfg(feature = "redis")]
    pub(crate) fn is_wide(&self) -> bool {
        matches!(self.facts().layout, Layout::Falling) && self.rule(0).is_wide()
    }

    /// Returns the facts about its algorithm.
    #[inline]
    pub(crate) const fn facts(&self) -> &'static Facts {
        self.algorithm.facts()
    }

    /// Returns whether its windows begin and end at certain times of the wall clock.
    #[inline]
    pub(crate) const fn is_aligned(&self) -> bool {
        self.facts().windows > 0
    }

    /// Returns whether a check of this cost and floor is decided by its floor alone: its request starts at the first
    /// free slot, however many it takes.
    pub(crate) fn decides_by_floor(&self, cost: u64, floor: u64) -> bool {
        self.facts().refusal == Refusal::LargerFloors && cost.saturating_add(floor) <= self.capacity
    }

    /// Returns the length of the window in which a step was decided, in ticks: of a calendar, that of the very window.
    #[inline]
    pub(crate) fn window_of(&self, step: &Step) -> u64 {
        // The stamp is the end of a calendar's window.
        self.calendar.map_or(self.window, |calendar| calendar.length_until(step.stamp))
    }

    /// Returns the time until the aligned window ends in which units taken now count, of a counter that resets after
    /// `reset`; `None` if windows are not aligned.
    pub(crate) fn window_end(&self, reset: Duration) -> Option<Duration> {
        match self.facts().windows {
            0 => None,
            1 => Some(reset),
            windows => {
                let later = self.window() * (windows - 1);
                Some(if reset > later { reset.saturating_sub(later) } else { reset })
            }
        }
    }
}
