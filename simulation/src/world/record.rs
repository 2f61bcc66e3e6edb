//! What became of a request.

use std::fmt;

use tokio::time::Instant;

/// What became of a request.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Which of the run's.
    pub(super) place: usize,
    pub(super) cost: u64,
    pub(super) user: u8,
    pub(super) process: usize,
    pub(super) began: Instant,
    /// When its handler was called, or it was answered without.
    pub(super) decided: Option<Instant>,
    pub(super) decision: Option<tollgate::Decision>,
    pub(super) is_admitted: bool,
    pub(super) status: Option<u16>,
    pub(super) ended: Option<Instant>,
    /// Its handler has answered.
    pub(super) is_handled: bool,
    /// Its caller went away.
    pub(super) has_left: bool,
    /// An answer, a charge or a refund of it may have been lost.
    pub(super) is_excused: bool,
    /// Something was in the way while it was under way.
    pub(super) is_held_up: bool,
    pub(super) charged: u64,
    pub(super) refunded: u64,
    /// No breaker was open when it began.
    pub(super) is_asked: bool,
    /// It waited on a runtime of its own.
    pub(super) is_elsewhere: bool,
}

/// What a trace calls a request: in a crowd many cost the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    place: usize,
    process: usize,
    cost: u64,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} (process {}, cost {})", self.place, self.process, self.cost)
    }
}

impl Record {
    pub(super) fn name(&self) -> Name {
        Name { place: self.place, process: self.process, cost: self.cost }
    }
}
