//! How much of a flood may be admitted, and must be.

use std::time::Duration;

use crate::app::{BURST, INSTANCES, REFILL};
use crate::case::{Case, Setup};
use crate::rig::Times;
use crate::sample::{By, Sample, User};

/// What must be served, of what an even flood is served on a machine that never stalls.
const SERVED: f64 = 0.8;

/// What was admitted of one user's flood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    by_redis: u32,
    by_fallback: u32,
    most_by_redis: f64,
    most_by_fallback: f64,
    pub(crate) least: f64,
}

impl Flood {
    pub(crate) fn of(user: u32, case: &Case, times: Times, recovery: Duration, samples: &[Sample]) -> Self {
        let admitted = |by: By| {
            let of_user = samples.iter().filter(|sample| sample.user == User::Flooding(user) && sample.is_by(by));
            of_user.map(|sample| u32::from(sample.is_allowed())).sum()
        };
        let sent = samples.iter().filter(|sample| sample.user == User::Flooding(user)).count();
        let losses = f64::from(case.losses);
        let all = span(samples.iter()).unwrap_or_default();
        let local = span(samples.iter().filter(|sample| sample.is_by(By::Fallback)));
        Self {
            by_redis: admitted(By::Redis),
            by_fallback: admitted(By::Fallback),
            // Each time Redis forgets, a bucket is full again.
            most_by_redis: f64::from(BURST) * (1.0 + losses) + refill(all),
            most_by_fallback: local.map_or(0.0, |local| share(f64::from(BURST) + refill(local)).ceil()),
            least: SERVED * least(case, times, recovery).min(sent as f64),
        }
    }

    pub(crate) fn admitted(&self) -> u32 {
        self.by_redis + self.by_fallback
    }

    pub(crate) fn most(&self) -> f64 {
        self.most_by_redis + self.most_by_fallback
    }

    /// What Redis and the fallback admit is bounded for each of them, and so for both.
    pub(crate) fn excess(&self) -> Option<String> {
        let kept =
            f64::from(self.by_redis) <= self.most_by_redis && f64::from(self.by_fallback) <= self.most_by_fallback;
        (!kept).then(|| format!("too much was admitted: {self:?}"))
    }

    pub(crate) fn shortage(&self) -> Option<String> {
        (f64::from(self.admitted()) < self.least).then(|| format!("too little was admitted: {self:?}"))
    }
}

/// The bucket at the start and what comes back to it; while Redis is away, what comes back to the
/// fallback's.
fn least(case: &Case, Times { start, begin, whole, end, .. }: Times, recovery: Duration) -> f64 {
    let begin = if case.setup == Setup::Outage { start } else { begin };
    let away = if case.is_outage { whole - begin + recovery } else { Duration::ZERO };
    f64::from(BURST) + refill((end - start).saturating_sub(away)) + share(refill(away))
}

fn refill(time: Duration) -> f64 {
    f64::from(REFILL) * time.as_secs_f64()
}

fn share(units: f64) -> f64 {
    units / f64::from(INSTANCES)
}

/// From the first to the last moment at which any of these was decided.
fn span<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> Option<Duration> {
    let first = samples.clone().map(|sample| sample.due).min()?;
    Some(samples.map(|sample| sample.done).max()? - first)
}
