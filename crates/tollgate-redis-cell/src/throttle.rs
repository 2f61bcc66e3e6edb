//! The command `CL.THROTTLE`, its bounds, and its reply.
//!
//! The module takes `max_burst`, `count` and `period`, and computes the time between two units as a quotient of doubles
//! cut to whole nanoseconds. This file repeats the computation, because the module replies with times cut to whole
//! seconds, and with a number of units computed from a coarser interval. Both are corrected to the safe side: a wait is
//! never too short, and the remaining units are never more than possible.

use std::time::Duration;

use tollgate::deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd};
use tollgate::policy::Algorithm;
use tollgate::store::{Check, Requirement, Settles};
use tollgate::{Error, Outcome, Quota};

pub(crate) const OR_SCRIPTS: &str = ", or use a RedisStore";

/// Nanoseconds. The module's keys live for whole milliseconds, so a debt shorter than that is lost: if units returned
/// sooner, evenly spaced requests of up to twice the limit would pass.
const MIN_INTERVAL: u64 = 1_000_000;

/// Reply of the module:
///
/// 1. 1 if it denies, else 0; for a peek, 1 if the bucket is below empty;
/// 2. the capacity in units;
/// 3. the remaining units, at times more than there are;
/// 4. seconds, rounded down, until the cost is allowed; -1 if it is, or never will be;
/// 5. seconds, rounded down, until the bucket is full.
type ThrottleReply = (i64, i64, i64, i64, i64);

pub(crate) fn supports(requirements: &[Requirement<'_>]) -> Result<(), Error> {
    if let [_, second, ..] = requirements {
        return Err(Error::invalid(format!(
            "redis-cell decides one policy a request, and {:?} is another: use one{OR_SCRIPTS}",
            second.policy.as_str()
        )));
    }
    requirements.iter().try_for_each(|one| {
        interval(one.quota, one.bans, one.reserves, one.settles)
            .map(drop)
            .map_err(|error| Error::invalid(format!("policy {:?}: {error}", one.policy.as_str())))
    })
}

/// Nanoseconds between two units, as the module computes them: at least 1,000,000.
///
/// All numbers then fit the module's signed 64 bits: a bucket is full again in less than 2^41 milliseconds, so the
/// latest time it counts to is less than 70 years from now, in nanoseconds.
///
/// # Errors
///
/// [Invalid](Error::is_invalid) if the module cannot count the quota, ban, keep a floor or refund.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the module takes this quotient of doubles, and cuts it to whole nanoseconds"
)]
fn interval(quota: &Quota, bans: bool, reserves: bool, settles: Settles) -> Result<u64, Error> {
    let (limit, window) = (quota.limit(), quota.window());
    let interval = ((window.as_secs().saturating_mul(1_000_000_000)) as f64 / limit as f64) as u64;
    let text = if quota.algorithm() != Algorithm::TokenBucket {
        format!("redis-cell has no {}: use a token bucket (gcra)", quota.algorithm())
    } else if window.subsec_nanos() != 0 {
        format!("redis-cell counts in whole seconds, not in {window:?}: use whole seconds")
    } else if interval < MIN_INTERVAL {
        format!("limit {limit} over {window:?} is beyond redis-cell: it must be at most 1000 a second")
    } else if bans {
        "redis-cell bans no keys: remove the ban".to_owned()
    } else if reserves {
        "redis-cell keeps no reserve: remove it".to_owned()
    } else if settles == Settles::ByOutcome {
        let all = "remove count, metered and refund_dropped, and leases around the store";
        format!("redis-cell neither gives units back nor charges them later: {all}")
    } else {
        return Ok(interval);
    };
    Err(Error::invalid(text + OR_SCRIPTS))
}

pub(crate) struct Throttle {
    pub(crate) check: Check,
    interval: u64,
    key: String,
}

impl Throttle {
    pub(crate) fn new(key: String, check: Check) -> Result<Self, Error> {
        let interval = interval(check.counter.quota(), check.ban.is_some(), check.floor > 0, check.settles)?;
        Ok(Self { check, interval, key })
    }

    fn capacity(&self) -> u64 {
        self.check.counter.quota().capacity()
    }

