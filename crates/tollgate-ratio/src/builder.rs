//! Settings of a ratio store, and the check of which policies it can limit.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use tollgate::policy::{Algorithm, PolicyName};
use tollgate::store::{Requirement, Settles};
use tollgate::{Error, Quota};

use crate::tally::{MAX_REPORT, MAX_SHARDS, Tally};

const DEFAULT_TICK: Duration = Duration::from_secs(1);
const TICKS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];
/// Ticks.
const DEFAULT_LIFE: u32 = 10;
const LIVES: [u32; 2] = [2, 600];
const MAX_WINDOW: Duration = Duration::from_secs(60);
/// Units per tick. With fewer units, the count of a tick is no estimate of the load.
const MIN_UNITS: u64 = 10;

/// Settings of a [`RatioStore`](super::RatioStore).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_ratio::{MemoryTally, RatioStore};
///
/// let store = RatioStore::builder(MemoryTally::new()).tick(Duration::from_millis(500)).report(64).build();
/// assert_eq!(store.live(), None);
/// ```
#[must_use]
pub struct RatioStoreBuilder {
    pub(super) tally: Box<dyn Tally>,
    pub(super) tick: Duration,
    life: Option<Duration>,
    pub(super) report: usize,
    pub(super) capacity: usize,
    pub(super) shards: u8,
    pub(super) instances: NonZeroU32,
    pub(super) fair: Option<(String, String)>,
    pub(super) seed: Option<u64>,
}

impl RatioStoreBuilder {
    pub(super) fn new(tally: impl Tally) -> Self {
        Self {
            tally: Box::new(tally),
            tick: DEFAULT_TICK,
            life: None,
            report: 256,
            capacity: 10_000,
            shards: 1,
            instances: NonZeroU32::MIN,
            fair: None,
            seed: None,
        }
    }

    /// Sets how often this process reports, instead of every second: whole milliseconds from 100 ms to 60 s. It is the
    /// same in all processes.
    pub fn tick(self, tick: Duration) -> Self {
        Self { tick, ..self }
    }

    /// Sets how long the last ratio holds if the tally does not reply, instead of 10 ticks: from 2 to 600 ticks.
    pub fn ttl(self, life: Duration) -> Self {
        Self { life: Some(life), ..self }
    }

    /// Sets how many counters a report has at most in each shard, instead of 256: from 1 to 512. The others are limited
    /// by the share of this process.
    pub fn report(self, counters: usize) -> Self {
        Self { report: counters, ..self }
    }

    /// Sets the most keys that are kept, instead of 10,000; 0 means 1. Further keys are limited by the share of this
    /// process until the next tick, in which keys with few requests are removed.
    pub fn capacity(self, keys: usize) -> Self {
        Self { capacity: keys.max(1), ..self }
    }

    /// Sets into how many shards the tally divides counters, instead of 1: from 1 to 16, the same in all processes. On a
    /// Redis Cluster they are in different slots.
    pub fn shards(self, shards: u8) -> Self {
        Self { shards, ..self }
    }

    /// Sets the number of processes by which limits are divided while no ratios are known, by default 1. If more
    /// processes reported last, their number is used.
    pub fn instances(self, instances: NonZeroU32) -> Self {
        Self { instances, ..self }
    }

    /// Divides the drops of `policy` among callers, which are the keys of policy `caller`, so that small callers are
    /// not dropped for a large one.
    ///
    /// Each caller is allowed up to a level in a tick, the same for all callers in this process. Drops move only within
    /// a process, so the requests of each caller must be spread over all processes. Requests without a check of
    /// `caller` are dropped at an equal rate, and so are requests of callers beyond the first 64 of a key in a tick.
    pub fn fair(self, policy: &str, caller: &str) -> Self {
        Self { fair: Some((policy.to_owned(), caller.to_owned())), ..self }
    }

