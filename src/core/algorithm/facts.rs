//! Facts about algorithms, for all code in which algorithms differ.
//!
//! A fact is a field of [`Facts`]. [`FACTS`] takes fields that it leaves out from the fixed window. Stores, quotas and
//! the configuration read facts and never match on [`Algorithm`](super::Algorithm).
//!
//! Names, numbers and letters are kept in files and in Redis, and never change once they were released.

use std::time::Duration;

use super::HEARTBEAT;
use super::state::{CounterState, EXACT};

/// Nothing outside of this folder compares algorithms.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Facts {
    /// Name in files, errors and Lua: `lua/NAME.lua` defines the function `NAME`.
    pub(crate) name: &'static str,
    /// Number in the tables of `lua/wire.lua`, from 1 and without gaps. It never changes, because processes of several
    /// versions may share a server.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "it is for calls to Redis"))]
    pub(crate) number: u8,
    /// Letter in Redis keys. It never changes, so that no state is read by another algorithm.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "it is for keys in Redis"))]
    pub(crate) letter: char,
    pub(crate) layout: Layout,
    pub(crate) capacity: Capacity,
    pub(crate) shortest_window: Duration,
    /// Longest window in ticks, if it is shorter than the limit for all quotas.
    pub(crate) longest_window: Option<u64>,
    pub(crate) stands_in_line: bool,
    pub(crate) held: bool,
    /// Whether units return one after the other, `window / limit` apart: debts are repaid at that rate, and each
    /// further unit waits that much longer.
    pub(crate) returns_evenly: bool,
    /// Number of aligned windows in which units count; 0 where windows are not aligned.
    pub(crate) windows: u32,
    pub(crate) refund: Refund,
    pub(crate) refusal: DenialScope,
}

const FIXED_WINDOW: Facts = Facts {
    name: "fixed_window",
    number: 1,
    letter: 'f',
    layout: Layout::Count,
    capacity: Capacity::Limit,
    shortest_window: Duration::ZERO,
    longest_window: None,
    stands_in_line: false,
    held: false,
    returns_evenly: false,
    windows: 1,
    refund: Refund::Counted,
    refusal: DenialScope::LargerSums,
};

/// In the order of the variants of [`Algorithm`](super::Algorithm).
pub(super) static FACTS: [Facts; 7] = [
    FIXED_WINDOW,
    Facts {
        name: "sliding_log",
        number: 4,
        letter: 'l',
        layout: Layout::Log,
        // 32 bits of each unit's time are kept.
        longest_window: Some((1 << 32) - 1),
        windows: 0,
        refusal: DenialScope::SameSum,
        ..FIXED_WINDOW
    },
    Facts {
        name: "sliding_window",
        number: 3,
        letter: 's',
        layout: Layout::Counts,
        windows: 2,
        refusal: DenialScope::SameSum,
        ..FIXED_WINDOW
    },
    Facts {
        name: "token_bucket",
        number: 2,
        letter: 't',
        layout: Layout::Falling,
        capacity: Capacity::Burst,
        returns_evenly: true,
        windows: 0,
        refund: Refund::Unrefilled,
        ..FIXED_WINDOW
    },
    Facts {
        name: "leaky_bucket",
        number: 5,
        letter: 'q',
        layout: Layout::Falling,
        capacity: Capacity::Queue,
        stands_in_line: true,
        returns_evenly: true,
        windows: 0,
        refund: Refund::LastInLine,
        refusal: DenialScope::LargerFloors,
        ..FIXED_WINDOW
    },
    Facts {
        name: "concurrency",
        number: 6,
        letter: 'h',
        layout: Layout::Slots,
        shortest_window: Duration::from_secs(2 * HEARTBEAT.as_secs()),
        held: true,
        windows: 0,
        refusal: DenialScope::SameSum,
        ..FIXED_WINDOW
    },
    Facts {
        name: "ban",
        number: 7,
        letter: 'b',
        layout: Layout::Ban,
        windows: 0,
        refusal: DenialScope::SameSum,
        ..FIXED_WINDOW
    },
];

impl Facts {
    /// Returns `true` if units are neither leased nor taken here and charged later.
    pub(crate) const fn only_in_store(&self) -> bool {
        self.stands_in_line || self.held
    }
}

/// Bound of levels in units: four times the largest capacity over a long window.
const MAX_WIDE: u64 = 1 << 42;

/// Bound of counts, which have six bytes each.
const MAX_COUNT: u64 = 1 << 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Start of a window (44 bits) and its count (52), as a `Level`.
    Count,
    /// Last time seen, level, and expiry of the key (7 bytes each), as a `Level`. A level of 2^52 or more begins with a
    /// mark and ends with its parts, as a `Wide`.
    Falling,
    /// Last time seen (7 bytes), count of its window, and count of the window before (6 each), as a `Window`.
    Counts,
    /// Last time seen (6 bytes), and the time of each unit (4), as a `Log`; if Redis replies with a digest, as a
    /// `LogDigest`.
    Log,
    /// Time (7 bytes) and number of slots (4) of each cohort, oldest first, as `Slots`.
    Slots,
    /// End of the ban, its length, start of the window of strikes, and their number (7 bytes each), as a `Ban`.
    Ban,
}

impl Layout {
    /// Returns `true` if the state has this layout and is possible in this window. Arithmetic on other states is
    /// inexact and may overflow.
    pub(crate) fn is_of(self, state: &CounterState, window: u64) -> bool {
        match state {
            CounterState::Level { .. } => matches!(self, Self::Count | Self::Falling),
            CounterState::Wide { units, parts, .. } => {
                let level = u128::from(*units) * u128::from(window) + u128::from(*parts);
                self == Self::Falling && *parts < window && *units < MAX_WIDE && level >= EXACT.into()
            }
            CounterState::Window { count, previous, .. } => self == Self::Counts && *count.max(previous) < MAX_COUNT,
            CounterState::Log { time, units } => {
                let age = |unit: &u32| time.wrapping_sub(u64::from(*unit)) % (1 << 32);
                self == Self::Log
                    && units.is_sorted_by(|earlier, later| age(earlier) >= age(later))
                    && units.first().is_none_or(|oldest| age(oldest) <= *time)
            }
            CounterState::Slots { cohorts } => {
                self == Self::Slots
                    && !cohorts.is_empty()
                    && cohorts.is_sorted_by(|(earlier, _), (later, _)| earlier < later)
            }
            CounterState::Ban { .. } => self == Self::Ban,
            #[cfg(feature = "redis")]
            CounterState::LogDigest { .. } => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    Limit,
    Burst,
    Queue,
}

impl Capacity {
    /// A queue without places has a capacity of 1: the request that leaves at once.
    pub(crate) const fn for_limit(self, limit: u64) -> u64 {
        match self {
            Self::Limit | Self::Burst => limit,
            Self::Queue => 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refund {
    Counted,
    Unrefilled,
    /// The last units in the queue, which then ends earlier: no later request moves up.
    LastInLine,
}

/// Other checks that are denied together with a check, until units are refunded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenialScope {
    /// Checks whose sum of cost and floor is equal or larger, for at least as long. The sums say how much longer.
    LargerSums,
    /// The same checks, but only an equal sum has the same wait, because longer waits depend on when units were taken.
    SameSum,
    /// Checks whose floor is equal or larger, whatever their cost: a request starts at the first free slot, however
    /// many it takes. Sums beyond the capacity are denied for good.
    LargerFloors,
}
