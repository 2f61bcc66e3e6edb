//! Bans: strikes against a key, and the time until which it is banned.
//!
//! Only the quota of a [`Ban`] has this algorithm, and its rule carries the numbers of the ban. Ticks are milliseconds.
//!
//! State: when the last ban ends, how long it is, when the window of strikes began, and the number of strikes in it.
//!
//! A check fits while the key is not banned, and changes nothing. A charge is a strike, whatever its units. A window
//! begins with the first strike outside of one. The strike that completes the number begins a ban. The length of a ban
//! is kept until growth no longer matters, which is `most` after its end.

use super::state::{Adjusted, Adjustment, CounterState, QuotaParams, StateStatus, Step};
use crate::core::Ban;

pub(super) fn decide(state: Option<&CounterState>, now: u64, rule: QuotaParams, _: u64, _: u64) -> Step {
    let (ends, .., found) = read(state, now, &ban_of(rule));
    let wait = ends.saturating_sub(now);
    let fits = wait == 0;
    Step { fits, remaining: fits.into(), wait, reset: wait, delay: 0, stamp: 0, state: None, found }
}

pub(super) fn adjust(state: Option<&CounterState>, now: u64, rule: QuotaParams, _: Adjustment) -> Adjusted {
    let ban = ban_of(rule);
    let Ban { time, within, most, .. } = ban;
    let (mut ends, mut length, mut start, mut strikes, _) = read(state, now, &ban);
    let mut units = 1;
    if now < ends {
        if !ban.extends {
            return Adjusted { units: 0, state: None };
        }
        (ends, units) = (ends.max(now + length), 0);
    } else {
        if strikes == 0 || now >= start + within {
            (start, strikes) = (now, 0);
        }
        (start, strikes) = (start.min(now), strikes + 1);
        if strikes >= u64::from(ban.after) {
            if length == 0 || now >= ends + most {
                length = time;
            } else {
                length = most.min(time.max((length * u64::from(ban.growth)).div_ceil(1_000)));
            }
            (ends, start, strikes) = (now + length, 0, 0);
        }
    }
    let matters = if ban.growth > 1_000 && length > 0 { ends + most } else { ends };
    let counts = if strikes > 0 { start + within } else { 0 };
    Adjusted { units, state: Some((CounterState::Ban { ends, length, start, strikes }, matters.max(counts) - now)) }
}

fn ban_of(QuotaParams { window, limit, capacity, .. }: QuotaParams) -> Ban {
    Ban::unpacked([window, limit, capacity])
}

/// Reads the end of the last ban, its length, the start of the window and its strikes.
///
/// Sets a state aside whose clock stepped back too far. A ban that was made shorter since ends sooner.
fn read(state: Option<&CounterState>, now: u64, ban: &Ban) -> (u64, u64, u64, u64, StateStatus) {
    let Some(CounterState::Ban { ends, length, start, strikes }) = state else {
        return (0, 0, 0, 0, StateStatus::Fresh);
    };
    let (most, within) = (ban.most, ban.within);
    if ends.saturating_sub(*length) > now + most || *start > now + within {
        return (0, 0, 0, 0, StateStatus::Ahead);
    }
    if *length > most {
        return (ends.saturating_sub(*length) + most, most, *start, *strikes, StateStatus::Kept);
    }
    (*ends, *length, *start, *strikes, StateStatus::Kept)
}

#[cfg(test)]
mod tests;
