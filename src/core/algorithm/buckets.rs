//! Token bucket and leaky bucket: a level that falls by `limit` a tick, in which each unit is `window` parts. A level
//! is exact for any limit and window, because nothing is divided until a result is rounded.
//!
//! State: the last time seen, and the level then. The level of a token bucket is the deficit
//! `(capacity - tokens) * window`. GCRA is the same algorithm (its theoretical arrival time is `time + level / limit`).
//! The level of a leaky bucket is the backlog of requests, which leave one after the other, `window / limit` apart: the
//! next free slot is `level / limit` from then.
//!
//! A request fits a token bucket if `level <= (capacity - cost - floor) * window`. In a leaky bucket it starts at the
//! first free slot, however many it takes: so it fits if `cost + floor <= capacity` and
//! `level <= (capacity - 1 - floor) * window`, and it is delayed by the level above `(at_once - 1) * window`, which
//! scripts do not need to know.
//!
//! The stamp of a token bucket is the time the units were taken at: a refund releases those that were not refilled
//! since. The stamp of a leaky bucket is the end of its slots: a refund releases only the last slots in the queue,
//! because no later request moves up. A charge adds up to a level of twice the capacity.
//!
//! A level below [`EXACT`] is a [`CounterState::Level`] whatever the capacity, so a limit may change from one side to
//! the other. In `lua/wide.lua` a larger level is split into units and the parts beyond them. Times are cut to the last
//! one before [`NEVER`].

use std::ops::{Add, Sub};

use super::state::{Adjusted, Adjustment, CounterState, EXACT, NEVER, QuotaParams, StateStatus, Step, cut};

/// Level in parts; `u64` where it suffices, because its arithmetic is faster.
trait Level: Copy + Ord + From<u64> + Into<u128> + Add<Output = Self> + Sub<Output = Self> {
    fn new(units: u64, window: u64) -> Self;
    fn saturating_less(self, other: Self) -> Self;
    fn divided(self, by: u64) -> u64;
    fn divided_up(self, by: u64) -> u64;
}

impl Level for u64 {
    fn new(units: u64, window: u64) -> Self {
        units.saturating_mul(window)
    }

    fn saturating_less(self, other: Self) -> Self {
        self.saturating_sub(other)
    }

    fn divided(self, by: u64) -> u64 {
        self / by
    }

    fn divided_up(self, by: u64) -> u64 {
        self.div_ceil(by)
    }
}

impl Level for u128 {
    fn new(units: u64, window: u64) -> Self {
        Self::from(units) * Self::from(window)
    }

    fn saturating_less(self, other: Self) -> Self {
        self.saturating_sub(other)
    }

    fn divided(self, by: u64) -> u64 {
        cut(self / Self::from(by))
    }

    fn divided_up(self, by: u64) -> u64 {
        cut(self.div_ceil(by.into()))
    }
}

/// Times are ticks. `in_line` selects the leaky bucket.
#[inline]
pub(super) fn decide(
    state: Option<&CounterState>,
    now: u64,
    rule: QuotaParams,
    cost: u64,
    floor: u64,
    in_line: bool,
) -> Step {
    let decide = if rule.is_wide() { decide_in::<u128> } else { decide_in::<u64> };
    decide(state, now, rule, cost, floor, in_line)
}

/// Refunds only units of a token bucket that were not refilled since the stamp.
pub(super) fn adjust(
    state: Option<&CounterState>,
    now: u64,
    rule: QuotaParams,
    change: Adjustment,
    in_line: bool,
) -> Adjusted {
    let adjust = if rule.is_wide() { adjust_in::<u128> } else { adjust_in::<u64> };
    adjust(state, now, rule, change, in_line)
}

