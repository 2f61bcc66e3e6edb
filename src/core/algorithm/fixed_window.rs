//! Fixed window: a count that starts over at each multiple of the window since the epoch, or where a calendar says so.
//!
//! State: the start of the window that counts (in a calendar its end), and its count. A window of a calendar counts
//! until the end in its state, even if the calendar has another window by now, so no unit is forgotten early where two
//! processes know different rules of a time zone, or a clock stepped back. In Lua the server's clock chooses among the
//! windows that the process sent.
//!
//! A request fits if `count + cost + floor <= limit`. It waits for the end of the window, at which all units return at
//! once; so up to twice the limit may be allowed in a span as long as a window that lies across two of them. A charge
//! after the fact adds up to a debt of twice the limit, which ends with the window. The stamp is the time in the state:
//! a refund that names another window changes nothing.

use super::state::{Adjusted, Adjustment, CounterState, NEVER, QuotaParams, StateStatus, Step};
use crate::core::calendar::Window;

/// Times are ticks. `cost` and `floor` are at most [`MAX_UNITS`](super::MAX_UNITS).
pub(super) fn decide(state: Option<&CounterState>, now: u64, rule: QuotaParams, cost: u64, floor: u64) -> Step {
    let limit = rule.limit;
    let (stamp, end, mut count, found) = current(state, now, rule);
    let fits = cost == 0 || count + cost + floor <= limit;
    if fits {
        count += cost;
    }
    let remaining = limit.saturating_sub(count + floor);
    let need = if fits { 1 } else { cost };
    let mut wait = end - now;
    if fits && remaining > 0 {
        wait = 0;
    } else if need + floor > limit {
        wait = NEVER;
    }
    let reset = if count > 0 { end - now } else { 0 };
    let state = CounterState::Level { time: stamp, amount: count };
    Step { fits, remaining, wait, reset, delay: 0, stamp, state: Some(state), found }
}

pub(super) fn adjust(state: Option<&CounterState>, now: u64, rule: QuotaParams, change: Adjustment) -> Adjusted {
    let (time, end, count, _) = current(state, now, rule);
    let Adjustment { mut refund, charge, stamp } = change;
    if stamp != NEVER && stamp != time {
        refund = 0;
    }
    let kept = count.saturating_sub(refund);
    let changed = (kept + charge).min(kept.max(2 * rule.limit));
    let units = (count - kept).max(changed - kept);
    Adjusted::new(units, changed != count, CounterState::Level { time, amount: changed }, end - now)
}

fn current(
    state: Option<&CounterState>,
    now: u64,
    QuotaParams { window, calendar, .. }: QuotaParams,
) -> (u64, u64, u64, StateStatus) {
    if let Some(window) = calendar {
        let (end, count, found) = current_of_calendar(state, now, window);
        return (end, end, count, found);
    }
    let (start, count, found) = current_aligned(state, now, window);
    (start, start + window, count, found)
}

/// Start of the window that counts, and its count: the state's window, unless a later one has begun.
///
/// After a clock stepped back, units count in the later window, so none is forgotten.
fn current_aligned(state: Option<&CounterState>, now: u64, window: u64) -> (u64, u64, StateStatus) {
    let current = now - now % window;
    match CounterState::read(state, now, window) {
        (Some(&CounterState::Level { time, amount }), found) if time >= current => (time, amount, found),
        (_, found) => (current, 0, found),
    }
}

/// End of the window that counts, and its count: the state's window, until it has ended.
///
/// A window that ends more than two lengths after the calendar's is set aside, because it would deny for too long:
/// windows differ in length, and the next one is at most twice as long.
fn current_of_calendar(state: Option<&CounterState>, now: u64, window: Window) -> (u64, u64, StateStatus) {
    match state {
        Some(CounterState::Level { time, .. }) if *time > window.end + 2 * window.length() => {
            (window.end, 0, StateStatus::Ahead)
        }
        Some(CounterState::Level { time, amount }) if *time > now => (*time, *amount, StateStatus::Kept),
        Some(CounterState::Level { .. }) => (window.end, 0, StateStatus::Kept),
        _ => (window.end, 0, StateStatus::Fresh),
    }
}
