//! Warnings about state that could not be used.
//!
//! Such state is set aside, so the key starts anew, which admits more than the limit. The cause is a
//! clock that stepped back, or another program that writes to the same keys: then each check may find such state, so
//! of each policy ten lines in 10 s are logged.

use crate::core::algorithm::Found;
use crate::core::{Lines, PolicyName};

static AHEAD: Lines = Lines::ten();

#[cfg(feature = "redis")]
static FOREIGN: Lines = Lines::ten();

impl Found {
    /// Logs a warning with the policy's name if the state found was set aside.
    #[inline]
    pub(super) fn warn(self, policy: &PolicyName) {
        match self {
            Found::Kept | Found::Fresh => {}
            // It is an error, not a decision.
            #[cfg(feature = "redis")]
            Found::Outside => {}
            Found::Ahead => AHEAD.log(policy, |more| {
                tracing::warn!(
                    code = "state_ahead",
                    policy = policy.as_str(),
                    more,
                    "state more than a window ahead of the clock was set aside: did the clock step back?"
                );
            }),
            #[cfg(feature = "redis")]
            Found::Foreign => FOREIGN.log(policy, |more| {
                tracing::warn!(
                    code = "state_foreign",
                    policy = policy.as_str(),
                    more,
                    "a value in Redis that tollgate did not write was set aside: does another program use the prefix?"
                );
            }),
        }
    }
}
