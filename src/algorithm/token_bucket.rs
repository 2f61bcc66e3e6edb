//! Token bucket: `capacity` units, refilled continuously at `limit` per window.
//!
//! State: `time` is the last time seen, `amount` the deficit `(capacity - tokens) * window`, which
//! falls by `limit` a tick. So the refill is exact for any limit and window: nothing is divided
//! until an answer is rounded. GCRA is the same in other words (its theoretical arrival time is
//! `time + deficit / limit`).

use super::rule::Rule;
use super::{Found, NEVER, State, Step};

pub(super) fn decide(state: Option<&State>, now: u64, rule: Rule, cost: u64, floor: u64) -> Step {
    let Rule { window, limit, capacity } = rule;
    let (time, mut deficit, found) = refilled(state, now, window, limit);
    let fits = cost == 0 || (cost + floor <= capacity && deficit <= (capacity - cost - floor) * window);
    if fits {
        deficit += cost * window;
    }
    let remaining = ((capacity * window).saturating_sub(deficit) / window).saturating_sub(floor);
    let need = if fits { 1 } else { cost };
    let lag = time - now;
    let wait = if fits && remaining > 0 {
        0
    } else if need + floor > capacity {
        NEVER
    } else {
        lag + (deficit - (capacity - need - floor) * window).div_ceil(limit)
    };
    let reset = if deficit > 0 { lag + deficit.div_ceil(limit) } else { 0 };
    Step { fits, remaining, wait, reset, delay: 0, stamp: time, state: State { time, amount: deficit }, found }
}

pub(super) fn adjust(state: Option<&State>, now: u64, rule: Rule, refund: u64, charge: u64) -> Option<(State, u64)> {
    let Rule { window, limit, capacity } = rule;
    let (time, deficit, _) = refilled(state, now, window, limit);
    let most = deficit.max(2 * capacity * window);
    let refund = refund.min(deficit.div_ceil(window)) * window;
    let kept = deficit.saturating_sub(refund);
    let charge = charge.min(2 * capacity) * window;
    let changed = kept + charge.min(most - kept);
    let reset = time - now + changed.div_ceil(limit);
    (changed != deficit).then_some((State { time, amount: changed }, reset))
}

/// The last time seen, not before `now`, and the deficit left then.
fn refilled(state: Option<&State>, now: u64, window: u64, limit: u64) -> (u64, u64, Found) {
    let (State { time, amount: deficit }, found) = State::read(state, now, window);
    let elapsed = now.saturating_sub(time);
    if elapsed > deficit / limit {
        return (time.max(now), 0, found);
    }
    (time.max(now), deficit - elapsed * limit, found)
}
