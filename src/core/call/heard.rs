//! What was heard of calls.

use super::CallId;
use super::sync::{AtomicU64, Ordering};

/// The calls told of last, so that each counts once, however many decisions shared it.
#[derive(Debug)]
pub(crate) struct Heard {
    /// The last call of those with the same low bits.
    last: [AtomicU64; Self::PLACES],
}

impl Heard {
    /// Many more than calls that are answered at about the same time: of a call that is told of after
    /// so many later ones nothing is counted any more.
    pub(super) const PLACES: usize = 64;

    pub(crate) fn new() -> Self {
        Self { last: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Whether this is the first that is heard of a call. Of a decision that shared none, always.
    pub(crate) fn is_first(&self, call: Option<CallId>) -> bool {
        call.is_none_or(|CallId(id)| {
            #[allow(clippy::cast_possible_truncation, reason = "the low bits are meant")]
            let place = id.get() as usize % Self::PLACES;
            self.last[place].fetch_max(id.get(), Ordering::Relaxed) < id.get()
        })
    }
}
