//! The names under which databases keep the states of counters.
//!
//! A name holds all that makes one counter's state differ from another's: the key that identifies the client, the policy,
//! the format of states, the algorithm, the window and its tick. The limit is not part of it, so a changed limit keeps the
//! units used; a changed window or algorithm starts with fresh state, and no state is ever read as another's.

use super::Counter;
use crate::core::Digits;
use crate::core::quota::Tick;

/// The version of names and states. A new version starts with fresh state, as no name of the old one is read any more.
pub(in crate::store) const FORMAT: &str = "1";

/// Room for all of a name but the key.
pub(in crate::store) const ROOM: usize = 96;

/// Appends the name of the ban of a counter's key: `{<key>}:<policy>:1b`. No algorithm has this letter, and neither quota
/// nor ban is part of the name.
pub(in crate::store) fn push_ban_name(name: &mut String, counter: &Counter) {
    for part in ["{", counter.key().as_str(), "}:", counter.policy(), ":", FORMAT, "b"] {
        name.push_str(part);
    }
}

/// Appends the name of a counter's state: `{<key>}:<policy>:<shape>`.
///
/// The shape is the format, the letter of the algorithm, the window in ticks, and `u` or `m` for ticks of 1 µs or 1 ms.
/// In place of the last two, a calendar has its name, which no digit begins: `1fmonth31@Europe/Berlin`.
pub(in crate::store) fn push_name(name: &mut String, counter: &Counter) {
    let quota = counter.quota();
    let tick = match quota.tick() {
        Tick::Micro => 'u',
        Tick::Milli => 'm',
    };
    for part in ["{", counter.key().as_str(), "}:", counter.policy(), ":", FORMAT] {
        name.push_str(part);
    }
    name.push(quota.facts().letter);
    if let Some(calendar) = quota.calendar() {
        return name.push_str(calendar.name());
    }
    name.push_str(Digits::of(quota.window_ticks()).as_str());
    name.push(tick);
}
