//! What is noted of a request before the store decides it.
//!
//! The checks come in; a [`Snapshot`] goes out, which comes back with the decision to
//! [`record`](super::refusals::Refusals::record). It exists because a counter may be changed while the store decides:
//! the generations noted before are compared with those afterwards, and a refusal that may be older than a change is
//! not cached.
//!
//! Only `refusals` reads its fields; stores keep a snapshot and pass it back.

use smallvec::SmallVec;

use crate::store::{Check, Mode, Settles};

/// The state of the cache before the store decided a request, with which its decision is recorded.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// The time before the store was called, in microseconds of the cache's clock.
    pub(super) sent: u64,
    /// One for each check, in their order.
    pub(super) marks: Marks,
    /// Whether refusals of the checks are those of the request: none is in shadow mode, and no two are of one counter.
    pub(super) is_simple: bool,
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
    pub(super) generation: u32,
}

/// Returns whether a refusal of this check may be cached: it holds until its wait is over, and only the store counts
/// strikes.
///
/// It does if it has a cost, is enforced, and settles as taken: units that are refunded by a request's outcome may be
/// available at any moment, and so may slots.
pub(super) fn is_cacheable(check: &Check) -> bool {
    let is_plain = check.cost > 0 && check.mode == Mode::Enforce && !check.strikes();
    is_plain && check.settles == Settles::AsTaken && !check.counter.quota().facts().held
}

/// Returns whether a refusal of this check by a ban may be cached: a ban ends by time alone, or is lifted.
pub(super) fn is_ban_cacheable(check: &Check) -> bool {
    check.ban.is_some() && (check.cost > 0 || check.is_only_for_ban()) && check.mode == Mode::Enforce
}

/// Returns whether two checks may be of one counter: their hashes are equal.
pub(super) fn repeats(marks: &[Mark]) -> bool {
    marks.iter().enumerate().any(|(index, mark)| marks[..index].iter().any(|before| before.base == mark.base))
}
