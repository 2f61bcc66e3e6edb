//! All pools of a limiter or layer: flows of one key find the same one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ahash::RandomState;
use tokio::runtime::{Handle as Runtime, Id};

use super::checks::{Each, FlowChecks};
use super::handle::Flow;
use super::pool::{Pool, PoolStore};
use crate::core::observer::FlowObserver;
use crate::metrics;

/// Flows of one runtime share a pool if they take from the same counters: a runtime that stands still must not keep
/// those of others waiting.
type Key = (Option<Id>, Each);

/// The pools that have flows.
pub(crate) struct Pools {
    each: Mutex<Table>,
    observer: FlowObserver,
}

#[derive(Default)]
struct Table {
    pools: HashMap<Key, Weak<Pool>, RandomState>,
    /// The size at which those without flows are removed.
    full: usize,
}

/// The least size at which pools without flows are removed.
const FULL: usize = 64;

impl Default for Pools {
    fn default() -> Self {
        Self { each: Mutex::default(), observer: metrics::of_flows() }
    }
}

impl Pools {
    /// Returns a flow of these checks, with nothing leased unless they have a pool already.
    pub(in crate::limiter) fn flow(&self, checks: FlowChecks, store: &PoolStore) -> Flow {
        Flow::new(self.pool(checks, store))
    }

    /// Returns the pool of these checks.
    fn pool(&self, checks: FlowChecks, store: &PoolStore) -> Arc<Pool> {
        let key = (Runtime::try_current().ok().map(|runtime| runtime.id()), checks.first().into());
        let mut table = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = table.pools.get(&key).and_then(Weak::upgrade) {
            return pool;
        }
        let pool = Arc::new(Pool::new(checks, Arc::clone(store), self.observer.clone()));
        if table.pools.len() >= table.full.max(FULL) {
            table.pools.retain(|_, pool| pool.strong_count() > 0);
            table.full = 2 * table.pools.len();
        }
        table.pools.insert(key, Arc::downgrade(&pool));
        pool
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pools").finish_non_exhaustive()
    }
}
