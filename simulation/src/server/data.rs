//! Keys and values.

use std::collections::BTreeMap;

/// What is stored under a key.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Bytes(Vec<u8>),
    /// Values by the names of fields; never none.
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// A value, and when it expires.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// The last millisecond since the epoch at which it is there.
    pub(super) until_ms: Option<u64>,
}

/// All keys of a node. Those that expired are removed when they are asked for.
#[derive(Debug, Default)]
pub(super) struct Data(BTreeMap<Vec<u8>, Entry>);

impl Data {
    pub(super) fn get(&mut self, key: &[u8], now_us: u64) -> Option<&mut Entry> {
        let expired = self.0.get(key)?.until_ms.is_some_and(|until| now_us / 1000 > until);
        if expired {
            self.0.remove(key);
        }
        self.0.get_mut(key)
    }

    pub(super) fn set(&mut self, key: &[u8], value: Value, until_ms: Option<u64>) {
        match self.0.get_mut(key) {
            Some(entry) => *entry = Entry { value, until_ms },
            None => drop(self.0.insert(key.to_vec(), Entry { value, until_ms })),
        }
    }

    /// Removes a key; returns what was there.
    pub(super) fn remove(&mut self, key: &[u8], now_us: u64) -> Option<Entry> {
        self.get(key, now_us)?;
        self.0.remove(key)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(|key| &**key)
    }
}
