//! Quotas in the terms of redis-cell, and the policies that it cannot decide.
//!
//! The module takes `max_burst`, `count` and `period`, and computes the time between two units by
//! itself, as a quotient of doubles cut to whole nanoseconds. The same computation is made here, as
//! times that the module reports only in whole seconds follow from it.
//!
//! All that the module cannot do is refused when a layer is built, by an error that contains what to
//! change; the checks of a tier's quota are refused the same way when they are made.

use crate::core::{Error, Quota, Requirement};
use crate::store::Settles;

/// The shortest time between two units, in nanoseconds.
///
/// The module's keys live for whole milliseconds, so what is due in less is forgotten: with units
/// that return sooner, evenly spaced requests of up to twice the limit would pass.
const SHORTEST_INTERVAL: u64 = 1_000_000;

/// A token bucket in the module's terms.
///
/// All of it is within the module's signed 64 bits: a quota's bucket is full again in less than
/// 2^41 milliseconds, so the latest time it counts to is less than 70 years from now, in
/// nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// The capacity in units, less one: the module counts the unit that is there at once beside the
    /// burst.
    pub(super) max_burst: u64,
    /// Units that return in each `period`: the quota's limit.
    pub(super) count: u64,
    /// The quota's window, in seconds.
    pub(super) period: u64,
    /// Nanoseconds between two units, as the module computes them: at least 1,000,000.
    pub(super) interval: u64,
}

impl Rate {
    /// Translates a quota.
    ///
    /// # Errors
    ///
    /// [Invalid](Error::is_invalid) if it is no token bucket, its window is not whole seconds, or
    /// it has more than 1,000 units a second.
    pub(super) fn of(quota: &Quota) -> Result<Self, Error> {
        let (limit, window) = (quota.limit(), quota.window());
        if !quota.facts().is_gcra {
            let name = quota.algorithm().name();
            return Err(Error::invalid(format!("redis-cell has no {name}: give a token bucket (gcra){OR_SCRIPTS}")));
        }
        if window.subsec_nanos() != 0 {
            let text =
                format!("redis-cell counts in whole seconds, not in {window:?}: give a window of some{OR_SCRIPTS}");
            return Err(Error::invalid(text));
        }
        let rate = Self {
            max_burst: quota.capacity() - 1,
            count: limit,
            period: window.as_secs(),
            interval: interval(window.as_secs(), limit),
        };
        if rate.interval < SHORTEST_INTERVAL {
            let text = format!("limit {limit} over {window:?} is beyond redis-cell: give at most 1000 a second");
            return Err(Error::invalid(text + OR_SCRIPTS));
        }
        Ok(rate)
    }
}

/// The end of each error: the store that can do it.
pub(super) const OR_SCRIPTS: &str = ", or take a RedisStore";

/// Returns `period / count` in nanoseconds, computed as the module does.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the module takes this quotient of doubles, and cuts it to whole nanoseconds"
)]
fn interval(period: u64, count: u64) -> u64 {
    ((period * 1_000_000_000) as f64 / count as f64) as u64
}

/// Checks that the module can decide all these policies for one request.
///
/// # Errors
///
/// [Invalid](Error::is_invalid), with the name of the policy and what to change.
pub(super) fn supports(requirements: &[Requirement<'_>]) -> Result<(), Error> {
    if let [_, second, ..] = requirements {
        return Err(Error::invalid(format!(
            "redis-cell decides one policy a request, and {:?} is another: give one{OR_SCRIPTS}",
            second.policy.as_str()
        )));
    }
    requirements.iter().try_for_each(|one| {
        supports_one(one).map_err(|error| Error::invalid(format!("policy {:?}: {error}", one.policy.as_str())))
    })
}

/// Checks one policy; errors do not name it.
fn supports_one(required: &Requirement<'_>) -> Result<(), Error> {
    Rate::of(required.quota)?;
    if required.bans {
        return Err(no_ban());
    }
    if required.reserves {
        return Err(no_floor());
    }
    if required.settles == Settles::ByOutcome { Err(no_return()) } else { Ok(()) }
}

/// The error of a policy with a reserve.
pub(super) fn no_floor() -> Error {
    Error::invalid(format!("redis-cell keeps no reserve: leave it out{OR_SCRIPTS}"))
}

/// The error of a policy with a ban.
pub(super) fn no_ban() -> Error {
    Error::invalid(format!("redis-cell bans no keys: leave it out{OR_SCRIPTS}"))
}

/// The error of a policy that refunds units or charges them later.
pub(super) fn no_return() -> Error {
    Error::invalid(format!(
        "redis-cell neither gives units back nor charges them later: leave out count, metered and refund_dropped, and \
         leases around the store{OR_SCRIPTS}"
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LONGEST: Duration = Duration::from_secs((1 << 41) / 1_000);

    #[test]
    fn the_largest_quotas_stay_within_64_bits_to_the_end_of_the_century() {
        let year_2100 = 4_102_444_800 * 1_000_000_000_i64;
        let longest = Quota::token_bucket(1, LONGEST);
        for limit in [1, 2, 999, 1_000, 1_000_000, 31_622_400_000] {
            let windows = [1, 60, 61, 3_600, 86_400 * 365, 86_400 * 366, LONGEST.as_secs()];
            for window in windows.into_iter().filter(|window| limit <= 1_000 * window) {
                let Ok(quota) = Quota::try_token_bucket(limit, Duration::from_secs(window)) else { continue };
                let most = (0..52).rev().find_map(|bits| quota.try_burst(1 << bits).ok()).unwrap_or(quota);
                let rate = Rate::of(&most).unwrap();
                let full = i64::try_from((rate.max_burst + 1) * rate.interval).unwrap();
                // What is kept, and one more capacity on top before that is refused.
                assert!(year_2100.checked_add(full).and_then(|time| time.checked_add(full)).is_some(), "{most}");
            }
        }
        assert!(Rate::of(&longest).is_ok());
    }

    #[test]
    fn the_interval_is_the_modules() {
        let interval =
            |limit, seconds| Rate::of(&Quota::token_bucket(limit, Duration::from_secs(seconds))).unwrap().interval;
        assert_eq!(interval(10, 60), 6_000_000_000);
        assert_eq!(interval(3, 1), 333_333_333);
        assert_eq!(interval(1_000, 1), 1_000_000);
    }
}
