//! Sliding window counter: the count of the aligned window, plus the share of the previous count that the sliding
//! window still covers.
//!
//! State: the last time seen, the count of its window, and the count of the window before. The counted units are
//! `floor(previous * (window - elapsed) / window) + count`.
//!
//! A request fits if that, its cost and its floor are at most `limit`. The count is exact if the requests of the window
//! before were spread evenly, and off by their unevenness otherwise. Waits are exact for the stored counts, in closed
//! form. The stamp is the start of the aligned window in which units were taken. They can be refunded in that window
//! and in the next one.

use super::state::{Adjusted, Adjustment, CounterState, NEVER, QuotaParams, StateStatus, Step, mul_div, mul_div_ceil};

/// Times are ticks.
pub(super) fn decide(state: Option<&CounterState>, now: u64, rule: QuotaParams, cost: u64, floor: u64) -> Step {
    let QuotaParams { window, limit, .. } = rule;
    let (time, mut count, previous, found) = current(state, now, window);
    let elapsed = time % window;
    let start = time - elapsed;
    let weight = mul_div(window - elapsed, previous, window);
    let fits = cost == 0 || weight + count + cost + floor <= limit;
    if fits {
        count += cost;
    }
    let remaining = limit.saturating_sub(weight + count + floor);
    let need = if fits { 1 } else { cost };
    let mut wait = 0;
    if !fits || remaining == 0 {
        wait = NEVER;
        if need + floor <= limit {
            wait = start + time_until_at_most(count, previous, window, limit - floor - need) - now;
        }
    }
    let mut reset = 0;
    if count > 0 {
        reset = start + 2 * window - now;
    } else if previous > 0 {
        reset = start + window - now;
    }
    let state = CounterState::Window { time, count, previous };
    Step { fits, remaining, wait, reset, delay: 0, stamp: start, state: Some(state), found }
}

pub(super) fn adjust(state: Option<&CounterState>, now: u64, rule: QuotaParams, change: Adjustment) -> Adjusted {
    let QuotaParams { window, limit, .. } = rule;
    let Adjustment { refund, charge, stamp } = change;
    let (time, count, previous, _) = current(state, now, window);
    let elapsed = time % window;
    let start = time - elapsed;
    let mut refunded = 0;
    if stamp == NEVER || stamp == start {
        refunded = refund.min(count);
    }
    let mut earlier = 0;
    if stamp == NEVER || stamp.saturating_add(window) == start {
        earlier = (refund - refunded).min(previous);
    }
    let kept = count - refunded;
    let weight = mul_div(window - elapsed, previous - earlier, window);
    let added = charge.min((2 * limit).saturating_sub(weight + kept));
    let changed = kept + added;
    let reset = start + 2 * window - now;
    let state = CounterState::Window { time, count: changed, previous: previous - earlier };
    Adjusted::new(refunded + earlier + added, changed != count || earlier > 0, state, reset)
}

fn current(state: Option<&CounterState>, now: u64, window: u64) -> (u64, u64, u64, StateStatus) {
    let (kept, found) = CounterState::read(state, now, window);
    let Some(&CounterState::Window { time: last, count, previous }) = kept else { return (now, 0, 0, found) };
    let time = last.max(now);
    let windows = time / window - last / window;
    if windows == 0 {
        return (time, count, previous, found);
    }
    if windows == 1 {
        return (time, 0, count, found);
    }
    (time, 0, 0, found)
}

/// Ticks from the start of the window until at most `max` units are counted, which must not be so already: else a
/// divisor is 0.
///
/// In closed form: `floor(p * (w - e) / w) <= a` holds from `e = w - ceil((a + 1) * w / p) + 1` on.
///
/// `p` is the previous count, `w` the window, `e` the ticks since its start, and `a` its units that leave space:
/// `max - count` in this window, or, if the count alone is above `max`, `max` in the next window, whose previous
/// count it will be.
fn time_until_at_most(count: u64, previous: u64, window: u64, max: u64) -> u64 {
    if count <= max {
        let elapsed = window + 1 - mul_div_ceil(max - count + 1, window, previous);
        return elapsed.min(window);
    }
    2 * window + 1 - mul_div_ceil(max + 1, window, count)
}
