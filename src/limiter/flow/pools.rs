//! All pools of a limiter or layer: flows of one key find the same one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ahash::RandomState;
use tokio::runtime::{Handle as Runtime, Id};

use super::checks::{Each, FlowChecks};
use super::handle::Flow;
use super::lessor::PoolStore;
use super::pool::Pool;
use crate::core::observer::FlowObserver;
use crate::metrics;
use crate::store::Check;

/// Flows of one runtime share a pool if they take from the same counters: a runtime that stands still must not keep
/// those of others waiting.
type Key = (Option<Id>, Each);

/// The pools that have flows. A pool removes itself when it is dropped.
pub(crate) struct Pools {
    each: Mutex<HashMap<Key, Weak<Pool>, RandomState>>,
    observer: FlowObserver,
}

/// Where a pool is found.
pub(super) struct Home {
    pub(super) pools: Arc<Pools>,
    pub(super) runtime: Option<Id>,
}

/// Returns the runtime of the caller.
pub(super) fn here() -> Option<Id> {
    Runtime::try_current().ok().map(|runtime| runtime.id())
}

impl Default for Pools {
    fn default() -> Self {
        Self { each: Mutex::default(), observer: metrics::of_flows() }
    }
}

impl Pools {
    /// Returns a flow of these checks, with nothing leased unless they have a pool already.
    pub(in crate::limiter) fn flow(self: &Arc<Self>, checks: FlowChecks, store: &PoolStore) -> Flow {
        Flow::new(self.pool(Arc::new(checks), store))
    }

    /// Returns the pool of these checks in the runtime of the caller.
    pub(super) fn pool(self: &Arc<Self>, checks: Arc<FlowChecks>, store: &PoolStore) -> Arc<Pool> {
        let key = (here(), checks.first().into());
        let mut each = self.each();
        if let Some(pool) = each.get(&key).and_then(Weak::upgrade) {
            return pool;
        }
        let home = Home { pools: Arc::clone(self), runtime: key.0 };
        let pool = Arc::new(Pool::new(checks, Arc::clone(store), self.observer.clone(), home));
        each.insert(key, Arc::downgrade(&pool));
        pool
    }

    /// Removes a pool that is being dropped, unless there is a new one in its place.
    pub(super) fn remove(&self, runtime: Option<Id>, checks: &[Check]) {
        let (key, mut each) = ((runtime, checks.into()), self.each());
        if each.get(&key).is_some_and(|pool| pool.strong_count() == 0) {
            each.remove(&key);
        }
    }

    /// Locks the pools. None is dropped while they are locked.
    fn each(&self) -> MutexGuard<'_, HashMap<Key, Weak<Pool>, RandomState>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
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
    use crate::store::MemoryStore;

    #[test]
    fn pools_without_flows_are_gone() {
        let limits = Limits::new(Arc::new(MemoryStore::new()));
        let policy = || PolicyName::try_from("bytes").expect("valid");
        let counter = |key| Counter::new(policy(), Key::new("user", key), Quota::per_second(10));
        let flow = |key| flow_of(&limits, [Check::new(counter(key), 0)]);
        let (ada, again, bob) = (flow("ada"), flow("ada"), flow("bob"));
        assert_eq!(limits.pools.each().len(), 2);
        drop((ada, bob));
        assert_eq!(limits.pools.each().len(), 1);
        drop(again);
        assert_eq!(limits.pools.each().len(), 0);
    }
}
