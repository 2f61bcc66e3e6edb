//! A key that holds a hash of a secret, together with the secret.
//!
//! Keys go to stores, logs and metrics, so they hold only hashes of secrets. A lookup needs the secret itself: it
//! travels beside the key as a raw value, up to the lookup and no further.

use std::fmt;

use super::Key;
use crate::lookup::RawValues;

/// A key that holds a hash of a value, with the value itself for lookups.
///
/// Closures that extract a secret return this instead of [`Key::hashed`], so that a
/// [`TierLookup`](crate::TierLookup) or a [`key::lookup`](super::lookup()) receives the value. No store, log, metric or
/// `Debug` output has it.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Secret};
///
/// let session = key::from_fn(|parts| parts.headers.get("x-session").map(|id| Secret::new("session", id)));
/// # let _ = session;
///
/// let secret = Secret::new("session", "s3cret");
/// assert!(secret.key().as_str().starts_with("session:#"));
/// assert!(!format!("{secret:?}").contains("s3cret"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct Secret {
    key: Key,
    offered: RawValues,
}

impl Secret {
    /// Makes the key that [`Key::hashed`] makes, and keeps the value.
    pub fn new(kind: &str, value: impl AsRef<[u8]>) -> Self {
        Self::of(Key::hashed(kind, &value), value)
    }

    /// Keeps the value beside a key that holds a hash of it.
    pub(super) fn of(key: Key, value: impl AsRef<[u8]>) -> Self {
        let mut offered = RawValues::default();
        offered.push(value);
        Self { key, offered }
    }

    /// Keeps the values beside a joined key.
    pub(super) fn joined(key: Key, offered: RawValues) -> Self {
        Self { key, offered }
    }

    /// Returns the key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn into_parts(self) -> (Key, RawValues) {
        (self.key, self.offered)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("key", &self.key).finish_non_exhaustive()
    }
}
