use super::CallId;
use super::sync::{AtomicU64, Ordering};

/// Most recent calls, so that each counts once, however many decisions shared it.
///
/// The table of atomics, indexed by the low bits of the id, needs no lock and no allocation. Because ids only grow, a
/// slot holds the latest call, and an older call that arrives after it is no longer first.
#[derive(Debug)]
pub(crate) struct CountedCalls {
    last: [AtomicU64; Self::PLACES],
}

impl CountedCalls {
    pub(super) const PLACES: usize = 64;

    pub(crate) fn new() -> Self {
        Self { last: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Returns `true` for a new call, and always for `None`, a decision that shared no call.
    pub(crate) fn is_first(&self, call: Option<CallId>) -> bool {
        call.is_none_or(|CallId(id)| {
            #[allow(clippy::cast_possible_truncation, reason = "the low bits are meant")]
            let place = id.get() as usize % Self::PLACES;
            self.last[place].fetch_max(id.get(), Ordering::Relaxed) < id.get()
        })
    }
}
