//! The time of the servers, as far as this process knows it.
//!
//! Windows of a calendar are named by the process, and the server's clock decides between them: see
//! `lua/calendar_window.lua`. They are those around the time that is kept here. So that clocks may
//! differ by any length, the difference is learned from replies: the first decision after a clock was
//! set by more than a window fails, and those after it do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::store::Clock;
use crate::store::clock::micros;

/// Clocks that differ by less are taken for the same: a reply takes some time.
const ALIKE_MS: u64 = 1_000;

/// The clock of decisions: the one that the store was built with, or that of the servers.
pub(super) struct ServerTime {
    clock: Option<Arc<dyn Clock>>,
    /// How far the clock of the server that replied last is ahead of the system's, in milliseconds.
    ahead: AtomicI64,
}

impl ServerTime {
    /// The time of servers whose clocks are as the system's, or that of a clock.
    pub(super) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self { clock, ahead: AtomicI64::new(0) }
    }

    /// Returns the time in milliseconds since the Unix epoch.
    pub(super) fn now_ms(&self) -> u64 {
        match &self.clock {
            Some(clock) => micros(clock.wall()) / 1_000,
            None => system_ms().saturating_add_signed(self.ahead.load(Ordering::Relaxed)),
        }
    }

    /// Learns the time from a reply that has just come, in microseconds.
    pub(super) fn learn(&self, now_us: u64) {
        let replied = now_us / 1_000;
        if self.clock.is_none() && self.now_ms().abs_diff(replied) > ALIKE_MS {
            // Both are far below 2^63.
            self.ahead.store(replied.cast_signed() - system_ms().cast_signed(), Ordering::Relaxed);
        }
    }
}

/// Returns the system's time in milliseconds since the Unix epoch.
fn system_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs().saturating_mul(1_000).saturating_add(since.subsec_millis().into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_of_a_server_is_learned_from_a_reply_of_another_time() {
        let time = ServerTime::new(None);
        assert!(time.now_ms().abs_diff(system_ms()) < 1_000);
        for [behind, ahead] in [[0, 7_200_000], [7_200_000, 0]] {
            let server = || system_ms() + ahead - behind;
            time.learn(server() * 1_000);
            assert!(time.now_ms().abs_diff(server()) < 1_000);
            // A late reply changes nothing.
            time.learn((server() - 500) * 1_000);
            assert!(time.now_ms().abs_diff(server()) < 1_000);
        }
    }

    #[test]
    fn the_clock_of_a_store_is_that_of_its_servers() {
        let time = ServerTime::new(Some(Arc::new(|| Duration::from_secs(5))));
        time.learn(9_000_000_000);
        assert_eq!(time.now_ms(), 5_000);
    }
}
