//! The names of keys in Redis.
//!
//! A name holds all that makes one counter's state differ from another's: the prefix of the store,
//! the key that identifies the client, the policy, the format of states, the algorithm, the window
//! and its tick. The limit is not part of it, so a changed limit keeps the units used; a changed
//! window or algorithm starts with fresh state, and no state is ever read as another's.
//!
//! The client's key stands in braces, as a hash tag: on a Cluster all policies over one key are in
//! one slot, and one script can decide them.

use crate::core::Digits;
use crate::core::quota::Tick;
use crate::store::Counter;

/// The version of keys and states. A new version starts with fresh state, as no key of the old one
/// is read any more.
const FORMAT: &str = "1";

/// Returns the name of the key that has a counter's state: `<prefix>:{<key>}:<policy>:<shape>`.
///
/// The shape is the format, the letter of the algorithm, the window in ticks, and `u` or `m` for
/// ticks of 1 µs or 1 ms. The prefix has no braces, so the tag begins at the first one; all
/// policies over one key share a slot of a Cluster.
pub(in crate::store::redis) fn redis_key(prefix: &str, counter: &Counter) -> String {
    let Counter { policy, key, quota } = counter;
    let tick = match quota.tick() {
        Tick::Micro => 'u',
        Tick::Milli => 'm',
    };
    let (letter, window) = (quota.facts().letter, quota.window_ticks());
    let key = key.as_str();
    let mut name = String::with_capacity(prefix.len() + key.len() + policy.len() + 32);
    for part in [prefix, ":{", key, "}:", policy, ":", FORMAT] {
        name.push_str(part);
    }
    name.push(letter);
    name.push_str(Digits::of(window).as_str());
    name.push(tick);
    name
}

/// Returns the name of the key in which redis-cell keeps a counter's state. Its shape, with the
/// window in seconds, is one that no state of this crate's scripts has: both can use one server.
#[cfg(feature = "redis-cell")]
pub(in crate::store::redis) fn cell_key(prefix: &str, Counter { policy, key, quota }: &Counter) -> String {
    format!("{prefix}:{{{key}}}:{policy}:{FORMAT}c{}s", quota.window().as_secs())
}
