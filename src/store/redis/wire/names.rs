//! The names of keys in Redis.

use crate::core::quota::Tick;
use crate::store::Counter;

/// The format of keys and states; a new one starts with fresh state.
const FORMAT: &str = "1";

/// `<prefix>:{<key>}:<policy>:<shape>`: all policies over one key share a slot of a Cluster.
pub(in crate::store::redis) fn redis_key(prefix: &str, counter: &Counter) -> String {
    let Counter { policy, key, quota } = counter;
    let tick = match quota.tick() {
        Tick::Micro => 'u',
        Tick::Milli => 'm',
    };
    let (letter, window) = (quota.facts().letter, quota.window_ticks());
    let (key, mut digits) = (key.as_str(), itoa::Buffer::new());
    let mut name = String::with_capacity(prefix.len() + key.len() + policy.len() + 32);
    for part in [prefix, ":{", key, "}:", policy, ":", FORMAT] {
        name.push_str(part);
    }
    name.push(letter);
    name.push_str(digits.format(window));
    name.push(tick);
    name
}

/// The key of what redis-cell keeps, of a shape that no state of ours has.
#[cfg(feature = "redis-cell")]
pub(in crate::store::redis) fn cell_key(prefix: &str, Counter { policy, key, quota }: &Counter) -> String {
    format!("{prefix}:{{{key}}}:{policy}:{FORMAT}c{}s", quota.window().as_secs())
}
