//! The arithmetic of ratios: integers, without a clock or a map.
//!
//! A *keep* is the share of requests that is admitted, in parts of 2^32: the drop ratio is 1 less the keep. A *rate* is
//! what a quota admits in a tick, in parts of 2^20 of a unit, as a tick is often shorter than its window.

use std::time::Duration;

use super::tally::MOST_UNITS;
use crate::core::{Error, PolicyName, Quota};

/// The keep that drops nothing.
pub(super) const ALL: u64 = 1 << 32;

/// The bits of a rate behind its point.
const POINT: u32 = 20;

/// The error of drops is bounded by this many times the largest cost of a request.
const MOST_ERROR: i128 = 8;

const LONGEST_WINDOW: Duration = Duration::from_secs(60);

/// Checks that a quota of a policy is a rate of up to 60 s.
///
/// # Errors
///
/// If it is something else.
pub(super) fn has_ratio(policy: &PolicyName, quota: &Quota) -> Result<(), Error> {
    let (is_rate, window) = (quota.facts().has_ratio && quota.calendar().is_none(), quota.window());
    if is_rate && window <= LONGEST_WINDOW {
        return Ok(());
    }
    let (name, algorithm) = (policy.as_str(), quota.algorithm().name());
    Err(Error::invalid(if quota.calendar().is_some() {
        format!("policy {name:?} counts by a calendar, which has no ratio: give a window of at most 60s")
    } else if is_rate {
        format!(
            "policy {name:?} has a window of {window:?}, and ratios are of rates: give at most 60s, or use another store"
        )
    } else {
        format!("policy {name:?} counts by a {algorithm}, which has no ratio: use a token bucket, or another store")
    }))
}

/// What a quota admits in one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// Units, in parts of 2^20; more than 0, and at most 2^60.
    parts: u64,
}

impl Rate {
    /// Returns what `quota` admits in a tick.
    pub(super) fn new(quota: &Quota, tick: Duration) -> Self {
        let parts = (u128::from(quota.limit()) * tick.as_micros()) << POINT;
        let parts = parts.div_ceil(quota.window().as_micros().max(1));
        Self { parts: u64::try_from(parts).unwrap_or(u64::MAX).clamp(1, MOST_UNITS << POINT) }
    }

    /// Returns the units, rounded up.
    pub(super) fn units(self) -> u64 {
        self.parts.div_ceil(1 << POINT)
    }

    /// Returns the rate above which one of `live` processes reports a counter exactly: half of its share.
    pub(super) fn threshold(self, live: u64) -> Self {
        Self { parts: (self.parts / live.max(1) / 2).max(1) }
    }

    /// Returns whether so many units are more.
    pub(super) fn is_below(self, units: u64) -> bool {
        u128::from(units) << POINT > self.parts.into()
    }

    /// Returns `units` divided by the rate, in parts of 2^32: at most `u64::MAX`.
    pub(super) fn share_of(self, units: u64) -> u64 {
        u64::try_from((u128::from(units) << (32 + POINT)) / u128::from(self.parts)).unwrap_or(u64::MAX)
    }

    /// Returns what is left of the limit of a quota in its whole window, if a tick had `total` units.
    pub(super) fn left(self, quota: &Quota, total: u64) -> u64 {
        let used = (u128::from(total) * u128::from(quota.limit())) << POINT;
        let used = used.div_ceil(self.parts.into());
        quota.limit().saturating_sub(u64::try_from(used).unwrap_or(u64::MAX))
    }
}

/// Returns the keeps of requests that may not use the reserve, and of others, from what all processes were offered of
/// each kind.
///
/// Others are dropped only if they alone exceed the rate. The first kind has what they leave, and at most what is
/// outside of the reserve, which is `floor` of `capacity`.
pub(super) fn keeps(rate: Rate, [ordinary, critical]: [u64; 2], (floor, capacity): (u64, u64)) -> [u64; 2] {
    let rate = u128::from(rate.parts);
    let offered = |units: u64| u128::from(units) << POINT;
    let capacity = u128::from(capacity.max(1));
    let outside = rate * capacity.saturating_sub(floor.into()) / capacity;
    let left = outside.min(rate.saturating_sub(offered(critical)));
    [part(left, offered(ordinary)), part(rate, offered(critical))]
}

/// Returns `room` divided by `offered` as a keep.
fn part(room: u128, offered: u128) -> u64 {
    if room >= offered {
        return ALL;
    }
    u64::try_from((room << 32) / offered).map_or(ALL, |keep| keep.min(ALL))
}

