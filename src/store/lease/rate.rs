//! How fast a key asks.

/// Requests in one period from which on a key is hot: below, leasing would save no calls.
pub(super) const HOT: u64 = 8;

/// What a key asks of this process, by periods as long as a lease lives. Times are microseconds.
#[derive(Debug, Default)]
pub(super) struct Rate {
    start: u64,
    now: Usage,
    before: Usage,
    last: u64,
}

/// What was asked in one period.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    requests: u64,
    units: u64,
}

impl Rate {
    /// The rate of a key that has just become hot.
    pub(super) fn hot(now: u64) -> Self {
        Self { start: now, last: now, now: Usage { requests: HOT - 1, units: HOT - 1 }, before: Usage::default() }
    }

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

    /// Units asked in a period, of a hot key.
    pub(super) fn demand(&self) -> Option<u64> {
        let hot = self.now.requests.max(self.before.requests) >= HOT;
        hot.then(|| self.now.units.max(self.before.units))
    }

    /// How long nothing was asked.
    pub(super) fn idle(&self, now: u64) -> u64 {
        now.saturating_sub(self.last)
    }
}
