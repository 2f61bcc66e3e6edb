//! What is noted of a request before the store decides it.
//!
//! The checks come in; a [`Snapshot`] goes out, which comes back with the decision to
//! [`record`](super::refusals::Refusals::record). It exists because a counter may be changed while the store decides:
//! the generations noted before are compared with those afterwards, and a refusal that may be older than a change is
//! not cached.
//!
//! Only `refusals` reads its fields; stores keep a snapshot and pass it back.

use smallvec::SmallVec;

use crate::store::{Check, Decided, Mode, Settles};

/// The result of looking a request up in the cache.
#[derive(Debug)]
pub(crate) enum CacheLookup {
    /// A cached refusal applies.
    ///
    /// The decision has an empty receipt: nothing was taken.
    Refused(Decided),
    /// None applies: the store decides, and its decision is [recorded](super::refusals::Refusals::record).
    Miss(Snapshot),
}

/// The state of the cache before the store decided a request, with which its decision is recorded.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The time before the store was called, in microseconds of the cache's clock.
    pub(super) sent: u64,
    /// One for each check, in their order.
    pub(super) marks: Marks,
    /// Whether a refusal may be cached: no check has a ban, and none is in shadow mode and no two are of one counter, or
    /// all are looks.
    pub(super) cacheable: bool,
    /// Whether all of its checks only look (cost 0).
    pub(super) looks: bool,
}

/// The marks of one request; two of them need no allocation.
pub(super) type Marks = SmallVec<[Mark; 2]>;

/// One check of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The hash of policy and key, without the quota.
    pub(super) base: u64,
    /// How often the counters of this hash's slot had been forgotten.
    pub(super) generation: u64,
}

/// Returns whether a refusal of this check may be cached: it holds until its wait is over.
///
/// It does if it has a cost, is enforced, and settles as taken: units that are refunded by a request's outcome may be
/// available at any moment, and so may slots.
pub(super) fn is_cacheable(check: &Check) -> bool {
    let is_plain = check.cost > 0 && check.mode == Mode::Enforce;
    is_plain && check.settles == Settles::AsTaken && !check.counter.quota.facts().held
}

/// Returns whether two checks may be of one counter: their hashes are equal.
pub(super) fn repeats(marks: &[Mark]) -> bool {
    marks.iter().enumerate().any(|(index, mark)| marks[..index].iter().any(|before| before.base == mark.base))
}
