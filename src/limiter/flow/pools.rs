//! All pools of a limiter or layer: flows of one key find the same one.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::{Handle as Runtime, Id};

use super::checks::FlowChecks;
use super::lessor::PoolStore;
use super::pool::{Place, Pool};
use super::registry::Registry;
use crate::telemetry::Telemetry;

/// The pools that have flows.
#[derive(Default)]
pub(crate) struct Pools {
    each: Arc<Registry<Place, Pool>>,
    telemetry: Arc<Telemetry>,
}

/// Returns the runtime of the caller.
fn here() -> Option<Id> {
    Runtime::try_current().ok().map(|runtime| runtime.id())
}

impl Pools {
    /// Returns the pool of these checks in the runtime of the caller.
    pub(super) fn pool(&self, checks: Arc<FlowChecks>, store: &PoolStore) -> Arc<Pool> {
        let place = Place { runtime: here(), checks: checks.first().into() };
        self.each.get_or(place, |place| Pool::new(checks, Arc::clone(store), Arc::clone(&self.telemetry), place))
    }

    /// Returns the pool of the same checks in the runtime of the caller, unless this is it. Outside of a runtime, each
    /// one will do.
    pub(super) fn other_than(&self, pool: &Pool) -> Option<Arc<Pool>> {
        let is_other = here().is_some_and(|here| pool.runtime() != Some(here));
        is_other.then(|| self.pool(Arc::clone(pool.checks()), pool.store()))
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pools").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Counter, Key, PolicyName, Quota};
    use crate::limiter::flows::flow_of;
    use crate::limiter::limits::Limits;
    use crate::store::{Check, MemoryStore};

    #[test]
    fn pools_without_flows_are_gone() {
        let limits = Limits::new(Arc::new(MemoryStore::new()));
        let policy = || PolicyName::try_from("bytes").expect("valid");
        let counter = |key| Counter::new(policy(), Key::new("user", key), Quota::per_second(10));
        let flow = |key| flow_of(&limits, [Check::new(counter(key), 0)]);
        let (ada, again, bob) = (flow("ada"), flow("ada"), flow("bob"));
        assert_eq!(limits.pools.each.len(), 2);
        drop((ada, bob));
        assert_eq!(limits.pools.each.len(), 1);
        drop(again);
        assert_eq!(limits.pools.each.len(), 0);
    }
}
