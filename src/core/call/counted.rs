//! The calls seen most recently, so that each is counted once.
//!
//! A fixed table of atomics, indexed by the low bits of the id: without a lock, an allocation or a bound on the number
//! of calls. Ids only grow, so a place holds the latest call, and an older one that arrives after it is not first any
//! more.

use super::CallId;
use super::sync::{AtomicU64, Ordering};

/// The calls seen most recently, so that each counts once, however many decisions shared it.
#[derive(Debug)]
pub(crate) struct CountedCalls {
    /// The latest call of those with the same low bits.
    last: [AtomicU64; Self::PLACES],
}

impl CountedCalls {
    /// The size of the table: many more than calls that complete at about the same time.
    ///
    /// A call that is first seen after a later one with the same low bits is not counted.
    pub(super) const PLACES: usize = 64;

    pub(crate) fn new() -> Self {
        Self { last: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Returns whether this call is seen for the first time; always true for `None`, a decision that shared no call.
    pub(crate) fn is_first(&self, call: Option<CallId>) -> bool {
        call.is_none_or(|CallId(id)| {
            #[allow(clippy::cast_possible_truncation, reason = "the low bits are meant")]
            let place = id.get() as usize % Self::PLACES;
            self.last[place].fetch_max(id.get(), Ordering::Relaxed) < id.get()
        })
    }
}
