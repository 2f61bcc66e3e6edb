//! The checks of a flow: those it began with, and those of each portion.

use smallvec::SmallVec;

use crate::core::{Error, PolicyName, Quota};
use crate::store::{Check, Settles};

/// Checks of the counters that a flow takes from.
pub(in crate::limiter) type Each = SmallVec<[Check; 2]>;

/// Makes checks by the rules in force of those that a flow began with.
type Now = dyn Fn(&[Check]) -> Each + Send + Sync;

/// The counters that a flow takes from, and their checks at any time.
pub(in crate::limiter) struct FlowChecks {
    first: Each,
    now: Box<Now>,
}

impl FlowChecks {
    /// The checks of a key; `now` makes of them those by the rules in force. A portion that is refused is no strike, as
    /// clients do not choose portions; but nothing is leased to a key that is banned.
    pub(in crate::limiter) fn new(
        checks: impl IntoIterator<Item = Check>,
        now: impl Fn(&[Check]) -> Each + Send + Sync + 'static,
    ) -> Self {
        let look = |check: Check| check.cost(0).settles(Settles::ByOutcome).without_strikes();
        let first = checks.into_iter().map(look).collect();
        Self { first, now: Box::new(now) }
    }

    /// Returns the checks that the flow began with.
    pub(super) fn first(&self) -> &[Check] {
        &self.first
    }

    /// Returns the checks by the rules in force.
    pub(super) fn now(&self) -> Each {
        (self.now)(&self.first)
    }
}

/// Checks that units of a policy's quota, perhaps that of a tier, can be leased in portions.
///
/// # Errors
///
/// If they cannot: the message names the policy.
pub(crate) fn can_flow(policy: &PolicyName, quota: &Quota) -> Result<(), Error> {
    if !quota.facts().only_in_store() {
        return Ok(());
    }
    let (policy, algorithm) = (policy.as_str(), quota.algorithm().name());
    Err(Error::invalid(format!(
        "policy {policy:?}: a {algorithm} cannot limit bytes or messages, which take units in portions: give a \
         token_bucket, or a window"
    )))
}
