//! A key of a secret, with the secret.

use std::fmt;

use super::Key;
use crate::RawValues;

/// A key that is a hash of a value, and the value, which only look-ups get.
///
/// Closures that find a secret return it instead of [`Key::hashed`], so that a
/// [`TierLookup`](crate::TierLookup) or a [`key::lookup`](super::lookup) can use it.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Secret};
///
/// let session = key::from_fn(|parts| parts.headers.get("x-session").map(|id| Secret::new("session", id)));
/// # let _ = session;
/// ```
#[derive(Clone)]
#[must_use]
pub struct Secret {
    key: Key,
    offered: RawValues,
}

impl Secret {
    /// The key that [`Key::hashed`] makes, with the value.
    pub fn new(kind: &str, value: impl AsRef<[u8]>) -> Self {
        Self::of(Key::hashed(kind, &value), value)
    }

    /// The key of text that is long, and so is kept as a hash.
    pub(super) fn of(key: Key, value: impl AsRef<[u8]>) -> Self {
        let mut offered = RawValues::default();
        offered.push(value);
        Self { key, offered }
    }

    pub(super) fn joined(key: Key, offered: RawValues) -> Self {
        Self { key, offered }
    }

    /// The key.
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
