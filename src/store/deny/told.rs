//! The outcomes of a request that is refused from memory.
//!
//! What is known of its checks comes in; one [`Outcome`] for each goes out, as the store would have reported it:
//! waits and resets count down from when they were reported, and never end early. A check of which nothing is known
//! reports that nothing remains, which is the least that can be true.

use std::time::Duration;

use super::demand::Demand;
use super::table::Known;
use crate::core::Outcome;
use crate::store::Check;

/// Returns the outcome of a check that is known not to fit, by a refusal of the same demand or of a smaller one.
///
/// A larger demand waits longer by what [`Demand::longer_than`] says; one that no wait helps has no `retry_after`.
pub(super) fn denied(check: &Check, demand: Demand, known: &Known, now: u64) -> Outcome {
    let quota = &check.counter.quota;
    let remaining = match known.remaining {
        0 => 0,
        left => left.saturating_add(known.floor).saturating_sub(check.floor),
    };
    let helps = known.retry_at != u64::MAX && !demand.is_beyond(quota);
    let wait = helps.then(|| {
        let longer = demand.longer_than(known.units, quota);
        Duration::from_micros(known.retry_at.saturating_sub(now).saturating_add(longer))
    });
    Outcome::denied(check, remaining, wait).resets_after(left(known.reset_at, now))
}

/// Returns the outcome of a check that is not known to refuse: as the refused request reported it, if that had the
/// same check; else it reports that nothing remains.
pub(super) fn last_known(check: &Check, hash: u64, known: &[Option<Known>], now: u64) -> Outcome {
    let others = known.iter().flatten().filter_map(|known| known.others.as_deref()).flatten();
    match others.into_iter().find(|other| other.hash == hash) {
        Some(other) => Outcome::allowed(check, other.remaining).resets_after(left(other.reset_at, now)),
        None => Outcome::allowed(check, 0),
    }
}

/// Returns the time from `now` until `time`, which is 0 once that is past.
fn left(time: u64, now: u64) -> Duration {
    Duration::from_micros(time.saturating_sub(now))
}
