//! What is true of an algorithm: the facts that are consulted wherever algorithms differ.
//!
//! A fact is a field of [`Facts`], and each algorithm's file has a constant with all of them, so a new algorithm
//! does not compile before it has said what is true of it. Stores, quotas and the configuration read facts and never
//! match on [`Algorithm`](super::Algorithm): which units return evenly, what a refund gives back, how a state is
//! laid out.
//!
//! Names, numbers and letters are kept in files and in Redis, and never change once they were released.

/// What is true of one algorithm.
///
/// Each field is the only place of its fact: nothing outside of an algorithm's own file compares algorithms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Names in files besides its own.
    pub(crate) aliases: &'static [&'static str],
    /// Its number in the tables of `lua/wire.lua`. Numbers begin with 1 and leave none out; they are for
    /// good, as processes of several versions may share a server.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "it is for calls to Redis"))]
    pub(crate) number: u8,
    /// Its letter in the names of keys in Redis, for good: a state is never read as another algorithm's.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "it is for keys in Redis"))]
    pub(crate) letter: char,
    /// How its state stands in Redis.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "it is for states in Redis"))]
    pub(crate) layout: Layout,
    /// The most units that can be taken at once.
    pub(crate) capacity: Capacity,
    /// The longest window in ticks, where that is less than what any quota may have.
    pub(crate) longest_window: Option<u64>,
    /// What takes more units over the same window, if they are asked for: a name in files, and how many.
    pub(crate) longer: Option<(&'static str, u64)>,
    /// The algorithms that may take a limit too large for this one, by name: the most alike first.
    pub(crate) instead: &'static [&'static str],
    /// Whether it is the generic cell rate algorithm in other words, which is what redis-cell has.
    #[cfg_attr(not(feature = "redis-cell"), allow(dead_code, reason = "it is for redis-cell"))]
    pub(crate) is_gcra: bool,
    /// Whether an admitted request may have to wait for its turn. Only its store knows when that is: so no
    /// units are leased, and none are taken here to be paid later.
    pub(crate) stands_in_line: bool,
    /// Whether units return one after the other, `window / limit` apart: the limit is a rate, debts are paid
    /// at that rate, and each unit more waits that much longer.
    pub(crate) returns_evenly: bool,
    /// The aligned windows in which units count from when they are taken; 0 where windows are not aligned.
    pub(crate) windows: u32,
    /// What a refund gives back.
    pub(crate) refund: Refund,
    /// What the refusal of a check says of others.
    pub(crate) refusal: Refusal,
}

/// The bytes of a state in Redis; [`State`](super::State) is what is read from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The start of a window (44 bits) and its count (52): a `Level`.
    Count,
    /// The last time seen, the level then, and when the key expires (7 bytes each): a `Level`.
    Falling,
    /// The last time seen (7 bytes), the count of its window, and that of the one before (6 each): a `Window`.
    Counts,
    /// The last time seen (6 bytes), and the time of each unit (4): a `Log`. Where that is enough, a digest of
    /// it is what is answered: a `LogDigest`.
    Log,
}

/// The most units that can be taken at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// The limit.
    Limit,
    /// A burst: the limit, unless another one is given.
    Burst,
    /// The places of a queue, and one more: no place, unless some are given.
    Queue,
}

impl Capacity {
    /// The capacity where nothing is given but the limit.
    ///
    /// A queue without places has a capacity of 1: the request that leaves at once.
    pub(crate) const fn of(self, limit: u64) -> u64 {
        match self {
            Self::Limit | Self::Burst => limit,
            Self::Queue => 1,
        }
    }
}

/// What a refund gives back of the units that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refund {
    /// All of them, as long as they count.
    Counted,
    /// Those that time has not refilled since.
    Unrefilled,
    /// Those that are last in the line, which then ends earlier: nobody behind them moves up.
    LastInLine,
}

/// What the refusal of one check says of others, until units are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A check of the same or a larger sum of cost and floor is refused for at least as long, and how much
    /// longer follows from the sums.
    LargerSums,
    /// The same, but how long a larger sum waits depends on when units were taken: so only the wait for the
    /// same sum is known.
    SameSum,
    /// A check of the same or a larger floor is refused for at least as long, whatever its cost: a request
    /// starts at the first free slot, however many it takes. Sums beyond the capacity are refused for good.
    LargerFloors,
}
