//! What settings and policies a ratio store accepts, for its builder and for files.

use std::time::Duration;

use crate::core::algorithm::Algorithm;
use crate::core::{Error, Requirement, Settles};

pub(super) const DEFAULT_TICK: Duration = Duration::from_secs(1);
/// Of a life, in ticks.
pub(super) const DEFAULT_LIFE: u32 = 10;
const TICKS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];
/// Of a life, in ticks.
const LIVES: [u32; 2] = [2, 600];
const MOST_REPORT: usize = 512;
const MOST_SHARDS: u8 = 16;
const LONGEST_WINDOW: Duration = Duration::from_secs(60);

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

/// Checks that a policy can be limited by a ratio.
pub(crate) fn check_policy(Requirement { policy, quota, settles, bans, .. }: &Requirement<'_>) -> Result<(), Error> {
    let name = policy.as_str();
    let is_rate =
        matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::FixedWindow | Algorithm::SlidingWindow);
    let text = if quota.calendar().is_some() || !is_rate {
        let algorithm = quota.algorithm().name();
        format!("policy {name:?} counts by a {algorithm}, which has no ratio: use a token bucket, or another store")
    } else if quota.window() > LONGEST_WINDOW {
        let window = quota.window();
        format!(
            "policy {name:?} has a window of {window:?}, and ratios are of rates: give at most 60s, or use another store"
        )
    } else if *settles == Settles::ByOutcome {
        format!("policy {name:?} settles units by the outcome, and a ratio refunds none: use another store for it")
    } else if *bans {
        format!("policy {name:?} has a ban, which this store does not have: leave it out, or choose another store")
    } else {
        return Ok(());
    };
    Err(Error::invalid(text))
}
