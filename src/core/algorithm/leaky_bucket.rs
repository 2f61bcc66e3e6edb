//! Leaky bucket: requests leave one after the other, `window / limit` apart.
//!
//! State: the last time seen, and the backlog, which is `window` for each slot taken and falls by
//! `limit` a tick: so slots are exact for any limit and window. The next free slot is
//! `backlog / limit` from then, and a request may wait for it in one of `capacity - 1` places.
//!
//! A request starts at the first free slot, however many slots it takes: so it fits if `cost + floor <= capacity` and
//! `backlog <= (capacity - 1 - floor) * window`, and is delayed by `ceil((backlog - (at_once - 1) * window) / limit)`
//! ticks, which scripts do not need to know. The stamp is the end of its slots; a refund releases the slots of the last
//! in line only, as no later request moves up.

use std::time::Duration;

use super::facts::{Capacity, Facts, Layout, Refund, Refusal};
use super::rule::{ANY_WINDOW, Adjusted, Adjustment, Rule};
use super::state::{EXACT, read_falling};
use super::{NEVER, State, Step, wide};

/// The facts about leaky buckets.
pub(super) const FACTS: Facts = Facts {
    aliases: &[],
    number: 5,
    letter: 'q',
    layout: Layout::Falling,
    capacity: Capacity::Queue,
    shortest_window: Duration::ZERO,
    longest_window: None,
    longer: None,
    instead: &[],
    is_gcra: false,
    stands_in_line: true,
    held: false,
    has_ratio: false,
    returns_evenly: true,
    windows: 0,
    refund: Refund::LastInLine,
    refusal: Refusal::LargerFloors,
};

/// The largest limit, and capacity, over a window: a backlog of twice the capacity is below half of [`EXACT`], or kept
/// in units.
pub(super) const fn most_units(window: u64) -> u64 {
    let most = (EXACT - 1) / 4 / window;
    if most < ANY_WINDOW { ANY_WINDOW } else { most }
}

/// Decides one check on the stored state; the step's `delay` is how long an admitted request waits for its slot, in
/// ticks.
pub(super) fn decide(state: Option<&State>, now: u64, rule: Rule, cost: u64, floor: u64) -> Step {
    if rule.is_wide() {
        return wide::decide(state, now, rule, cost, floor, true);
    }
    let Rule { window, limit, capacity, at_once, .. } = rule;
    let (time, mut backlog, found) = read_falling(state, now, window, limit);
    let lag = time - now;
    let mut delay = 0;
    let fits = cost == 0 || (cost + floor <= capacity && backlog <= (capacity - 1 - floor) * window);
    if fits {
        // Up to there a request does not wait for its slot.
        let free = (at_once - 1) * window;
        if cost > 0 && backlog > free {
            delay = lag + (backlog - free).div_ceil(limit);
        }
        backlog += cost * window;
    }
    let remaining = ((capacity * window).saturating_sub(backlog) / window).saturating_sub(floor);
    let need = if fits { 1 } else { cost };
    let mut wait = 0;
    if !fits || remaining == 0 {
        wait = NEVER;
        if need + floor <= capacity {
            wait = lag + (backlog - (capacity - 1 - floor) * window).div_ceil(limit);
        }
    }
    let reset = if backlog > 0 { lag + backlog.div_ceil(limit) } else { 0 };
    let stamp = (time + backlog.div_ceil(limit)).min(NEVER - 1);
    let state = State::Level { time, amount: backlog };
    Step { fits, remaining, wait, reset, delay, stamp, state: Some(state), found }
}

/// Refunds slots at the end of the line, or adds some: up to a backlog of twice the capacity.
pub(super) fn adjust(state: Option<&State>, now: u64, rule: Rule, change: Adjustment) -> Adjusted {
    if rule.is_wide() {
        return wide::adjust(state, now, rule, change, true);
    }
    let Rule { window, limit, capacity, .. } = rule;
    let Adjustment { mut refund, charge, stamp } = change;
    let (time, backlog, _) = read_falling(state, now, window, limit);
    if stamp != NEVER && stamp != (time + backlog.div_ceil(limit)).min(NEVER - 1) {
        refund = 0;
    }
    let kept = backlog.saturating_sub(refund.min(backlog.div_ceil(window)) * window);
    let added = charge.min((2 * capacity * window).saturating_sub(kept) / window);
    let changed = kept + added * window;
    let reset = time - now + changed.div_ceil(limit);
    let units = if charge > 0 { added } else { refund.min(backlog.div_ceil(window)) };
    Adjusted::new(units, changed != backlog, State::Level { time, amount: changed }, reset)
}
