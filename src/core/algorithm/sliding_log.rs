//! Sliding log: the time of every unit, so that no window ever holds more than the limit.
//!
//! State: the last time seen, and the low 32 bits of the time of each unit, oldest first. Windows are shorter than 2^32
//! ticks, so the low bits determine the whole time.
//!
//! A request fits if the units of the last `window` ticks, its cost and its floor are at most `limit`. A unit stops
//! counting `window` ticks after it was taken. Search is binary, so deciding takes logarithmic time in the units, and
//! writing linear time. The stamp is the time the units were taken at: a refund removes units of that time.
//!
//! Redis replies with a digest of the log instead, which has all that a decision reports, but is no state to keep.

use super::state::{Adjusted, Adjustment, CounterState, NEVER, QuotaParams, StateStatus, Step};

pub(super) fn decide(state: Option<&CounterState>, now: u64, rule: QuotaParams, cost: u64, floor: u64) -> Step {
    let QuotaParams { window, limit, .. } = rule;
    let (log, found) = Log::read(state, now, window);
    let time = log.last.max(now);
    let expired = log.aged(time, window);
    let live = log.size - expired;
    let fits = cost == 0 || live + cost + floor <= limit;
    let taken = if fits { cost } else { 0 };
    let remaining = limit.saturating_sub(live + taken + floor);
    let need = if fits { 1 } else { cost };
    let mut wait = 0;
    if !fits || remaining == 0 {
        wait = NEVER;
        if need + floor <= limit {
            let leaving = expired + live + taken + need + floor - limit;
            let left = if leaving > log.size { time } else { log.time(leaving) };
            wait = left + window - now;
        }
    }
    let mut reset = 0;
    if taken > 0 {
        reset = time + window - now;
    } else if live > 0 {
        reset = log.time(log.size) + window - now;
    }
    let state = if taken > 0 { log.write(time, expired + 1, log.size, taken) } else { None };
    Step { fits, remaining, wait, reset, delay: 0, stamp: time, state, found }
}

pub(super) fn adjust(state: Option<&CounterState>, now: u64, rule: QuotaParams, change: Adjustment) -> Adjusted {
    let QuotaParams { window, limit, .. } = rule;
    let Adjustment { refund, charge, stamp } = change;
    let (log, _) = Log::read(state, now, window);
    let time = log.last.max(now);
    let expired = log.aged(time, window);
    let mut to = log.size;
    let mut from = expired;
    if stamp != NEVER {
        to = log.aged(stamp, 0).max(expired);
        from = log.aged(stamp, 1).max(expired);
    }
    let refunded = refund.min(to - from);
    let kept = log.size - expired - refunded;
    let charged = charge.min((2 * limit).saturating_sub(kept));
    let state = if refunded + charged > 0 { log.without(time, expired, to - refunded, to, charged) } else { None };
    Adjusted { units: refunded + charged, state: state.map(|state| (state, time + window - now)) }
}

/// The stored log. Units are counted from 1, oldest first.
struct Log<'a> {
    last: u64,
    units: Units<'a>,
    size: u64,
}

enum Units<'a> {
    All(&'a [u32]),
    /// Units that still count: times of the newest, and of the one to wait for.
    #[cfg(feature = "redis")]
    Digest {
        newest: u64,
        leaving: u64,
    },
}

impl<'a> Log<'a> {
    fn read(state: Option<&'a CounterState>, now: u64, window: u64) -> (Self, StateStatus) {
        let (state, found) = CounterState::read(state, now, window);
        let log = match state {
            Some(CounterState::Log { time, units }) => {
                Log { last: *time, units: Units::All(units), size: units.len() as u64 }
            }
            #[cfg(feature = "redis")]
            Some(&CounterState::LogDigest { time: last, live: size, newest, leaving }) => {
                Log { last, units: Units::Digest { newest, leaving }, size }
            }
            _ => Log { last: now, units: Units::All(&[]), size: 0 },
        };
        (log, found)
    }

    /// Time of a unit, in ticks: the latest one up to `last` that has its low bits.
    ///
    /// In a digest, only the newest unit and the one to wait for have a time.
    fn time(&self, unit: u64) -> u64 {
        match self.units {
            Units::All(units) => {
                let low = u64::from(units[index(unit) - 1]);
                self.last - self.last.wrapping_sub(low) % SPAN
            }
            #[cfg(feature = "redis")]
            Units::Digest { newest, leaving } => {
                if unit == self.size {
                    newest
                } else {
                    leaving
                }
            }
        }
    }

    fn aged(&self, time: u64, age: u64) -> u64 {
        if self.all().is_none() {
            return 0;
        }
        let (mut low, mut high) = (0, self.size);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.time(middle) + age <= time {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    #[cfg_attr(not(feature = "redis"), allow(clippy::unnecessary_wraps, reason = "digests come from Redis"))]
    fn all(&self) -> Option<&'a [u32]> {
        match self.units {
            Units::All(units) => Some(units),
            #[cfg(feature = "redis")]
            Units::Digest { .. } => None,
        }
    }

    fn write(&self, time: u64, from: u64, to: u64, taken: u64) -> Option<CounterState> {
        let kept = self.all()?[index(from) - 1..index(to)].iter().copied();
        let added = std::iter::repeat_n(low_bits(time), index(taken));
        Some(CounterState::Log { time, units: kept.chain(added).collect() })
    }

    /// Removes the units up to `expired` and those after `from` up to `to`, and adds `charged` at `time`.
    fn without(&self, time: u64, expired: u64, from: u64, to: u64, charged: u64) -> Option<CounterState> {
        let all = self.all()?;
        let before = all[index(expired)..index(from)].iter();
        let after = all[index(to)..].iter();
        let added = std::iter::repeat_n(low_bits(time), index(charged));
        Some(CounterState::Log { time, units: before.chain(after).copied().chain(added).collect() })
    }
}

/// Times are kept modulo this many ticks.
const SPAN: u64 = 1 << 32;

#[allow(clippy::cast_possible_truncation, reason = "that is what is kept")]
fn low_bits(time: u64) -> u32 {
    time as u32
}

#[allow(clippy::cast_possible_truncation, reason = "a log of more units than memory cannot be")]
fn index(unit: u64) -> usize {
    unit as usize
}
