//! What settings and policies a ratio store accepts, for its builder and for files.

use std::time::Duration;

use super::law::has_ratio;
use super::tally::{MOST_REPORT, MOST_SHARDS};
use crate::core::{Error, Quota, Requirement, Settles};

pub(super) const DEFAULT_TICK: Duration = Duration::from_secs(1);
/// Of a life, in ticks.
pub(super) const DEFAULT_LIFE: u32 = 10;
const TICKS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];
/// Of a life, in ticks.
const LIVES: [u32; 2] = [2, 600];
/// Of a tick; with fewer, its count is no estimate of the load.
const LEAST_UNITS: u64 = 10;

pub(crate) fn check_tick(tick: Duration) -> Result<(), Error> {
    if (TICKS[0]..=TICKS[1]).contains(&tick) && tick.subsec_nanos().is_multiple_of(1_000_000) {
        return Ok(());
    }
    Err(Error::invalid(format!("a tick of {tick:?} is not allowed: give 100ms to 60s, in whole milliseconds")))
}

/// Checks a life, of ticks that were checked; of the default ones, if none is given.
pub(crate) fn check_life(tick: Option<Duration>, life: Duration) -> Result<(), Error> {
    let tick = tick.unwrap_or(DEFAULT_TICK);
    let [least, most] = LIVES.map(|ticks| tick * ticks);
    let is_wrong = if life < least {
        format!("is shorter than two ticks of {tick:?}")
    } else if life > most {
        format!("is longer than 600 ticks of {tick:?}")
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!("a life of {life:?} {is_wrong}: give {least:?} to {most:?}")))
}

pub(crate) fn check_report(counters: u64) -> Result<usize, Error> {
    let checked = usize::try_from(counters).ok().filter(|counters| (1..=MOST_REPORT).contains(counters));
    checked.ok_or_else(|| Error::invalid(format!("a report of {counters} counters is not allowed: give 1 to 512")))
}

pub(crate) fn check_shards(shards: u64) -> Result<u8, Error> {
    let checked = u8::try_from(shards).ok().filter(|shards| (1..=MOST_SHARDS).contains(shards));
    checked.ok_or_else(|| Error::invalid(format!("{shards} shards are not allowed: give 1 to 16")))
}

/// Checks that a policy can be limited by a ratio, with this tick, or the default one.
pub(crate) fn check_policy(requirement: &Requirement<'_>, tick: Option<Duration>) -> Result<(), Error> {
    let Requirement { policy, quota, settles, bans, .. } = requirement;
    let (name, tick) = (policy.as_str(), tick.unwrap_or(DEFAULT_TICK));
    has_ratio(policy, quota)?;
    let text = if *settles == Settles::ByOutcome {
        format!("policy {name:?} settles units by the outcome, and a ratio refunds none: use another store for it")
    } else if *bans {
        format!("policy {name:?} has a ban, which this store does not have: leave it out, or choose another store")
    } else if let Some(remedy) = too_low(quota, tick) {
        format!(
            "policy {name:?} admits fewer than {LEAST_UNITS} units in a tick of {tick:?}, too few for a ratio: {remedy}"
        )
    } else {
        return Ok(());
    };
    Err(Error::invalid(text))
}

/// Returns what to do about a limit that has too few units in a tick: the count of one tick is no estimate then, and
/// more than the limit would be admitted. `None` if it has enough.
fn too_low(quota: &Quota, tick: Duration) -> Option<String> {
    let of_window = u128::from(LEAST_UNITS) * quota.window().as_micros();
    if u128::from(quota.limit()) * tick.as_micros() >= of_window {
        return None;
    }
    let least = of_window.div_ceil(u128::from(quota.limit().max(1)) * 1_000);
    let least = Duration::from_millis(u64::try_from(least).unwrap_or(u64::MAX));
    Some(if least <= TICKS[1] {
        format!("give a tick of at least {least:?}, or use another store")
    } else {
        "use another store".to_owned()
    })
}