fn decide_in<L: Level>(
    state: Option<&CounterState>,
    now: u64,
    rule: QuotaParams,
    cost: u64,
    floor: u64,
    in_line: bool,
) -> Step {
    let QuotaParams { window, limit, capacity, at_once, .. } = rule;
    let (time, mut level, found) = read::<L>(state, now, rule);
    let lag = time - now;
    let ticks = |level: L| (lag + ticks(level, limit)).min(NEVER - 1);
    let room = |cost| L::new(capacity - floor - if in_line { 1 } else { cost }, window);
    let mut delay = 0;
    let fits = cost == 0 || (cost + floor <= capacity && level <= room(cost));
    if fits {
        // Up to there a request does not wait for its slot.
        let free = L::new(at_once - 1, window);
        if in_line && cost > 0 && level > free {
            delay = ticks(level - free);
        }
        level = level + L::new(cost, window);
    }
    let remaining = L::new(capacity, window).saturating_less(level).divided(window).saturating_sub(floor);
    let need = if fits { 1 } else { cost };
    let mut wait = 0;
    if !fits || remaining == 0 {
        wait = if need + floor <= capacity { ticks(level - room(need)) } else { NEVER };
    }
    let reset = if level > L::from(0) { ticks(level) } else { 0 };
    let stamp = if in_line { end(time, level, limit) } else { time };
    Step { fits, remaining, wait, reset, delay, stamp, state: Some(write(time, level, window)), found }
}

fn adjust_in<L: Level>(
    state: Option<&CounterState>,
    now: u64,
    rule: QuotaParams,
    change: Adjustment,
    in_line: bool,
) -> Adjusted {
    let QuotaParams { window, limit, capacity, .. } = rule;
    let Adjustment { mut refund, charge, stamp } = change;
    let (time, level, _) = read::<L>(state, now, rule);
    let (used, most) = (level.divided_up(window), 2 * capacity);
    let mut refilled = L::from(0);
    if in_line {
        let is_last = stamp == NEVER || stamp == end(time, level, limit);
        refund = if is_last { refund.min(used) } else { 0 };
    } else {
        if stamp != NEVER {
            // Units that were refilled since then are in the bucket already.
            refilled = L::new(time.saturating_sub(stamp), limit);
        }
        refund = refund.min(used.max(most));
    }
    let kept = level.saturating_less(L::new(refund, window).saturating_less(refilled));
    let added = charge.min(L::new(most, window).saturating_less(kept).divided(window));
    let changed = kept + L::new(added, window);
    let reset = (time - now + ticks(changed, limit)).min(NEVER - 1);
    let units = if charge > 0 { added } else { (level - kept).divided_up(window) };
    Adjusted::new(units, changed != level, write(time, changed, window), reset)
}

fn read<L: Level>(state: Option<&CounterState>, now: u64, rule: QuotaParams) -> (u64, L, StateStatus) {
    let (state, found) = CounterState::read(state, now, rule.window);
    let (time, level) = match *state.unwrap_or(&CounterState::Level { time: now, amount: 0 }) {
        CounterState::Level { time, amount } => (time, amount.into()),
        CounterState::Wide { time, units, parts } if rule.is_wide() => {
            (time, L::new(units, rule.window) + parts.into())
        }
        // Its limit was larger. The largest level by which times are exact is no less than this rule's deepest debt.
        CounterState::Wide { time, .. } => (time, (EXACT - 1 - rule.window).into()),
        _ => (now, L::from(0)),
    };
    (time.max(now), level.saturating_less(L::new(now.saturating_sub(time), rule.limit)), found)
}

fn write<L: Level>(time: u64, level: L, window: u64) -> CounterState {
    let level: u128 = level.into();
    match cut(level) {
        amount if amount < EXACT => CounterState::Level { time, amount },
        _ => CounterState::Wide { time, units: level.divided(window), parts: cut(level % u128::from(window)) },
    }
}

fn ticks<L: Level>(level: L, limit: u64) -> u64 {
    level.divided_up(limit).min(NEVER - 1)
}

fn end<L: Level>(time: u64, level: L, limit: u64) -> u64 {
    (time + ticks(level, limit)).min(NEVER - 1)
}
