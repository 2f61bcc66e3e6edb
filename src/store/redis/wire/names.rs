//! The names of keys in Redis.
//!
//! A name is the prefix of the store, and the name of the counter's state (`store/name.rs`).
//!
//! The client's key stands in braces, as a hash tag: on a Cluster all policies over one key are in
//! one slot, and one script can decide them.

use smallvec::SmallVec;

#[cfg(feature = "redis-cell")]
use crate::core::FORMAT;
use crate::store::Counter;
use crate::store::name::name;

/// The name of a key in Redis, mostly without an allocation.
pub(in crate::store::redis) type RedisKey = SmallVec<[u8; 80]>;

/// Returns the name of the key that has a counter's state: `<prefix>:{<key>}:<policy>:<shape>`.
///
/// The prefix has no braces, so the tag begins at the first one; all policies over one key share a
/// slot of a Cluster.
pub(in crate::store::redis) fn redis_key(prefix: &str, counter: &Counter) -> RedisKey {
    let mut key = RedisKey::new();
    key.extend_from_slice(prefix.as_bytes());
    key.push(b':');
    for part in name(counter) {
        key.extend_from_slice(part);
    }
    key
}

/// Returns the name of the key in which redis-cell keeps a counter's state. Its shape, with the
/// window in seconds, is one that no state of this crate's scripts has: both can use one server.
#[cfg(feature = "redis-cell")]
pub(in crate::store::redis) fn cell_key(prefix: &str, counter: &Counter) -> String {
    let (policy, key, quota) = (counter.policy(), counter.key(), counter.quota());
    format!("{prefix}:{{{key}}}:{policy}:{FORMAT}c{}s", quota.window().as_secs())
}
