//! What a refused request is told from what is known.

use std::time::Duration;

use super::demand::Demand;
use super::table::Known;
use crate::core::Outcome;
use crate::store::Check;

/// A refusal that is known of the same demand, or of a smaller one.
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

/// What a check was told that the refused request had too; if it had not, that nothing remains.
pub(super) fn last_known(check: &Check, hash: u64, known: &[Option<Known>], now: u64) -> Outcome {
    let others = known.iter().flatten().filter_map(|known| known.others.as_deref()).flatten();
    match others.into_iter().find(|other| other.hash == hash) {
        Some(other) => Outcome::allowed(check, other.remaining).resets_after(left(other.reset_at, now)),
        None => Outcome::allowed(check, 0),
    }
}

fn left(time: u64, now: u64) -> Duration {
    Duration::from_micros(time.saturating_sub(now))
}
