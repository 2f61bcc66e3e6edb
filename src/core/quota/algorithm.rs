//! The algorithms, by name.

#[cfg(doc)]
use super::Quota;

/// How units are counted against a [`Quota`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A count that starts anew at each multiple of the window since the Unix epoch.
    FixedWindow,
    /// The time of every unit, so that no window of this length ever holds more than the limit.
    SlidingLog,
    /// The counts of two fixed windows, the older by the share the sliding window still covers.
    SlidingWindow,
    /// A bucket of `burst` units, refilled continuously at `limit` per window.
    TokenBucket,
    /// A queue whose requests leave `window / limit` apart.
    LeakyBucket,
}

impl Algorithm {
    /// The algorithms there are, by the name they have in files.
    pub const ALL: &'static [(&'static str, Algorithm)] = &[
        ("fixed_window", Algorithm::FixedWindow),
        ("sliding_log", Algorithm::SlidingLog),
        ("sliding_window", Algorithm::SlidingWindow),
        ("token_bucket", Algorithm::TokenBucket),
        ("gcra", Algorithm::TokenBucket),
        ("leaky_bucket", Algorithm::LeakyBucket),
    ];

    /// Returns the name this algorithm has in files and in Lua.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::SlidingLog => "sliding_log",
            Algorithm::SlidingWindow => "sliding_window",
            Algorithm::TokenBucket => "token_bucket",
            Algorithm::LeakyBucket => "leaky_bucket",
        }
    }
}
