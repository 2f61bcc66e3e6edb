//! Warnings about state that could not be used.
//!
//! Such state is set aside, so the key starts anew, which admits more than the limit. The cause is a
//! clock that stepped back, or another program that writes to the same keys.

use crate::core::PolicyName;
use crate::core::algorithm::Found;

impl Found {
    /// Logs a warning with the policy's name if the state found was set aside. One warning for each check,
    /// without a limit.
    #[inline]
    pub(super) fn warn(self, policy: &PolicyName) {
        match self {
            Found::Kept | Found::Fresh => {}
            // It is an error, not a decision.
            #[cfg(feature = "redis")]
            Found::Outside => {}
            Found::Ahead => {
                tracing::warn!(
                    policy = policy.as_str(),
                    "state more than a window ahead of the clock was set aside: did the clock step back?"
                );
            }
            #[cfg(feature = "redis")]
            Found::Foreign => {
                tracing::warn!(
                    policy = policy.as_str(),
                    "a value in Redis that tollgate did not write was set aside: does another program use the prefix?"
                );
            }
        }
    }
}
