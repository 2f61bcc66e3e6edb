//! Slots: how many are in use, by when they were taken or last renewed.
//!
//! Slots that are taken within an eighth of a life share the time of the first of them. They count for a life and that
//! eighth.

use super::answer::State;
use super::event::Rule;

/// More slots than that are not restored.
const MOST: u64 = 1 << 31;

/// Slots by the time that they share.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Times in ticks and how many slots, in order.
    groups: Vec<(u64, u64)>,
}

impl Held {
    pub(super) fn new() -> Self {
        Self { groups: Vec::new() }
    }

    /// The counter that a state tells of; `None` if it is none of this kind.
    pub(super) fn adopt(state: &State) -> Option<Self> {
        match state {
            State::Slots { groups } => Some(Self { groups: groups.clone() }),
            _ => None,
        }
    }

    /// The state that a script would tell.
    pub(super) fn state(&self) -> State {
        State::Slots { groups: self.groups.clone() }
    }

    /// The last time seen.
    pub(super) fn seen(&self) -> u64 {
        self.groups.last().map_or(0, |(time, _)| *time)
    }

    /// Slots that count at a time.
    pub(super) fn used(&self, rule: &Rule, now: u64) -> u64 {
        self.groups.iter().filter(|group| self.counts(rule, now, group)).map(|(_, slots)| slots).sum()
    }

    fn counts(&self, rule: &Rule, now: u64, (time, _): &(u64, u64)) -> bool {
        time + life(rule) > self.seen().max(now)
    }

    pub(super) fn add(&mut self, rule: &Rule, now: u64, slots: u64) {
        let now = self.seen().max(now);
        let idle = self.groups.iter().take_while(|group| group.1 == 0 || !self.counts(rule, now, group)).count();
        self.groups.drain(..idle);
        match self.groups.last_mut() {
            Some((time, sum)) if now - *time < part(rule) => *sum += slots,
            _ => self.groups.push((now, slots)),
        }
    }

    /// Releases slots, of those with the time `stamp` or of any, the newest first; returns how many.
    pub(super) fn release(&mut self, rule: &Rule, now: u64, asked: u64, stamp: Option<u64>) -> u64 {
        let (now, mut back) = (self.seen().max(now), 0);
        for (time, slots) in self.groups.iter_mut().rev().filter(|(time, _)| time + life(rule) > now) {
            if stamp.is_none_or(|stamp| stamp == *time) {
                let part = (*slots).min(asked - back);
                (*slots, back) = (*slots - part, back + part);
            }
        }
        back
    }

    /// Has slots with the time `stamp` count from now on, and as many more as there are too few of them. Returns how
    /// many there were, and how many more.
    pub(super) fn renew(&mut self, rule: &Rule, now: u64, asked: u64, stamp: Option<u64>) -> (u64, u64) {
        let found = self.release(rule, now, asked, stamp);
        let slots = asked.min(MOST.saturating_sub(self.used(rule, now)));
        if slots > 0 {
            self.add(rule, now, slots);
        }
        (found, slots.saturating_sub(found))
    }
}

/// An eighth of a life, in ticks.
fn part(rule: &Rule) -> u64 {
    rule.window().div_ceil(8)
}

fn life(rule: &Rule) -> u64 {
    rule.window() + part(rule)
}
