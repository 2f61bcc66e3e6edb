//! Buckets whose levels may reach [`EXACT`], as their capacity is large for their window: decided in 128 bits.
//!
//! These are the functions of `token_bucket.rs` and, with `in_line`, of `leaky_bucket.rs`, whose numbers have 64 bits:
//! most buckets need no more, and are decided faster. In `lua/wide.lua` a level is units and the parts beyond them
//! instead, each of which is below 2^52.
//!
//! A state has one form: a level below [`EXACT`] is a [`State::Level`] whatever the capacity, so a limit may change
//! from one side to the other. Where a rule that is not wide finds a level beyond that, it reads it as the largest by
//! which its times are exact: no less than its deepest debt. Times here are cut to the last one before [`NEVER`].

use super::rule::{Adjusted, Adjustment, Rule, cut};
use super::state::EXACT;
use super::{Found, NEVER, State, Step};

/// Decides one check on the stored state, as the bucket's own file does.
#[cold]
pub(super) fn decide(state: Option<&State>, now: u64, rule: Rule, cost: u64, floor: u64, in_line: bool) -> Step {
    let Rule { window, capacity, at_once, .. } = rule;
    let (time, mut level, found) = read(state, now, rule);
    let lag = time - now;
    let ticks = |level| lag.saturating_add(ticks(level, rule)).min(NEVER - 1);
    // A request that stands in line starts at the first free slot, however many it takes.
    let room = |cost| u128::from(capacity - floor - if in_line { 1 } else { cost }) * u128::from(window);
    let mut delay = 0;
    let fits = cost == 0 || (cost + floor <= capacity && level <= room(cost));
    if fits {
        let free = u128::from(at_once - 1) * u128::from(window);
        if in_line && cost > 0 && level > free {
            delay = ticks(level - free);
        }
        level += u128::from(cost) * u128::from(window);
    }
    let left = (u128::from(capacity) * u128::from(window)).saturating_sub(level) / u128::from(window);
    let remaining = cut(left).saturating_sub(floor);
    let need = if fits { 1 } else { cost };
    let mut wait = 0;
    if !fits || remaining == 0 {
        wait = if need + floor <= capacity { ticks(level - room(need)) } else { NEVER };
    }
    let reset = if level > 0 { ticks(level) } else { 0 };
    let stamp = if in_line { end(time, level, rule) } else { time };
    Step { fits, remaining, wait, reset, delay, stamp, state: Some(write(time, level, window)), found }
}

/// Refunds or charges units, as the bucket's own file does.
#[cold]
pub(super) fn adjust(state: Option<&State>, now: u64, rule: Rule, change: Adjustment, in_line: bool) -> Adjusted {
    let (window, limit) = (u128::from(rule.window), u128::from(rule.limit));
    let Adjustment { mut refund, charge, stamp } = change;
    let (time, level, _) = read(state, now, rule);
    let (used, most) = (cut(level.div_ceil(window)), 2 * rule.capacity);
    let mut refilled = 0;
    if in_line {
        let is_last = stamp == NEVER || stamp == end(time, level, rule);
        refund = if is_last { refund.min(used) } else { 0 };
    } else {
        refilled = if stamp == NEVER { 0 } else { u128::from(time.saturating_sub(stamp)) * limit };
        refund = refund.min(used.max(most));
    }
    let kept = level.saturating_sub((u128::from(refund) * window).saturating_sub(refilled));
    let added = u128::from(charge).min((u128::from(most) * window).saturating_sub(kept) / window);
    let changed = kept + added * window;
    let reset = (time - now).saturating_add(ticks(changed, rule)).min(NEVER - 1);
    let units = if charge > 0 { added } else { (level - kept).div_ceil(window) };
    Adjusted::new(cut(units), changed != level, write(time, changed, rule.window), reset)
}

/// Reads a level that falls by `limit` a tick, as of the last time seen or `now`, whichever is later.
fn read(state: Option<&State>, now: u64, rule: Rule) -> (u64, u128, Found) {
    let (state, found) = State::read(state, now, rule.window);
    let (time, level) = match *state.unwrap_or(&State::Level { time: now, amount: 0 }) {
        State::Level { time, amount } => (time, u128::from(amount)),
        State::Wide { time, units, parts } => (time, u128::from(units) * u128::from(rule.window) + u128::from(parts)),
        _ => (now, 0),
    };
    let fallen = u128::from(now.saturating_sub(time)) * u128::from(rule.limit);
    (time.max(now), level.saturating_sub(fallen), found)
}

/// The state of a level: the one form that it has.
fn write(time: u64, level: u128, window: u64) -> State {
    let amount = cut(level);
    if amount < EXACT {
        return State::Level { time, amount };
    }
    State::Wide { time, units: cut(level / u128::from(window)), parts: cut(level % u128::from(window)) }
}

/// Ticks until so much has fallen, rounded up.
fn ticks(level: u128, rule: Rule) -> u64 {
    cut(level.div_ceil(rule.limit.into())).min(NEVER - 1)
}

/// When the line ends.
fn end(time: u64, level: u128, rule: Rule) -> u64 {
    time.saturating_add(ticks(level, rule)).min(NEVER - 1)
}
