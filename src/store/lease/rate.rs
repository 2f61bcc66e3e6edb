//! The demand of a key, in periods as long as a lease lives.
//!
//! Times and costs of requests come in; the demand of a period goes out, by which leases are sized. The larger one
//! of the current period and the one before is taken, so that a period that has just begun does not look like a
//! pause. After two periods without a request the rate begins anew.

/// Requests in one period from which on a key is hot: below, leasing would save no calls.
pub(super) const HOT: u64 = 8;

/// The demand of a key in this process, by periods as long as a lease lives. Times are microseconds.
#[derive(Debug)]
pub(super) struct Rate {
    /// When the current period began.
    start: u64,
    /// The units of the current period.
    now: u64,
    /// The units of the period before.
    before: u64,
    /// The time of the last request.
    last: u64,
}

impl Rate {
    /// Returns the rate of a key that has just become hot: all requests but the one that is noted next.
    pub(super) fn hot(now: u64) -> Self {
        Self { start: now, last: now, now: HOT - 1, before: 0 }
    }

    /// Counts a request of `units`; `period` is the lifetime of a lease.
    pub(super) fn note(&mut self, now: u64, period: u64, units: u64) {
        let elapsed = now.saturating_sub(self.start);
        if elapsed >= 2 * period {
            (self.start, self.before, self.now) = (now, 0, 0);
        } else if elapsed >= period {
            (self.start, self.before, self.now) = (self.start + period, self.now, 0);
        }
        self.now = self.now.saturating_add(units);
        self.last = now;
    }

    /// Returns the units of demand in a period.
    pub(super) fn demand(&self) -> u64 {
        self.now.max(self.before)
    }

    /// Returns the time since the last request.
    pub(super) fn idle(&self, now: u64) -> u64 {
        now.saturating_sub(self.last)
    }
}
