//! Buckets: what was taken, and what has returned since, as rationals.
//!
//! A unit taken is `window` parts, and `limit` parts return in a tick, so all sums are whole. What is out at
//! any time is the largest of all sums since some event, or nothing: before that event, all had returned.

use super::answer::State;
use super::event::{Algorithm, Rule};

/// More events than this are joined.
const MOST_STEPS: usize = 16;

/// Parts that were taken (more than 0) and that returned (less), in order.
#[derive(Clone, Debug)]
pub(super) struct Falling {
    /// The time up to which what returned is noted, in ticks.
    pub(super) seen: u64,
    steps: Vec<i128>,
}

impl Falling {
    pub(super) fn new(now: u64) -> Self {
        Self { seen: now, steps: Vec::new() }
    }

    /// The counter that a state tells of; `None` if it is none of this kind.
    pub(super) fn adopt(state: &State) -> Option<Self> {
        match *state {
            State::Level { time, level } => Some(Self { seen: time, steps: vec![i128::from(level)] }),
            _ => None,
        }
    }

    /// The state that a script would tell.
    pub(super) fn state(&self) -> State {
        State::Level { time: self.seen, level: u64::try_from(self.level()).unwrap_or(u64::MAX) }
    }

    /// Parts that are out at the time last seen.
    fn level(&self) -> i128 {
        let mut sum = 0;
        let sums = self.steps.iter().rev().map(|step| {
            sum += step;
            sum
        });
        sums.max().unwrap_or(0).max(0)
    }

    /// Parts that are out at a time.
    pub(super) fn out(&self, rule: &Rule, now: u64) -> i128 {
        (self.level() - self.returned(rule, now)).max(0)
    }

    /// Parts that return between the time last seen and this.
    fn returned(&self, rule: &Rule, now: u64) -> i128 {
        i128::from(now.saturating_sub(self.seen)) * i128::from(rule.limit)
    }

    pub(super) fn fits(&self, rule: &Rule, now: u64, cost: u64, floor: u64) -> bool {
        let (window, out) = (i128::from(rule.window()), self.out(rule, now));
        let room = i128::from(rule.capacity) - i128::from(floor);
        let cost = i128::from(cost);
        match rule.algorithm {
            Algorithm::TokenBucket => out + cost * window <= room * window,
            // Whoever waits needs a place; who comes out next does not.
            _ => cost <= room && out <= (room - 1) * window,
        }
    }

    /// Units that are left at a time, of those a rule has.
    pub(super) fn left(&self, rule: &Rule, now: u64) -> u64 {
        let window = i128::from(rule.window());
        let left = (i128::from(rule.capacity) * window - self.out(rule, now)).max(0) / window;
        u64::try_from(left).unwrap_or(u64::MAX)
    }

    pub(super) fn add(&mut self, rule: &Rule, now: u64, units: u64) {
        self.step(rule, now, i128::from(units) * i128::from(rule.window()));
    }

    /// Adds units, up to twice the capacity; returns how many.
    pub(super) fn charge(&mut self, rule: &Rule, now: u64, asked: u64) -> u64 {
        let (window, most) = (i128::from(rule.window()), 2 * i128::from(rule.capacity));
        let room = (most * window - self.out(rule, now)).max(0) / window;
        let units = u64::try_from(room).unwrap_or(u64::MAX).min(asked);
        if units > 0 {
            self.add(rule, now, units);
        }
        units
    }

    /// Gives back units: of tokens those not refilled since `stamp`, of slots those whose line ends there.
    /// Returns how many units were at least begun.
    pub(super) fn refund(&mut self, rule: &Rule, now: u64, asked: u64, stamp: Option<u64>) -> u64 {
        let (window, out) = (i128::from(rule.window()), self.out(rule, now));
        let parts = match rule.algorithm {
            Algorithm::TokenBucket => self.unrefilled(rule, now, asked, stamp).min(out),
            _ if stamp.is_some_and(|stamp| stamp != self.end(rule, now)) => 0,
            // Whole slots: the last of them may have begun to leave.
            _ => (i128::from(asked) * window).min((out + window - 1) / window * window),
        };
        if parts > 0 {
            self.step(rule, now, -parts);
        }
        u64::try_from((parts + window - 1) / window).unwrap_or(u64::MAX)
    }

    /// Parts of units taken at `stamp` that time has not brought back.
    fn unrefilled(&self, rule: &Rule, now: u64, asked: u64, stamp: Option<u64>) -> i128 {
        let (window, out) = (i128::from(rule.window()), self.out(rule, now));
        // Nothing takes more at once.
        let most = (2 * i128::from(rule.capacity)).max((out + window - 1) / window);
        let since = stamp.map_or(0, |stamp| self.seen.max(now).saturating_sub(stamp));
        (i128::from(asked).min(most) * window - i128::from(since) * i128::from(rule.limit)).max(0)
    }

    /// When the last slot that was taken is over, in ticks.
    pub(super) fn end(&self, rule: &Rule, now: u64) -> u64 {
        let limit = i128::from(rule.limit);
        let ticks = (self.out(rule, now) + limit - 1) / limit;
        self.seen.max(now).saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX))
    }

    fn step(&mut self, rule: &Rule, now: u64, parts: i128) {
        if self.out(rule, now) == 0 {
            self.steps.clear();
        } else if self.steps.len() >= MOST_STEPS {
            self.steps = vec![self.level()];
        }
        self.steps.push(-self.returned(rule, now));
        self.steps.push(parts);
        self.seen = self.seen.max(now);
    }
}
