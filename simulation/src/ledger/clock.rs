//! The times that were seen, which a clock that is set back makes go down.

/// The highest time since any call.
#[derive(Debug, Default)]
pub(super) struct Clock {
    calls: u64,
    /// Calls and their times: each higher than all that came later.
    highs: Vec<(u64, u64)>,
}

impl Clock {
    /// Notes the time of the next call; returns its number.
    pub(super) fn tick(&mut self, at_us: u64) -> u64 {
        self.calls += 1;
        while self.highs.pop_if(|(_, high)| *high <= at_us).is_some() {}
        self.highs.push((self.calls, at_us));
        self.calls
    }

    /// The highest time at or after a call, in µs.
    pub(super) fn highest_since(&self, call: u64) -> u64 {
        let first = self.highs.partition_point(|(of, _)| *of < call);
        self.highs.get(first).map_or(0, |(_, high)| *high)
    }
}
