//! Sizes of portions, by the rate of the quotas and by how fast portions are used up.
//!
//! A portion that is too large or too small costs calls or waits, and never allows more units.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::policy::Algorithm;
use tollgate::store::{Check, Mode};
use tollgate::{Decision, Outcome, Quota};

/// A portion is the number of units that the slowest quota replenishes in this time.
const USUAL: Duration = Duration::from_millis(250);

const FAST: Duration = Duration::from_millis(125);

/// Divisor of the capacity for the largest portion, unless quotas replenish more in [`USUAL`].
const PART: u64 = 32;

const CHUNK: u64 = 1 << 14;

const UNLIMITED: u64 = 1 << 20;

/// Longest time between calls while a caller waits, because units may be refunded and counters reset.
const MAX_HOLD: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Portion {
    pub(super) units: u64,
    base: u64,
    most: u64,
    pub(super) capacity: u64,
    pub(super) chunk: u64,
}

impl Portion {
    pub(super) fn from_checks(checks: &[Check]) -> Self {
        let enforced = || checks.iter().filter(|check| check.mode == Mode::Enforce);
        let free = |check: &Check| check.counter.quota().capacity().saturating_sub(check.floor).max(1);
        let capacity = enforced().map(free).min().unwrap_or(u64::MAX);
        // If no policy is enforced, all determine the portions, so that units are counted.
        let counted = || checks.iter().filter(|check| check.mode == Mode::Enforce || capacity == u64::MAX);
        let gain = counted().map(|check| gained(check.counter.quota(), USUAL)).min().unwrap_or(UNLIMITED);
        let base = gain.clamp(1, (capacity / 4).max(1));
        let chunk = counted().map(|check| chunk_of(check.counter.quota())).max().unwrap_or(1).min(base);
        Self { base, most: base.max(capacity / PART).min(UNLIMITED.max(base) << 6), capacity, chunk, units: base }
    }

    pub(super) fn adapt(&mut self, checks: &[Check]) {
        let next = Self::from_checks(checks);
        *self = Self { units: self.units.clamp(next.base, next.most), ..next };
    }

    pub(super) fn admitted(&mut self, after: Option<Duration>, decision: &Decision) {
        match after {
            Some(after) if after < FAST => self.units = self.units.saturating_mul(2),
            Some(after) if after > 2 * USUAL => self.units /= 2,
            _ => {}
        }
        let remaining = enforced(decision).map(Outcome::remaining).min().unwrap_or(u64::MAX);
        self.units = self.units.min(remaining / 4).clamp(self.base, self.most);
    }
}

#[derive(Debug)]
pub(super) struct Hold {
    pub(super) decision: Decision,
    pub(super) at: Instant,
    pub(super) until: Instant,
    /// Whether the store denied units that it had reported as left.
    refused_what_was_left: bool,
}

impl Hold {
    pub(super) fn from_decision(decision: Decision, cost: u64, wanted: u64, now: Instant) -> Self {
        let is_allowed = decision.is_allowed();
        let mut hold = Self { decision, at: now, until: now + MAX_HOLD, refused_what_was_left: false };
        let left = hold.left(now);
        hold.refused_what_was_left = !is_allowed && left >= cost;
        if is_allowed && left >= wanted {
            hold.until = now;
        }
        hold.shorten(wanted);
        hold
    }

    pub(super) fn shorten(&mut self, wanted: u64) {
        let wait = self.ready(wanted).map_or(MAX_HOLD, |ready| ready - self.at);
        self.until = self.until.min(self.at + wait.max(Duration::from_millis(1)));
    }

    pub(super) fn is_long(&self) -> bool {
        self.until - self.at > 2 * USUAL
    }

    pub(super) fn left(&self, now: Instant) -> u64 {
        let left = |outcome: &Outcome| {
            let gain = if returns_evenly(outcome) { gained(outcome.quota(), now - self.at) } else { 0 };
            outcome.remaining().saturating_add(gain)
        };
        if self.refused_what_was_left { 0 } else { enforced(&self.decision).map(left).min().unwrap_or(u64::MAX) }
    }

    fn ready(&self, units: u64) -> Option<Instant> {
        let wait = |outcome: &Outcome| match self.refused_what_was_left {
            true => outcome.wait(),
            false if outcome.remaining() < units => until(outcome, units),
            false => Some(Duration::ZERO),
        };
        let mut waits = enforced(&self.decision).map(wait);
        waits.try_fold(self.at, |ready, wait| Some(ready.max(self.at.checked_add(wait?)?)))
    }

    pub(super) fn retry(&self, units: u64) -> Option<Instant> {
        let ready = self.ready(units)?;
        let of_window = |outcome: &&Outcome| outcome.remaining() < units && !returns_evenly(outcome);
        let resets = enforced(&self.decision).filter(of_window).map(Outcome::reset_after);
        let Some(reset) = resets.max() else { return Some(ready) };
        // The store is not called before the hold is over.
        Some(ready.max(self.until).max(self.at.checked_add(reset)?))
    }
}

fn enforced(decision: &Decision) -> impl Iterator<Item = &Outcome> {
    decision.outcomes().iter().filter(|outcome| outcome.mode() == Mode::Enforce)
}

/// Returns `true` if units return one by one. The units of a window do not, and none do while a key is banned.
fn returns_evenly(outcome: &Outcome) -> bool {
    outcome.quota().algorithm() == Algorithm::TokenBucket && !outcome.is_banned()
}

/// `units` must be more than are left, or `None` if no wait can help.
fn until(outcome: &Outcome, units: u64) -> Option<Duration> {
    let quota = outcome.quota();
    if returns_evenly(outcome) {
        let lack = u128::from(units.saturating_sub(outcome.remaining()));
        let nanos = (quota.window().as_nanos() * lack).div_ceil(u128::from(quota.limit()));
        return Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
    }
    if outcome.is_allowed() && outcome.remaining() > 0 { Some(USUAL) } else { outcome.wait() }
}

fn chunk_of(quota: &Quota) -> u64 {
    gained(quota, USUAL).clamp(1, (quota.capacity() / 4).clamp(1, CHUNK))
}

/// Denies a peek that leaves too little for a frame. At most `free` units can be left.
pub(crate) fn refuses_frames(outcome: &Outcome, free: u64) -> Option<Outcome> {
    let chunk = chunk_of(outcome.quota()).min((free / 4).max(1));
    let wait = || match chunk {
        // The wait of the store, because the store may have decided by a share of the quota.
        1 => outcome.wait(),
        _ if returns_evenly(outcome) => until(outcome, chunk),
        // When a part of a window returns is not known.
        _ => Some(outcome.reset_after()),
    };
    (outcome.remaining() < chunk).then(|| outcome.to_denied(wait()))
}

fn gained(quota: &Quota, time: Duration) -> u64 {
    let units = u128::from(quota.limit()) * time.as_nanos() / quota.window().as_nanos();
    u64::try_from(units).unwrap_or(u64::MAX)
}
