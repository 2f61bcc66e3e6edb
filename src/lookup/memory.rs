//! The cache of lookup results, bounded in number and time.
//!
//! Successes, misses and failures have lifetimes of their own: a client that signs up should not wait for long, and a
//! database that failed should be queried again soon, but not by each request.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use tokio::time::Instant;

use super::settings::{FAILED_FOR, Settings};
use crate::core::{Error, Key};

/// The result of a lookup, shared by all requests that wait for it.
pub(super) type SharedResult<V> = Result<V, Arc<Error>>;

/// The result of a lookup.
pub(crate) trait Looked: Clone + Send + Sync + 'static {
    /// Returns whether it is empty, which is cached for a shorter time.
    fn is_nothing(&self) -> bool;
}

/// Results by key, each with the time at which it expires.
#[derive(Clone)]
pub(super) struct Memory<V> {
    results: Cache<Key, (SharedResult<V>, Instant)>,
    settings: Settings,
}

impl<V: Looked> Memory<V> {
    /// Creates an empty cache. When it is full, keys that are rarely used are evicted.
    pub(super) fn new(settings: Settings) -> Self {
        // The cache frees what is older than any lifetime; each result has the time at which it expires.
        let longest = settings.lifetime.max(FAILED_FOR);
        let results = Cache::builder().max_capacity(settings.capacity).time_to_live(longest).build();
        Self { results, settings }
    }

    /// Returns the result of a key, unless it has expired.
    pub(super) fn get(&self, key: &Key) -> Option<SharedResult<V>> {
        let (result, expires) = self.results.get(key)?;
        (Instant::now() < expires).then_some(result)
    }

    /// Caches a result from now on.
    pub(super) fn put(&self, key: Key, result: SharedResult<V>) {
        if let Some(expires) = Instant::now().checked_add(self.lifetime_of(&result)) {
            self.results.insert(key, (result, expires));
        }
    }

    /// Returns how long a result is cached: 1 s if it is a failure, 10 s at most if it is empty.
    fn lifetime_of(&self, result: &SharedResult<V>) -> Duration {
        match result {
            Ok(found) if found.is_nothing() => self.settings.nothing_for(),
            Ok(_) => self.settings.lifetime,
            Err(_) => FAILED_FOR,
        }
    }
}
