//! What a counter holds, by its algorithm.

use super::aligned::Aligned;
use super::answer::State;
use super::banned::{Banned, Struck};
use super::dated::Dated;
use super::event::{Algorithm, Remaining, Rule};
use super::falling::Falling;
use super::held::Held;
use super::log::{Log, Wait};

/// The model of a counter. All times are ticks of its rule; one before the last time seen counts as that.
#[derive(Clone, Debug)]
pub(super) enum Memory {
    Aligned(Aligned),
    Falling(Falling),
    Log(Log),
    Held(Held),
    Banned(Banned),
    Dated(Dated),
}

impl Memory {
    /// Of a counter that nothing was taken from.
    pub(super) fn new(rule: &Rule, now: u64) -> Self {
        match rule.algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingWindow => Self::Aligned(Aligned::new(rule, now)),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Self::Falling(Falling::new(now)),
            Algorithm::SlidingLog => Self::Log(Log::new(now)),
            Algorithm::Concurrency => Self::Held(Held::new()),
            Algorithm::Ban => Self::Banned(Banned::default()),
            Algorithm::Calendar => Self::Dated(Dated::new(rule, now)),
        }
    }

    /// What a state tells of; `None` if it is none of the algorithm.
    pub(super) fn adopt(rule: &Rule, state: &State) -> Option<Self> {
        match rule.algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingWindow => Aligned::adopt(rule, state).map(Self::Aligned),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Falling::adopt(state).map(Self::Falling),
            Algorithm::SlidingLog => Log::adopt(rule, state).map(Self::Log),
            Algorithm::Concurrency => Held::adopt(state).map(Self::Held),
            Algorithm::Ban => Banned::adopt(state).map(Self::Banned),
            Algorithm::Calendar => Dated::adopt(state).map(Self::Dated),
        }
    }

    /// Whether it counts from a time that is too far ahead to be true.
    pub(super) fn is_ahead(&self, rule: &Rule, now: u64) -> bool {
        let seen = match self {
            Self::Aligned(aligned) => aligned.seen,
            Self::Falling(falling) => falling.seen,
            Self::Log(log) => log.seen,
            Self::Held(held) => held.seen(),
            Self::Banned(banned) => return banned.is_ahead(rule, now),
            Self::Dated(dated) => return dated.is_ahead(rule, now),
        };
        seen > now.saturating_add(rule.window())
    }

    /// Whether it makes no difference to any decision from now on if it is lost.
    pub(super) fn is_over(&self, rule: &Rule, now: u64) -> bool {
        match self {
            Self::Aligned(aligned) => aligned.is_over(rule, now),
            Self::Falling(falling) => falling.out(rule, now) == 0,
            Self::Log(log) => log.is_over(rule, now),
            Self::Held(held) => held.used(rule, now) == 0,
            Self::Banned(banned) => banned.is_over(rule, now),
            Self::Dated(dated) => dated.used(now) == 0,
        }
    }

    /// Whether all that counts is known.
    pub(super) fn is_known(&self, now: u64) -> bool {
        !matches!(self, Self::Log(log) if !log.is_known(now))
    }

    pub(super) fn fits(&self, rule: &Rule, now: u64, cost: u64, floor: u64) -> bool {
        let used = match self {
            Self::Aligned(aligned) => aligned.used(rule, now),
            Self::Falling(falling) => return falling.fits(rule, now, cost, floor),
            Self::Log(log) => i128::from(log.used(rule, now)),
            Self::Held(held) => i128::from(held.used(rule, now)),
            Self::Dated(dated) => i128::from(dated.used(now)),
            Self::Banned(banned) => return !banned.is_banned(rule, now),
        };
        used + i128::from(cost) + i128::from(floor) <= i128::from(rule.limit)
    }

    /// How many requests of one unit fit.
    pub(super) fn left(&self, rule: &Rule, now: u64) -> Remaining {
        let used = match self {
            Self::Aligned(aligned) => aligned.used(rule, now),
            Self::Falling(falling) => return Some(falling.left(rule, now)),
            Self::Log(log) if !log.is_known(now) => return None,
            Self::Log(log) => i128::from(log.used(rule, now)),
            Self::Held(held) => i128::from(held.used(rule, now)),
            Self::Dated(dated) => i128::from(dated.used(now)),
            Self::Banned(banned) => return Some(u64::from(!banned.is_banned(rule, now))),
        };
        Some(u64::try_from(i128::from(rule.limit) - used).unwrap_or(0))
    }

    pub(super) fn take(&mut self, rule: &Rule, now: u64, units: u64) {
        match self {
            Self::Aligned(aligned) => aligned.add(rule, now, units),
            Self::Falling(falling) => falling.add(rule, now, units),
            Self::Log(log) => log.add(rule, now, units),
            Self::Held(held) => held.add(rule, now, units),
            Self::Dated(dated) => dated.add(rule, now, units),
            Self::Banned(_) => {}
        }
    }

    /// Gives units back; returns how many.
    pub(super) fn refund(&mut self, rule: &Rule, now: u64, asked: u64, stamp: Option<u64>) -> u64 {
        match self {
            Self::Aligned(aligned) => aligned.refund(rule, now, asked, stamp),
            Self::Falling(falling) => falling.refund(rule, now, asked, stamp),
            Self::Log(log) => log.refund(rule, now, asked, stamp),
            Self::Held(held) => held.release(rule, now, asked, stamp),
            Self::Dated(dated) => dated.refund(now, asked, stamp),
            Self::Banned(_) => 0,
        }
    }

    /// Renews slots; returns how many there were, and how many more were taken.
    pub(super) fn renew(&mut self, rule: &Rule, now: u64, asked: u64, stamp: Option<u64>) -> (u64, u64) {
        match self {
            Self::Held(held) => held.renew(rule, now, asked, stamp),
            _ => (0, 0),
        }
    }

    /// Notes a strike; `None` if it changes nothing.
    pub(super) fn strike(&mut self, rule: &Rule, now: u64) -> Option<Struck> {
        match self {
            Self::Banned(banned) => banned.strike(rule, now),
            _ => None,
        }
    }

    /// Adds units, up to twice what the rule allows; returns how many.
    pub(super) fn charge(&mut self, rule: &Rule, now: u64, asked: u64) -> u64 {
        let used = match self {
            Self::Aligned(aligned) => aligned.used(rule, now),
            Self::Falling(falling) => return falling.charge(rule, now, asked),
            Self::Log(log) => i128::from(log.used(rule, now)),
            Self::Held(held) => i128::from(held.used(rule, now)),
            Self::Dated(dated) => i128::from(dated.used(now)),
            Self::Banned(_) => return 0,
        };
        let units = u64::try_from(2 * i128::from(rule.limit) - used).unwrap_or(0).min(asked);
        if units > 0 {
            self.take(rule, now, units);
        }
        units
    }

    /// Checks what is told of it.
    pub(super) fn compare(&mut self, rule: &Rule, now: u64, wait: Wait, told: &State) -> Result<(), String> {
        let expected = match self {
            Self::Log(log) => return log.compare(rule, now, wait, told),
            Self::Aligned(aligned) => aligned.state(rule),
            Self::Falling(falling) => falling.state(),
            Self::Held(held) => held.state(),
            Self::Banned(banned) => banned.state(),
            Self::Dated(dated) => dated.state(),
        };
        if *told == expected { Ok(()) } else { Err(format!("it tells {told:?}, which is {expected:?}")) }
    }
}
