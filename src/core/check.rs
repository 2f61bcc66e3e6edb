//! What a store is asked.

use smallvec::SmallVec;

use super::{Key, PolicyName, Quota};

/// The address of one counter: a policy, a key, and the quota counted against.
///
/// Cheap to clone. Two quotas with the same algorithm and window share the counter, whatever their
/// limits: so a limit can change while its state is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Counter {
    /// The policy's name.
    pub policy: PolicyName,
    /// Who is counted.
    pub key: Key,
    /// How much is allowed.
    pub quota: Quota,
}

impl Counter {
    /// Whether both are counted in the same state.
    pub(crate) fn shares_state(&self, other: &Counter) -> bool {
        // The numbers first, as most policies of a layer count the same key.
        let shape = |quota: &Quota| (quota.window_ticks(), quota.tick(), quota.algorithm());
        shape(&self.quota) == shape(&other.quota) && self.policy == other.policy && self.key == other.key
    }
}

/// One question to a store: may this much be taken from this counter?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The counter asked about.
    pub counter: Counter,
    /// Units to take; 0 only looks, and always fits.
    pub cost: u64,
    /// Units that must remain after taking them.
    pub floor: u64,
    /// Whether a refusal counts.
    pub mode: Mode,
    /// Whether what is taken may come back.
    pub settles: Settles,
}

impl Check {
    /// A check that takes `cost` units, is enforced, and keeps what it took.
    pub fn new(counter: Counter, cost: u64) -> Self {
        Self { counter, cost, floor: 0, mode: Mode::Enforce, settles: Settles::AsTaken }
    }
}

/// Checks that are kept for as long as a store is waited for: mostly one.
pub(crate) type Checks = SmallVec<[Check; 1]>;

/// Keeps checks.
pub(crate) fn kept(checks: &[Check]) -> Checks {
    match checks {
        [check] => SmallVec::from_buf([check.clone()]),
        several => several.iter().cloned().collect(),
    }
}

/// Whether a check may refuse the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// The request is admitted only if this check fits.
    #[default]
    Enforce,
    /// The check is decided and counted, and changes nothing for the others.
    Shadow,
}

/// Whether units of a counter come back otherwise than by time.
///
/// Stores that remember refusals ask anew about counters whose units do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Settles {
    /// What was taken stays taken; giving it back is an exception.
    #[default]
    AsTaken,
    /// What was taken may be given back, by what becomes of the request.
    ByOutcome,
}
