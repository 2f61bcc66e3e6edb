//! Token bucket: `capacity` units, refilled continuously at `limit` per window.
//!
//! State: the last time seen, and the deficit `(capacity - tokens) * window`, which falls by `limit`
//! a tick. So the refill is exact for any limit and window: nothing is divided until a result is
//! rounded. GCRA is the same in other words (its theoretical arrival time is
//! `time + deficit / limit`).
//!
//! A request fits if `deficit <= (capacity - cost - floor) * window`, and else waits until it has fallen to that,
//! `ceil((deficit - (capacity - cost - floor) * window) / limit)` ticks. The stamp is the time the units were taken
//! at: a refund releases the units that were not refilled since, and a charge adds up to a deficit of twice the
//! capacity.

use std::time::Duration;

use super::facts::{Capacity, Facts, Layout, Refund, Refusal};
use super::rule::{ANY_WINDOW, Adjusted, Adjustment, Rule};
use super::state::{EXACT, read_falling};
use super::{NEVER, State, Step, wide};

/// The facts about token buckets.
pub(super) const FACTS: Facts = Facts {
    aliases: &["gcra"],
    number: 2,
    letter: 't',
    layout: Layout::Falling,
    capacity: Capacity::Burst,
    shortest_window: Duration::ZERO,
    longest_window: None,
    longer: None,
    instead: &[],
    is_gcra: true,
    stands_in_line: false,
    held: false,
    has_ratio: true,
    returns_evenly: true,
    windows: 0,
    refund: Refund::Unrefilled,
    refusal: Refusal::LargerSums,
};

/// The largest limit, and capacity, over a window: a level of twice the capacity is below [`EXACT`], or kept in units.
pub(super) const fn most_units(window: u64) -> u64 {
    let most = (EXACT - 1 - window) / 2 / window;
    if most < ANY_WINDOW { ANY_WINDOW } else { most }
}

/// Decides one check on the stored state. Times are ticks.
pub(super) fn decide(state: Option<&State>, now: u64, rule: Rule, cost: u64, floor: u64) -> Step {
    if rule.is_wide() {
        return wide::decide(state, now, rule, cost, floor, false);
    }
    let Rule { window, limit, capacity, .. } = rule;
    let (time, mut deficit, found) = read_falling(state, now, window, limit);
    let fits = cost == 0 || (cost + floor <= capacity && deficit <= (capacity - cost - floor) * window);
    if fits {
        deficit += cost * window;
    }
    let remaining = ((capacity * window).saturating_sub(deficit) / window).saturating_sub(floor);
    let need = if fits { 1 } else { cost };
    let lag = time - now;
    let mut wait = 0;
    if !fits || remaining == 0 {
        wait = NEVER;
        if need + floor <= capacity {
            wait = lag + (deficit - (capacity - need - floor) * window).div_ceil(limit);
        }
    }
    let reset = if deficit > 0 { lag + deficit.div_ceil(limit) } else { 0 };
    let state = State::Level { time, amount: deficit };
    Step { fits, remaining, wait, reset, delay: 0, stamp: time, state: Some(state), found }
}

/// Refunds units less those that were refilled since the stamp, or adds units to the deficit.
pub(super) fn adjust(state: Option<&State>, now: u64, rule: Rule, change: Adjustment) -> Adjusted {
    if rule.is_wide() {
        return wide::adjust(state, now, rule, change, false);
    }
    let Rule { window, limit, capacity, .. } = rule;
    let Adjustment { refund, charge, stamp } = change;
    let (time, deficit, _) = read_falling(state, now, window, limit);
    // What was refilled since these units were taken is in the bucket already.
    let refilled = if stamp == NEVER { 0 } else { time.saturating_sub(stamp).saturating_mul(limit) };
    let refund = refund.min(deficit.div_ceil(window).max(2 * capacity));
    let kept = deficit.saturating_sub((refund * window).saturating_sub(refilled));
    let added = charge.min((2 * capacity * window).saturating_sub(kept) / window);
    let changed = kept + added * window;
    let reset = time - now + changed.div_ceil(limit);
    let units = if charge > 0 { added } else { (deficit - kept).div_ceil(window) };
    Adjusted::new(units, changed != deficit, State::Level { time, amount: changed }, reset)
}
