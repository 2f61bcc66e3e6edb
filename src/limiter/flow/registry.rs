//! A registry of the pools that have flows, by runtime and counters.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ahash::RandomState;

/// Values that others hold, by key. Each one keeps its [`Registration`].
pub(super) struct Registry<K, V> {
    each: Mutex<HashMap<Arc<K>, Weak<V>, RandomState>>,
}

impl<K, V> Default for Registry<K, V> {
    fn default() -> Self {
        Self { each: Mutex::default() }
    }
}

impl<K: Eq + Hash, V> Registry<K, V> {
    /// Returns the value of a key, made of its registration unless there is one.
    pub(super) fn get_or(self: &Arc<Self>, key: K, make: impl FnOnce(Registration<K, V>) -> V) -> Arc<V> {
        let mut each = self.each();
        if let Some(value) = each.get(&key).and_then(Weak::upgrade) {
            return value;
        }
        let key = Arc::new(key);
        let value = Arc::new(make(Registration { registry: Arc::clone(self), key: Arc::clone(&key) }));
        each.insert(key, Arc::downgrade(&value));
        value
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.each().len()
    }

    /// Locks the values. None is dropped while they are locked.
    fn each(&self) -> MutexGuard<'_, HashMap<Arc<K>, Weak<V>, RandomState>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a value is registered, until this is dropped with it.
pub(super) struct Registration<K: Eq + Hash, V> {
    registry: Arc<Registry<K, V>>,
    pub(super) key: Arc<K>,
}

impl<K: Eq + Hash, V> Drop for Registration<K, V> {
    fn drop(&mut self) {
        let mut each = self.registry.each();
        // There may be a new one in its place.
        if each.get(&self.key).is_some_and(|value| value.strong_count() == 0) {
            each.remove(&self.key);
        }
    }
}
