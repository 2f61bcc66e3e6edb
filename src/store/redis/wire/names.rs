//! The names of keys in Redis.
//!
//! A name is the prefix of the store, and the name of the counter's state (`store/name.rs`).
//!
//! The client's key stands in braces, as a hash tag: on a Cluster all policies over one key are in
//! one slot, and one script can decide them.

use crate::store::Counter;
#[cfg(feature = "redis-cell")]
use crate::store::name::FORMAT;
use crate::store::name::{ROOM, push_ban_name, push_name};

/// Returns the name of the key that has a counter's state: `<prefix>:{<key>}:<policy>:<shape>`.
///
/// The prefix has no braces, so the tag begins at the first one; all policies over one key share a
/// slot of a Cluster.
pub(in crate::store::redis) fn redis_key(prefix: &str, counter: &Counter) -> String {
    let mut name = String::with_capacity(prefix.len() + 1 + ROOM + counter.key().as_bytes().len());
    name.push_str(prefix);
    name.push(':');
    push_name(&mut name, counter);
    name
}

/// Returns the name of the key that has the ban of a counter's key: `<prefix>:{<key>}:<policy>:1b`.
///
/// It is in the slot of the counter.
pub(super) fn ban_key(prefix: &str, counter: &Counter) -> String {
    let mut name = String::with_capacity(prefix.len() + 1 + ROOM + counter.key().as_bytes().len());
    name.push_str(prefix);
    name.push(':');
    push_ban_name(&mut name, counter);
    name
}

/// Returns the name of the key in which redis-cell keeps a counter's state. Its shape, with the
/// window in seconds, is one that no state of this crate's scripts has: both can use one server.
#[cfg(feature = "redis-cell")]
pub(in crate::store::redis) fn cell_key(prefix: &str, counter: &Counter) -> String {
    let (policy, key, quota) = (counter.policy(), counter.key(), counter.quota());
    format!("{prefix}:{{{key}}}:{policy}:{FORMAT}c{}s", quota.window().as_secs())
}
