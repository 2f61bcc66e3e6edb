//! Fixed window: a count that starts anew at each multiple of the window since the epoch.
//!
//! State: `time` is the start of the window counted, `amount` its count.

use super::rule::Rule;
use super::{Found, NEVER, State, Step};

pub(super) fn decide(state: Option<&State>, now: u64, rule: Rule, cost: u64, floor: u64) -> Step {
    let Rule { window, limit, .. } = rule;
    let (start, mut count, found) = current(state, now, window);
    let fits = cost == 0 || count + cost + floor <= limit;
    if fits {
        count += cost;
    }
    let remaining = limit.saturating_sub(count + floor);
    let need = if fits { 1 } else { cost };
    let wait = if fits && remaining > 0 {
        0
    } else if need + floor > limit {
        NEVER
    } else {
        start + window - now
    };
    let reset = if count > 0 { start + window - now } else { 0 };
    Step { fits, remaining, wait, reset, delay: 0, stamp: start, state: State { time: start, amount: count }, found }
}

pub(super) fn adjust(
    state: Option<&State>,
    now: u64,
    rule: Rule,
    refund: u64,
    charge: u64,
    stamp: Option<u64>,
) -> Option<(State, u64)> {
    let Rule { window, limit, .. } = rule;
    let (start, count, _) = current(state, now, window);
    if stamp.is_some_and(|stamp| stamp != start) {
        return None;
    }
    let changed = count.saturating_sub(refund).saturating_add(charge).min(count.max(2 * limit));
    (changed != count).then_some((State { time: start, amount: changed }, start + window - now))
}

/// The window that counts at `now`, and its count: the one kept, unless a later one has begun.
fn current(state: Option<&State>, now: u64, window: u64) -> (u64, u64, Found) {
    let (State { time: start, amount: count }, found) = State::read(state, now, window);
    let current = now - now % window;
    if found != Found::Kept || current > start { (current, 0, found) } else { (start, count, found) }
}
