//! Calendar window: a fixed window that ends where a calendar says so.
//!
//! State: the end of the window counted, and its count. A window counts until the end that its state names, also where
//! the calendar has another one by now: where two processes know other rules of a time zone, or a clock stepped back,
//! no unit is forgotten early. `decide` and `adjust` repeat those of `fixed_window.rs`, as their twins in Lua do: a
//! shared function there would be made anew in every call of a fixed window.
//!
//! A request fits if `count + cost + floor <= limit`, and waits for the end of the window. What else there is to know
//! of it is in `fixed_window.rs`, which calls this. The stamp is the window's end. Here the window comes from the
//! calendar; in Lua, out of the windows that the process named, the one that the server's clock is in.

use super::rule::{Adjusted, Adjustment};
use super::{Found, NEVER, State, Step};
use crate::core::calendar::Window;

/// Decides one check on the stored state, at a time in `window`.
pub(super) fn decide(state: Option<&State>, now: u64, window: Window, limit: u64, cost: u64, floor: u64) -> Step {
    let (end, mut count, found) = current(state, now, window);
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
    let state = State::Level { time: end, amount: count };
    Step { fits, remaining, wait, reset, delay: 0, stamp: end, state: Some(state), found }
}

/// Refunds or charges units of the window that counts at `now`; only units that the window has are refunded.
pub(super) fn adjust(state: Option<&State>, now: u64, window: Window, limit: u64, change: Adjustment) -> Adjusted {
    let Adjustment { mut refund, charge, stamp } = change;
    let (end, count, _) = current(state, now, window);
    if stamp != NEVER && stamp != end {
        refund = 0;
    }
    let kept = count.saturating_sub(refund);
    let changed = (kept + charge).min(kept.max(2 * limit));
    let units = (count - kept).max(changed - kept);
    Adjusted::new(units, changed != count, State::Level { time: end, amount: changed }, end - now)
}

/// The end of the window that counts at `now`, and its count: the one kept, until it has ended.
///
/// One that ends more than two lengths after the calendar's is set aside, as it would refuse for too long; windows
/// differ in length, and the next one is at most twice as long.
fn current(state: Option<&State>, now: u64, window: Window) -> (u64, u64, Found) {
    let (end, length) = (window.end, window.length());
    let Some(State::Level { time: kept, amount }) = state else { return (end, 0, Found::Fresh) };
    if *kept > end + 2 * length {
        return (end, 0, Found::Ahead);
    }
    if *kept > now {
        return (*kept, *amount, Found::Kept);
    }
    (end, 0, Found::Kept)
}
