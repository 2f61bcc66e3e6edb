//! What is written by hand without this crate: one script that does GCRA for one key.

use std::sync::Arc;
use std::time::Duration;

use tollgate::Key;
use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;
use tollgate::deadpool_redis::redis::{RedisError, Script};

/// KEYS\[1\] holds the theoretical arrival time in microseconds; ARGV: the time between units and the
/// tolerance, both in microseconds. Returns 0, or how long to wait.
const GCRA: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local arrival = tonumber(redis.call('GET', KEYS[1])) or now
if arrival < now then
  arrival = now
end
local wait = arrival - now - ARGV[2]
if wait > 0 then
  return wait
end
arrival = arrival + ARGV[1]
redis.call('SET', KEYS[1], arrival, 'PX', math.ceil((arrival - now) / 1000))
return 0
";

/// The script, and its arguments for a limit, a window and a burst of the limit.
#[derive(Clone)]
pub(crate) struct Plain {
    script: Arc<Script>,
    interval_us: u64,
    tolerance_us: u64,
}

impl Plain {
    pub(crate) fn new(limit: u64, window: Duration) -> Self {
        let interval_us = u64::try_from(window.as_micros()).expect("a window is short") / limit;
        Self { script: Arc::new(Script::new(GCRA)), interval_us, tolerance_us: interval_us * (limit - 1) }
    }

    /// Makes one check; returns how many microseconds to wait.
    pub(crate) async fn check(&self, connection: &mut MultiplexedConnection, key: &str) -> Result<u64, RedisError> {
        let mut call = self.script.key(key);
        call.arg(self.interval_us).arg(self.tolerance_us);
        call.invoke_async(connection).await
    }
}

/// As many keys as asked for, as different clients have them.
pub(crate) fn keys(kind: &str, count: usize) -> Vec<Key> {
    let address = |number: usize| format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255);
    (0..count).map(|number| Key::new(kind, address(number))).collect()
}

/// The text that `RedisStore` gives these keys, under a prefix as long as its own.
pub(crate) fn texts(prefix: &str, keys: &[Key]) -> Vec<String> {
    assert_eq!(prefix.len(), "tollgate".len(), "the same length on all sides");
    keys.iter().map(|key| format!("{prefix}:{{{key}}}:bench:1t86400000m")).collect()
}
