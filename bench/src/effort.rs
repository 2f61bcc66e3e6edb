//! How long a run takes.

use std::time::Duration;

#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// How often the sides take turns.
    pub(crate) rounds: usize,
    /// How long a side is loaded in one round.
    pub(crate) span: Duration,
    /// Keys that are drawn from.
    pub(crate) keys: usize,
    /// Calls of a side in one round, where calls are counted.
    pub(crate) calls: usize,
}

impl Effort {
    pub(crate) const FULL: Self = Self { rounds: 9, span: Duration::from_millis(600), keys: 100_000, calls: 2_000 };
    pub(crate) const QUICK: Self = Self { rounds: 3, span: Duration::from_millis(100), keys: 10_000, calls: 200 };
}
