//! The outcomes of a request that is refused from memory.
//!
//! The cached refusals of its checks come in; one [`Outcome`] for each check goes out, as the store would have reported
//! it: waits and resets count down from when they were reported, and never end early. A check of which nothing is
//! cached reports that nothing remains, which is never too much.

use std::time::Duration;

use super::demand::Demand;
use super::table::Cached;
use crate::core::{Outcome, Quota};
use crate::store::Check;

/// Returns the outcome of a refused check, by a cached refusal of the same demand or of a smaller one.
///
/// A larger demand waits longer by [`Demand::longer_than`]; one that no wait helps has no `retry_after`.
pub(super) fn denied(check: &Check, demand: Demand, cached: &Cached, now: u64) -> Outcome {
    let remaining = cached.left.saturating_sub(check.floor);
    let wait = wait(check.counter.quota(), demand, cached, now);
    let denied = reset(Outcome::denied(check, remaining, wait), cached, now);
    if cached.is_ban() { denied.banned(left(cached.ban_ends, now)) } else { denied }
}

/// Returns how long a demand has to wait; `None` if no wait helps.
fn wait(quota: &Quota, demand: Demand, cached: &Cached, now: u64) -> Option<Duration> {
    let helps = cached.retry_at != u64::MAX && !demand.is_beyond(quota);
    helps.then(|| {
        let longer = demand.longer_than(cached.units, quota);
        Duration::from_micros(cached.retry_at.saturating_sub(now).saturating_add(longer))
    })
}

/// Sets when the counter resets, and the length of the window that counts.
fn reset(outcome: Outcome, cached: &Cached, now: u64) -> Outcome {
    outcome.resets_after(left(cached.reset_at, now)).with_window_minutes(cached.minutes)
}

/// Returns the time from `now` until `time`, which is 0 once that is past.
fn left(time: u64, now: u64) -> Duration {
    Duration::from_micros(time.saturating_sub(now))
}