    /// Sets the seed of all random numbers, so that a test repeats itself: which requests are dropped, and when this
    /// process reports.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        check_tick(self.tick)?;
        check_life(Some(self.tick), self.ratio_life())?;
        check_report(u64::try_from(self.report).unwrap_or(u64::MAX))?;
        check_shards(self.shards.into())?;
        if let Some((policy, by)) = &self.fair {
            PolicyName::try_from(policy.as_str()).and_then(|_| PolicyName::try_from(by.as_str()))?;
        }
        Ok(())
    }

    pub(super) fn ratio_life(&self) -> Duration {
        self.life.unwrap_or(self.tick.saturating_mul(DEFAULT_LIFE))
    }

    pub(super) fn check_fair(&self, requirements: &[Requirement<'_>]) -> Result<(), Error> {
        let Some((policy, by)) = &self.fair else { return Ok(()) };
        let has = |name: &str| requirements.iter().any(|requirement| requirement.policy.as_str() == name);
        if !has(policy) || has(by) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "policy {policy:?} is dropped by callers of {by:?}, which is no policy of the same layer: add it, or change `fair`"
        )))
    }
}

impl fmt::Debug for RatioStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tick, report, shards, .. } = self;
        let mut settings = f.debug_struct("RatioStoreBuilder");
        settings.field("tick", tick).field("ttl", &self.ratio_life()).field("report", report).field("shards", shards);
        settings.finish_non_exhaustive()
    }
}

pub(crate) fn check_tick(tick: Duration) -> Result<(), Error> {
    if (TICKS[0]..=TICKS[1]).contains(&tick) && tick.subsec_nanos().is_multiple_of(1_000_000) {
        return Ok(());
    }
    Err(Error::invalid(format!("a tick of {tick:?} is not allowed: use 100ms to 60s, in whole milliseconds")))
}

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
    Err(Error::invalid(format!("a ttl of {life:?} {is_wrong}: use {least:?} to {most:?}")))
}

pub(crate) fn check_report(counters: u64) -> Result<usize, Error> {
    let checked = usize::try_from(counters).ok().filter(|counters| (1..=MAX_REPORT).contains(counters));
    checked.ok_or_else(|| Error::invalid(format!("a report of {counters} counters is not allowed: use 1 to 512")))
}

pub(crate) fn check_shards(shards: u64) -> Result<u8, Error> {
    let checked = u8::try_from(shards).ok().filter(|shards| (1..=MAX_SHARDS).contains(shards));
    checked.ok_or_else(|| Error::invalid(format!("{shards} shards are not allowed: use 1 to 16")))
}

pub(crate) fn check_policy(requirement: &Requirement<'_>, tick: Option<Duration>) -> Result<(), Error> {
    let Requirement { policy, quota, settles, bans, .. } = requirement;
    let (name, tick) = (policy.as_str(), tick.unwrap_or(DEFAULT_TICK));
    check_quota(policy, quota)?;
    let text = if *settles == Settles::ByOutcome {
        format!("policy {name:?} settles units by the outcome, and a ratio refunds none: use another store for it")
    } else if *bans {
        format!("policy {name:?} has a ban, which this store does not have: choose another store")
    } else if u128::from(quota.limit()) * tick.as_micros() < u128::from(MIN_UNITS) * quota.window().as_micros() {
        format!(
            "policy {name:?} admits fewer than {MIN_UNITS} units in a tick of {tick:?}, too few for a ratio: use a \
             longer tick, or use another store"
        )
    } else {
        return Ok(());
    };
    Err(Error::invalid(text))
}

pub(super) fn check_quota(policy: &PolicyName, quota: &Quota) -> Result<(), Error> {
    let (name, algorithm, window) = (policy.as_str(), quota.algorithm().as_str(), quota.window());
    let text = if !has_ratio(quota.algorithm()) {
        format!("policy {name:?} counts by a {algorithm}, which has no ratio: use a token bucket, or another store")
    } else if window > MAX_WINDOW {
        format!(
            "policy {name:?} has a window of {window:?}, and ratios are of rates: it must be at most 60s, or use another store"
        )
    } else {
        return Ok(());
    };
    Err(Error::invalid(text))
}

/// Returns `true` if many processes keep the limit together when each allows a share of its offered requests: the limit
/// must be on all requests over time, not on each unit, a queue or slots.
fn has_ratio(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::TokenBucket)
}
