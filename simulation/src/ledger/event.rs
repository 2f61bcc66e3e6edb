//! What a call is taken apart into.

use std::sync::Arc;

/// How a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// Units per aligned window.
    FixedWindow,
    /// Units that return one after the other.
    TokenBucket,
    /// Units of the aligned window, and of the one before by its share.
    SlidingWindow,
    /// Units in any window.
    SlidingLog,
    /// Slots that follow each other.
    LeakyBucket,
    /// Slots that requests hold.
    Concurrency,
    /// Units per window of a calendar, which processes name.
    Calendar,
    /// Strikes, and for how long a key is banned for them: no quota.
    Ban,
}

impl Algorithm {
    /// The algorithm with this number in `lua/wire.lua`.
    pub(super) fn numbered(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::FixedWindow,
            2 => Self::TokenBucket,
            3 => Self::SlidingWindow,
            4 => Self::SlidingLog,
            5 => Self::LeakyBucket,
            6 => Self::Concurrency,
            33 => Self::Calendar,
            7 => Self::Ban,
            _ => return None,
        })
    }
}

/// What a check is decided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// How is counted.
    pub algorithm: Algorithm,
    /// The window in µs, a multiple of the tick.
    pub window_us: u64,
    /// The tick in µs: what all times are rounded down to.
    pub tick_us: u64,
    /// Units per window.
    pub limit: u64,
    /// The most units that can be there at once; of a ban the longest there is, in ticks.
    pub capacity: u64,
    /// What it says of a ban besides.
    pub ban: BanTerms,
    /// The windows of a calendar that it names.
    pub named: Windows,
}

/// The three windows of a calendar that a process names, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Where the first begins.
    pub start: u64,
    /// How long each is.
    pub lengths: [u64; 3],
}

impl Windows {
    /// The window of a time, if it is one of them: where it begins and ends.
    pub(super) fn at(&self, now: u64) -> Option<(u64, u64)> {
        let mut start = self.start;
        self.lengths.iter().find_map(|length| {
            let window = (start, start + length);
            start = window.1;
            (window.0..window.1).contains(&now).then_some(window)
        })
    }
}

/// What a rule says of a ban, beside the window of strikes, how many of them begin a ban, and the longest one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BanTerms {
    /// How long the first ban is, in ms.
    pub time: u64,
    /// How much longer each is than the last one, in thousandths.
    pub growth: u64,
    /// Whether a refusal during a ban begins its time anew.
    pub extends: bool,
}

impl Rule {
    /// The window in ticks.
    pub fn window(&self) -> u64 {
        self.window_us / self.tick_us
    }

    /// The most units that can be left.
    pub fn most(&self) -> u64 {
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => self.capacity,
            Algorithm::Ban => 1,
            _ => self.limit,
        }
    }

    /// Whether states by one rule can be read by the other.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        // A ban that is changed keeps its strikes.
        let is_ban = self.algorithm == Algorithm::Ban && other.algorithm == Algorithm::Ban;
        is_ban || (self.algorithm, self.window_us, self.tick_us) == (other.algorithm, other.window_us, other.tick_us)
    }
}

/// How many units are left, of a ban 1 unless the key is banned; `None` if nobody can know, as for a log of which only a part was told.
pub type Remaining = Option<u64>;

/// One check or change of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The counter's key.
    pub key: Arc<[u8]>,
    /// The time it was decided at, in µs.
    pub at_us: u64,
    /// What it was decided by.
    pub rule: Rule,
    /// What was asked, and what became of it.
    pub what: What,
    /// How many requests of one unit fit after the whole request, by the model.
    pub remaining: Remaining,
}

/// What was asked, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A check that costs something.
    Take {
        /// Units.
        cost: u64,
        /// Units that must remain.
        floor: u64,
        /// Whether it can refuse the request.
        enforced: bool,
        /// Whether it would be admitted alone.
        fits: bool,
        /// Whether its request was: what fits is taken only then.
        admitted: bool,
    },
    /// A check that costs nothing.
    Look {
        /// Units that must remain.
        floor: u64,
        /// Whether its request was admitted.
        admitted: bool,
    },
    /// A look whether a key is banned, and the strike of the check whose ban it is.
    Ban {
        /// What the check costs.
        cost: u64,
        /// Whether it can refuse the request.
        enforced: bool,
        /// Whether the key was banned before.
        banned: bool,
        /// How many strikes count.
        strikes: u64,
        /// Whether a ban begins with them.
        began: bool,
    },
    /// A check by windows of a calendar, none of which it is by the server's clock: nothing is decided.
    Outside,
    /// Strikes that are counted later.
    Strike {
        /// How many count.
        strikes: u64,
        /// Whether a ban begins with them.
        began: bool,
    },
    /// Units given back.
    Refund {
        /// Units.
        asked: u64,
        /// Units that it came to.
        units: u64,
        /// What they were taken at, in ticks, as the algorithm has it.
        stamp: Option<u64>,
    },
    /// Units added.
    Charge {
        /// Units.
        asked: u64,
        /// Units that it came to.
        units: u64,
    },
    /// Slots that count from now on.
    Renew {
        /// Slots.
        asked: u64,
        /// Slots of them that were there.
        units: u64,
        /// Slots that were taken, as there were too few.
        restored: u64,
        /// The time that they had, in ticks.
        stamp: Option<u64>,
    },
    /// All forgotten.
    Reset,
}

impl What {
    /// Units that were taken.
    pub fn taken(&self) -> u64 {
        match *self {
            Self::Take { cost, fits: true, admitted: true, .. } => cost,
            _ => 0,
        }
    }
}
