//! Fixed window: a count that starts anew at each multiple of the window since the epoch.
//!
//! State: the start of the window counted, and its count.
//!
//! A request fits if `count + cost + floor <= limit`. It waits for the end of the window, at which all units return
//! at once; so up to twice the limit may be admitted in a span as long as a window that lies across two of them. A
//! charge after the fact adds up to a debt of twice the limit, which ends with the window. The stamp is
//! the window's start: a refund that names another window changes nothing.

use std::time::Duration;

use super::facts::{Capacity, Facts, Layout, Refund, Refusal};
use super::rule::{Adjusted, Adjustment, Rule};
use super::state::{EXACT, read_level};
use super::{Found, NEVER, State, Step, calendar_window};

/// The facts about fixed windows.
pub(super) const FACTS: Facts = Facts {
    aliases: &[],
    number: 1,
    letter: 'f',
    layout: Layout::Count,
    capacity: Capacity::Limit,
    shortest_window: Duration::ZERO,
    longest_window: None,
    longer: None,
    instead: &[],
    is_gcra: false,
    stands_in_line: false,
    held: false,
    has_ratio: true,
    returns_evenly: false,
    windows: 1,
    refund: Refund::Counted,
    refusal: Refusal::LargerSums,
};

/// The largest limit, over any window: a debt of twice it, a cost and a floor still sum to less than [`EXACT`].
pub(super) const fn most_units(_: u64) -> u64 {
    EXACT / 8 - 1
}

/// Decides one check on the stored state. Times are ticks; `cost` and `floor` are at most
/// [`MOST_UNITS`](super::MOST_UNITS).
pub(super) fn decide(state: Option<&State>, now: u64, rule: Rule, cost: u64, floor: u64) -> Step {
    let Rule { window, limit, calendar, .. } = rule;
    if let Some(window) = calendar {
        return calendar_window::decide(state, now, window, limit, cost, floor);
    }
    let (start, mut count, found) = current(state, now, window);
    let fits = cost == 0 || count + cost + floor <= limit;
    if fits {
        count += cost;
    }
    let remaining = limit.saturating_sub(count + floor);
    let need = if fits { 1 } else { cost };
    let mut wait = start + window - now;
    if fits && remaining > 0 {
        wait = 0;
    } else if need + floor > limit {
        wait = NEVER;
    }
    let reset = if count > 0 { start + window - now } else { 0 };
    let state = State::Level { time: start, amount: count };
    Step { fits, remaining, wait, reset, delay: 0, stamp: start, state: Some(state), found }
}

/// Refunds or charges units of the window that counts at `now`; only units that the window has are refunded.
pub(super) fn adjust(state: Option<&State>, now: u64, rule: Rule, change: Adjustment) -> Adjusted {
    let Rule { window, limit, calendar, .. } = rule;
    if let Some(window) = calendar {
        return calendar_window::adjust(state, now, window, limit, change);
    }
    let Adjustment { mut refund, charge, stamp } = change;
    let (start, count, _) = current(state, now, window);
    if stamp != NEVER && stamp != start {
        refund = 0;
    }
    let kept = count.saturating_sub(refund);
    let changed = (kept + charge).min(kept.max(2 * limit));
    let units = (count - kept).max(changed - kept);
    Adjusted::new(units, changed != count, State::Level { time: start, amount: changed }, start + window - now)
}

/// The window that counts at `now`, and its count: the one kept, unless a later one has begun.
///
/// A clock that stepped back into an earlier window counts in the later one, so nothing is forgotten.
fn current(state: Option<&State>, now: u64, window: u64) -> (u64, u64, Found) {
    let (start, count, found) = read_level(state, now, window);
    let current = now - now % window;
    if found != Found::Kept || current > start {
        return (current, 0, found);
    }
    (start, count, found)
}