    /// A cost above the capacity only peeks, because it is always denied, and the module's product of units and
    /// nanoseconds would overflow.
    fn quantity(&self) -> u64 {
        if self.check.cost > self.capacity() { 0 } else { self.check.cost }
    }

    /// The module counts the immediate unit in addition to the burst.
    pub(crate) fn command(&self) -> Cmd {
        let quota = self.check.counter.quota();
        let numbers = [self.capacity() - 1, quota.limit(), quota.window().as_secs(), self.quantity()];
        cmd("CL.THROTTLE").arg(&self.key).arg(&numbers).take()
    }

    /// Rounds times up to the next second, except where the interval between units is known exactly.
    pub(crate) fn outcome(&self, reply: Value) -> Result<Outcome, Error> {
        const NO_DECISION: &str = "the reply of Redis to CL.THROTTLE is not a decision";
        let reply = ThrottleReply::from_redis_value(reply).map_err(|error| Error::store(NO_DECISION, error))?;
        let (limited, found, remaining, retry_after, reset_after) = reply;
        let (cost, capacity) = (self.check.cost, self.capacity());
        if !matches!(limited, 0 | 1) || u64::try_from(found) != Ok(capacity) {
            return Err(Error::store(NO_DECISION, format!("{reply:?} for a capacity of {capacity}")));
        }
        let (is_limited, remaining) = (limited == 1, self.remaining(remaining));
        let outcome = if cost > capacity {
            Outcome::denied(&self.check, remaining, None)
        } else if cost > 0 && is_limited {
            Outcome::denied(&self.check, remaining, Some(rounded_up(retry_after)))
        } else {
            Outcome::allowed(&self.check, remaining)
        };
        Ok(outcome.with_reset_after(if reset_after <= 0 && remaining == capacity {
            Duration::ZERO
        } else if is_limited {
            rounded_up(reset_after)
        } else {
            // An empty bucket is full within the time that the whole capacity takes.
            rounded_up(reset_after).min(Duration::from_nanos(capacity.saturating_mul(self.interval)))
        }))
    }

    /// The most units that can have been left.
    ///
    /// The module divides by whole microseconds, and so reports too many units if the interval is not whole
    /// microseconds. With `r` reported and the interval `i` in nanoseconds, fewer than
    /// `(r + 1) * floor(i / 1000) * 1000` nanoseconds were left.
    fn remaining(&self, reported: i64) -> u64 {
        let (reported, interval) = (u128::try_from(reported).unwrap_or(0), u128::from(self.interval));
        let most = ((reported + 1) * (interval / 1_000 * 1_000) - 1) / interval;
        u64::try_from(most.min(reported)).unwrap_or(u64::MAX).min(self.capacity())
    }
}

