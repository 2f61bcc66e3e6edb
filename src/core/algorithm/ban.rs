//! The arithmetic of bans: strikes, and until when a key is banned.
//!
//! It is no algorithm: a check has a quota and perhaps a [`Ban`] besides, whose state is one of its own, in whole
//! milliseconds whatever the tick of the quota is. Its twin is `lua/ban.lua`.
//!
//! State: when the last ban ends, how long it is, when the window of strikes began, and how many there are in it.
//!
//! A key is banned while `now < ends`. A window begins with the first strike outside of one. The strike that completes
//! the number begins a ban. Its length is kept until the growth no longer matters, which is `most` after its end.

use super::{Found, State};
use crate::core::Ban;

/// What a look at a ban finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Banned {
    /// When the ban ends, in milliseconds; not after `now` if there is none.
    pub(crate) ends: u64,
    /// The kind of state that was found.
    pub(crate) found: Found,
}

/// What a strike comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Struck {
    /// The state to keep.
    pub(crate) state: State,
    /// How long it matters from now on, in milliseconds: more than 0, and at most twice the longest ban.
    pub(crate) life: u64,
    /// The strikes that counted: 1, or 0 if a ban that goes on was extended.
    pub(crate) units: u64,
    /// The length in milliseconds of the ban that began with it.
    pub(crate) began: Option<u64>,
}

/// Looks at a ban, and changes nothing.
pub(crate) fn look(state: Option<&State>, now: u64, ban: &Ban) -> Banned {
    let (ends, .., found) = read(state, now, ban);
    Banned { ends, found }
}

/// Counts a strike; `None` if it changes nothing, as the key is banned.
pub(crate) fn strike(state: Option<&State>, now: u64, ban: &Ban) -> Option<Struck> {
    let Ban { time, within, most, .. } = *ban;
    let (mut ends, mut length, mut start, mut strikes, _) = read(state, now, ban);
    let (mut began, mut units) = (None, 1);
    if now < ends {
        if !ban.extends {
            return None;
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
            began = Some(length);
        }
    }
    let matters = if ban.growth > 1_000 && length > 0 { ends + most } else { ends };
    let counts = if strikes > 0 { start + within } else { 0 };
    let state = State::Ban { ends, length, start, strikes };
    Some(Struck { state, life: matters.max(counts) - now, units, began })
}

/// Reads the end of the last ban, its length, the start of the window and its strikes.
///
/// A state of a clock that stepped back too far is set aside. A ban that was made shorter since ends sooner.
fn read(state: Option<&State>, now: u64, ban: &Ban) -> (u64, u64, u64, u64, Found) {
    let Some(State::Ban { ends, length, start, strikes }) = state else { return (0, 0, 0, 0, Found::Fresh) };
    let (most, within) = (ban.most, ban.within);
    if ends.saturating_sub(*length) > now + most || *start > now + within {
        return (0, 0, 0, 0, Found::Ahead);
    }
    if *length > most {
        return (ends.saturating_sub(*length) + most, most, *start, *strikes, Found::Kept);
    }
    (*ends, *length, *start, *strikes, Found::Kept)
}

#[cfg(test)]
mod tests;
