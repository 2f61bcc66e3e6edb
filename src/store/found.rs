//! A word in the log on state that could not be used.

use super::Check;
use crate::core::algorithm::Found;

impl Found {
    /// Logs that the state found was set aside, if it was.
    pub(super) fn warn(self, check: &Check) {
        let policy = &*check.counter.policy;
        match self {
            Found::Kept | Found::Fresh => {}
            Found::Ahead => {
                tracing::warn!(
                    policy,
                    "state more than a window ahead of the clock was set aside: did the clock step back?"
                );
            }
            #[cfg(feature = "redis")]
            Found::Foreign => tracing::warn!(policy, "a value that is not ours was set aside"),
        }
    }
}
