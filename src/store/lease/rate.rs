//! The demand of a key, in periods as long as a lease lives.
//!
//! Times and costs of requests come in; the demand of a period goes out, by which leases are sized. The larger one
//! of the current period and the one before is taken, so that a period that has just begun does not look like a
//! pause. After two periods without a request the rate begins anew.

/// Requests in one period from which on a key is hot: below, leasing would save no calls.
pub(super) const HOT: u64 = 8;

/// The demand of a key in this process, by periods as long as a lease lives. Times are microseconds.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// When the current period began.
    start: u64,
    /// The demand of the current period.
    now: Usage,
    /// The demand of the period before.
    before: Usage,
    /// The time of the last request.
    last: u64,
}

/// The demand of one period.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// How many requests there were.
    requests: u64,
    /// The sum of their costs.
    units: u64,
}

impl Rate {
    /// Returns the rate of a key that has just become hot: all requests but the one that is noted next.
    pub(super) fn hot(now: u64) -> Self {
        Self { start: now, last: now, now: Usage { requests: HOT - 1, units: HOT - 1 }, before: Usage::default() }
    }

    /// Counts a request of `units`; `period` is the lifetime of a lease.
    pub(super) fn note(&mut self, now: u64, period: u64, units: u64) {
        let elapsed = now.saturating_sub(self.start);
        if elapsed >= 2 * period {
            *self = Self { start: now, ..Self::default() };
        } else if elapsed >= period {
            *self = Self { start: self.start + period, before: self.now, ..Self::default() };
        }
        self.now.requests += 1;
        self.now.units = self.now.units.saturating_add(units);
        self.last = now;
    }

    /// Returns the units of demand in a period; `None` for a key of fewer than [`HOT`] requests in it.
    pub(super) fn demand(&self) -> Option<u64> {
        let hot = self.now.requests.max(self.before.requests) >= HOT;
        hot.then(|| self.now.units.max(self.before.units))
    }

    /// Returns the time since the last request.
    pub(super) fn idle(&self, now: u64) -> u64 {
        now.saturating_sub(self.last)
    }
}
