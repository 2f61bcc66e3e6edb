//! Facts about algorithms, for all code in which algorithms differ.
//!
//! A fact is a field of [`Facts`]; those that are left out in [`FACTS`] are those of a fixed window. Stores, quotas and
//! the configuration read facts and never match on [`Algorithm`](super::Algorithm): which units return evenly, which units a refund releases, how a state is
//! laid out.
//!
//! Names, numbers and letters are kept in files and in Redis, and never change once they were released.

use std::time::Duration;

use super::HEARTBEAT;
use super::state::{CounterState, EXACT};

/// The facts about one algorithm.
///
/// Each field is the only place of its fact: nothing outside of this folder compares algorithms.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Facts {
    /// Its name in files, in errors and in Lua: `lua/NAME.lua` defines the function `NAME`.
    pub(crate) name: &'static str,
    /// Its number in the tables of `lua/wire.lua`. Numbers begin with 1 and leave none out; they are for
    /// good, as processes of several versions may share a server.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "it is for calls to Redis"))]
    pub(crate) number: u8,
    /// Its letter in the names of keys in Redis, for good: a state is never read as another algorithm's.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "it is for keys in Redis"))]
    pub(crate) letter: char,
    /// The layout of its state.
    pub(crate) layout: Layout,
    /// The most units that can be taken at once.
    pub(crate) capacity: Capacity,
    /// The shortest window, if it is longer than a tick: a life of slots that can be renewed in time.
    pub(crate) shortest_window: Duration,
    /// The longest window in ticks, if that is shorter than the limit for all quotas.
    pub(crate) longest_window: Option<u64>,
    /// Whether an admitted request may have to wait for its turn, in the queue that only its store has.
    pub(crate) stands_in_line: bool,
    /// Whether units are slots: held until a request has ended, renewed meanwhile, and released then.
    pub(crate) held: bool,
    /// Whether units return one after the other, `window / limit` apart: the limit is a rate, debts are repaid
    /// at that rate, and each unit more waits that much longer.
    pub(crate) returns_evenly: bool,
    /// The aligned windows in which units count from when they are taken; 0 where windows are not aligned.
    pub(crate) windows: u32,
    /// Which units a refund releases.
    pub(crate) refund: Refund,
    /// Which other checks the refusal of a check implies.
    pub(crate) refusal: DenialScope,
}

/// The facts about fixed windows.
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

/// The facts, in the order of the variants of [`Algorithm`](super::Algorithm).
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
    /// Returns whether only the store of a counter can decide: no units are leased, and none are taken here to be
    /// charged later.
    pub(crate) const fn only_in_store(&self) -> bool {
        self.stands_in_line || self.held
    }
}

/// A level in units is below this: four times the largest capacity over a long window.
const MAX_WIDE: u64 = 1 << 42;

/// Counts are kept in six bytes each.
const MAX_COUNT: u64 = 1 << 48;

/// The bytes of a state in Redis, which are read as a [`CounterState`](super::CounterState).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The start of a window (44 bits) and its count (52): a `Level`.
    Count,
    /// The last time seen, the level then, and when the key expires (7 bytes each): a `Level`. A level of 2^52 or more
    /// begins with a mark, and ends with its parts: a `Wide`.
    Falling,
    /// The last time seen (7 bytes), the count of its window, and that of the one before (6 each): a `Window`.
    Counts,
    /// The last time seen (6 bytes), and the time of each unit (4): a `Log`. If that is enough, Redis
    /// replies with a digest of it: a `LogDigest`.
    Log,
    /// Of each cohort its time (7 bytes) and its slots (4), oldest first: `Slots`.
    Slots,
    /// When a ban ends, its length, the start of the window of strikes, and how many there are (7 bytes each): a `Ban`.
    Ban,
}

impl Layout {
    /// Returns whether a state has this layout, and could be one of this window: of others the arithmetic is not exact,
    /// and may overflow.
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

/// The most units that can be taken at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// The limit.
    Limit,
    /// A burst: the limit, unless another one is set.
    Burst,
    /// The places of a queue, and one more: no place, unless some are set.
    Queue,
}

impl Capacity {
    /// Returns the capacity if only the limit is set.
    ///
    /// A queue without places has a capacity of 1: the request that leaves at once.
    pub(crate) const fn of(self, limit: u64) -> u64 {
        match self {
            Self::Limit | Self::Burst => limit,
            Self::Queue => 1,
        }
    }
}

/// Which of the units that were taken a refund releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refund {
    /// All that still count.
    Counted,
    /// Those that were not refilled since.
    Unrefilled,
    /// Those that are last in the line, which then ends earlier: no later request moves up.
    LastInLine,
}

/// Which other checks the refusal of a check implies, until units are refunded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenialScope {
    /// A check of the same or a larger sum of cost and floor is refused for at least as long, and how much
    /// longer follows from the sums.
    LargerSums,
    /// The same, but how long a larger sum waits depends on when units were taken: so only the wait of the
    /// same sum follows.
    SameSum,
    /// A check of the same or a larger floor is refused for at least as long, whatever its cost: a request
    /// starts at the first free slot, however many it takes. Sums beyond the capacity are refused for good.
    LargerFloors,
}