/// Returns the share of `units` that a keep admits, rounded down.
pub(super) fn kept(keep: u64, units: u64) -> u64 {
    u64::try_from((u128::from(keep) * u128::from(units)) >> 32).unwrap_or(u64::MAX)
}

/// How far what was admitted is behind its share, in parts of 2^32 of a unit: feedback that keeps a sequence of random
/// drops as exact as a regular one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deviation(i128);

impl Deviation {
    /// Returns whether a request is admitted, by a random number below 2^32; `largest` is the largest cost of late.
    ///
    /// It is by the keep and a quarter of the error: by chance alone the sum would drift, and by the error alone
    /// clients whose requests alternate would be dropped all or never. The error is measured in the largest cost, so
    /// that small requests are dropped as often as large ones.
    pub(super) fn admits(&mut self, keep: u64, (cost, largest): (u64, u64), drawn: u64) -> bool {
        if keep >= ALL {
            *self = Self::default();
            return true;
        }
        let [keep, cost, largest, drawn] = [keep, cost, largest, drawn].map(i128::from);
        let admits = 4 * drawn * largest < 4 * keep * largest + self.0;
        let taken = if admits { cost << 32 } else { 0 };
        let most = MOST_ERROR * (largest << 32);
        self.0 = (self.0 + keep * cost - taken).clamp(-most, most);
        admits
    }
}

/// Returns by how much a sum of `units` may differ from what it should be without being significant, if requests have
/// up to `cost` of them each: 4 standard deviations of the number of requests, and 4 requests.
pub(super) fn slack(units: u64, cost: u64) -> u64 {
    let cost = cost.max(1);
    cost.saturating_mul(4 * (units / cost).isqrt() + 4)
}

/// The level up to which each caller is admitted what it is offered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// What is divided, in parts of 2^32 of a unit: a level below one unit admits some of the requests.
    parts: u128,
    /// By how many callers.
    callers: u128,
}

impl Level {
    /// Returns the level with which all of `offered`, which is sorted, are admitted what `keep` admits of their sum;
    /// `None` if that is all of it.
    pub(super) fn new(offered: &[u64], keep: u64) -> Option<Self> {
        let mut parts = offered.iter().map(|units| u128::from(*units)).sum::<u128>() * u128::from(keep);
        for (index, units) in offered.iter().enumerate() {
            let callers = u128::try_from(offered.len() - index).unwrap_or(u128::MAX);
            let units = u128::from(*units) << 32;
            // All that follow have at least as much.
            if units * callers > parts {
                return Some(Self { parts, callers });
            }
            parts -= units;
        }
        None
    }

    /// Returns the keep of `units` more of a caller that was offered `before`.
    pub(super) fn keep(self, before: u64, units: u64) -> u64 {
        let left = self.parts.saturating_sub((u128::from(before) << 32) * self.callers);
        u64::try_from(left / (u128::from(units) * self.callers).max(1)).map_or(ALL, |keep| keep.min(ALL))
    }
}

/// Random numbers that repeat with their seed: xorshift64*.
#[derive(Clone, Debug)]
pub(super) struct Draws(u64);

impl Draws {
    /// The numbers of a seed, mixed so that neighbouring seeds have different ones.
    pub(super) fn new(seed: u64) -> Self {
        let mixed = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((mixed ^ (mixed >> 32)).max(1))
    }

    /// Returns a number below 2^32.
    pub(super) fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    /// Returns `units` × `up` / `down`, rounded at random so that it is exact on average.
    pub(super) fn scaled(&mut self, units: u64, up: u128, down: u128) -> u64 {
        let (product, down) = (u128::from(units) * up, down.max(1));
        let rest = ((product % down) << 32) / down;
        let scaled = product / down + u128::from(u128::from(self.draw()) < rest);
        u64::try_from(scaled).unwrap_or(MOST_UNITS).min(MOST_UNITS)
    }

    /// Returns what is reported of a counter at or below the threshold: both kinds of units, or nothing, so that it is
    /// exact on average.
    pub(super) fn sample(&mut self, units: [u64; 2], threshold: Rate) -> Option<[u64; 2]> {
        let all = units[0].saturating_add(units[1]);
        if self.draw() >= threshold.share_of(all) {
            return None;
        }
        let down = u128::from(all) << POINT;
        Some(units.map(|units| self.scaled(units, threshold.parts.into(), down)))
    }
}

#[cfg(test)]
mod tests;