fn rounded_up(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use tollgate::Key;
    use tollgate::store::Counter;

    use super::*;

    fn sent((limited, capacity, remaining, retry_after, reset_after): ThrottleReply) -> Value {
        Value::Array([limited, capacity, remaining, retry_after, reset_after].map(Value::Int).into())
    }

    fn throttle(quota: Quota, cost: u64) -> Throttle {
        let counter = Counter::new("policy".try_into().expect("a valid name"), Key::new("key", "ada"), quota);
        Throttle::new("key".to_owned(), Check::new(counter, cost)).unwrap()
    }

    /// Whether it fits, what remains, when to retry and when all is there, in seconds.
    fn outcome(quota: Quota, cost: u64, reply: ThrottleReply) -> (bool, u64, Option<u64>, u64) {
        let outcome = throttle(quota, cost).outcome(sent(reply)).unwrap();
        let retry_after = outcome.retry_after().map(|wait| wait.as_secs());
        (outcome.is_allowed(), outcome.remaining(), retry_after, outcome.reset_after().as_secs())
    }

    #[test]
    fn times_are_rounded_up_and_a_denial_always_waits() {
        let quota = Quota::per_minute(10);
        assert_eq!(outcome(quota, 3, (0, 10, 7, -1, 18)), (true, 7, None, 19));
        assert_eq!(outcome(quota, 10, (0, 10, 0, -1, 60)), (true, 0, None, 60), "not above all of it");
        assert_eq!(outcome(quota, 1, (1, 10, 0, 0, 54)), (false, 0, Some(1), 55));
        assert_eq!(outcome(quota, 8, (1, 10, 7, 5, 17)), (false, 7, Some(6), 18));
        assert_eq!(outcome(Quota::per_hour(10), 1, (1, 10, 0, 0, 0)), (false, 0, Some(1), 1));
    }

    #[test]
    fn a_peek_fits_also_in_a_bucket_with_a_debt() {
        let quota = Quota::per_minute(10);
        assert_eq!(outcome(quota, 0, (0, 10, 10, -1, 0)), (true, 10, None, 0));
        assert_eq!(outcome(quota, 0, (1, 10, 0, 4, 64)), (true, 0, None, 65));
    }

    #[test]
    fn a_cost_above_the_capacity_never_fits_and_is_not_sent() {
        let quota = Quota::per_minute(10);
        for cost in [11, 1 << 40, u64::MAX] {
            assert_eq!(throttle(quota, cost).quantity(), 0);
            assert_eq!(outcome(quota, cost, (0, 10, 7, -1, 17)), (false, 7, None, 18));
        }
    }

    #[test]
    fn what_remains_is_right_where_the_module_cuts_its_interval() {
        let quota = Quota::per_minute(54_000);
        // Units are 1,111,111 ns apart, by the module's division 1,111,000.
        assert_eq!(outcome(quota, 1, (0, 54_000, 54_004, -1, 0)).1, 53_999);
        assert_eq!(outcome(quota, 30_000, (0, 54_000, 24_002, -1, 33)).1, 24_000);
        assert_eq!(outcome(Quota::per_second(3), 1, (0, 3, 2, -1, 0)).1, 2);
        assert_eq!(outcome(Quota::per_second(7), 1, (0, 7, 6, -1, 0)).1, 6);
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        let throttle = throttle(Quota::per_minute(10), 1);
        for reply in [(2, 10, 9, -1, 6), (-1, 10, 9, -1, 6), (0, 11, 9, -1, 6), (0, -1, 9, -1, 6)] {
            assert!(throttle.outcome(sent(reply)).is_err_and(|error| error.is_store()), "{reply:?}");
        }
        assert!(throttle.outcome(Value::Okay).is_err_and(|error| error.is_store()));
    }

    const MAX_PERIOD: Duration = Duration::from_secs((1 << 41) / 1_000);

    fn emission_interval(quota: &Quota) -> Result<u64, Error> {
        interval(quota, false, false, Settles::default())
    }

    #[test]
    fn the_largest_quotas_stay_within_64_bits_to_the_end_of_the_century() {
        let year_2100 = 4_102_444_800 * 1_000_000_000_i64;
        let longest = Quota::token_bucket(1, MAX_PERIOD);
        for limit in [1, 2, 999, 1_000, 1_000_000, 31_622_400_000] {
            let windows = [1, 60, 61, 3_600, 86_400 * 365, 86_400 * 366, MAX_PERIOD.as_secs()];
            for window in windows.into_iter().filter(|window| limit <= 1_000 * window) {
                let Ok(quota) = Quota::try_token_bucket(limit, Duration::from_secs(window)) else { continue };
                let most = (0..52).rev().find_map(|bits| quota.try_burst(1 << bits).ok()).unwrap_or(quota);
                let interval = emission_interval(&most).unwrap();
                let full = i64::try_from(most.capacity() * interval).unwrap();
                // The units that are counted, and at most one more capacity on top.
                assert!(year_2100.checked_add(full).and_then(|time| time.checked_add(full)).is_some(), "{most}");
            }
        }
        assert!(emission_interval(&longest).is_ok());
    }

    #[test]
    fn the_interval_is_the_modules() {
        let interval =
            |limit, seconds| emission_interval(&Quota::token_bucket(limit, Duration::from_secs(seconds))).unwrap();
        assert_eq!(interval(10, 60), 6_000_000_000);
        assert_eq!(interval(3, 1), 333_333_333);
        assert_eq!(interval(1_000, 1), 1_000_000);
    }
}
