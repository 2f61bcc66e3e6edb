//! The command `CL.THROTTLE`, and how its reply is read.
//!
//! The module replies with times in whole seconds, cut off, and with a number of units computed
//! from a coarser interval. Both are corrected here towards the safe side: a wait is never too
//! short, and what remains is never more than it can be. Costs and capacities that would overflow
//! in the module are not sent.

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd};

use super::rate::{Rate, no_ban, no_floor, no_return};
use crate::core::algorithm::{Found, NEVER, Step};
use crate::core::error::Kind;
use crate::core::{Error, Quota};
use crate::store::{Check, Settles};

/// The module's reply:
///
/// 1. whether it refuses: 0 or 1;
/// 2. the capacity in units;
/// 3. the units that remain;
/// 4. seconds, cut off, until the cost would be admitted; -1 if it is, or never will be;
/// 5. seconds, cut off, until the bucket is full.
type Reply = (i64, i64, i64, i64, i64);

/// One check as a command.
pub(super) struct Throttle {
    /// The quota in the module's terms.
    rate: Rate,
    /// The name of the key in Redis, prefix included.
    key: String,
    /// Units to take; 0 only looks.
    quantity: u64,
}

impl Throttle {
    /// The command for a check whose counter has this key in Redis.
    ///
    /// A cost above the capacity only looks: it is refused whatever the state is, and the module's
    /// product of units and nanoseconds would overflow.
    ///
    /// # Errors
    ///
    /// [Invalid](Error::is_invalid) if the module cannot count the quota, keep a floor or refund.
    pub(super) fn of(key: String, check: &Check) -> Result<Self, Error> {
        if check.floor > 0 {
            return Err(no_floor());
        }
        if check.settles == Settles::ByOutcome {
            return Err(no_return());
        }
        if check.ban.is_some() {
            return Err(no_ban());
        }
        let quota = check.counter.quota();
        let quantity = if check.cost > quota.capacity() { 0 } else { check.cost };
        Ok(Self { rate: Rate::of(quota)?, key, quantity })
    }

    /// The command, with the key and the four numbers that the module takes.
    pub(super) fn command(&self) -> Cmd {
        let Rate { max_burst, count, period, .. } = self.rate;
        cmd("CL.THROTTLE").arg(&self.key).arg(&[max_burst, count, period, self.quantity]).take()
    }

    /// Converts the reply to a decision of the check, in ticks of its quota.
    ///
    /// A look fits whatever remains; a cost above the capacity never fits. Times are rounded up to
    /// the next second, except where the interval between units is known exactly.
    ///
    /// # Errors
    ///
    /// [`is_store`](Error::is_store) if the reply is no decision about this quota: not five numbers, another
    /// capacity, or a first number other than 0 and 1.
    pub(super) fn step(&self, check: &Check, reply: Value) -> Result<Step, Error> {
        let quota = check.counter.quota();
        let reply = Reply::from_redis_value(reply).map_err(|error| no_decision().with_source(error))?;
        let (limited, capacity, remaining, retry_after, reset_after) = reply;
        if !matches!(limited, 0 | 1) || u64::try_from(capacity) != Ok(quota.capacity()) {
            return Err(no_decision());
        }
        let reply = Numbers { limited: limited == 1, remaining, retry_after, reset_after };
        let remaining = self.remaining(quota, reply.remaining);
        let fits = check.cost == 0 || (check.cost <= quota.capacity() && !reply.limited);
        let wait = match (fits, remaining) {
            (true, 1..) => 0,
            (true, 0) if reply.limited => reply.until_admitted(quota) + self.unit(quota),
            (true, 0) => self.unit(quota),
            (false, _) if check.cost > quota.capacity() => NEVER,
            (false, _) => reply.until_admitted(quota),
        };
        let reset = self.reset(quota, &reply, remaining);
        Ok(Step { fits, remaining, wait, reset, delay: 0, stamp: 0, state: None, found: Found::Kept })
    }

    /// Returns the most units that can have been left.
    ///
    /// The module divides by whole microseconds, and so finds more than there is where the interval
    /// is not a whole number of them. With `r` reported and the interval `i` in nanoseconds, fewer
    /// than `(r + 1) * floor(i / 1000) * 1000` nanoseconds were left.
    fn remaining(&self, quota: &Quota, reported: i64) -> u64 {
        let reported = u128::try_from(reported).unwrap_or(0);
        let interval = u128::from(self.rate.interval);
        let most = ((reported + 1) * (interval / 1_000 * 1_000) - 1) / interval;
        u64::try_from(most.min(reported)).map_or(quota.capacity(), |most| most.min(quota.capacity()))
    }

    /// Returns the ticks until the bucket is full. After taking something it is full within the
    /// time that the whole capacity takes.
    fn reset(&self, quota: &Quota, reply: &Numbers, remaining: u64) -> u64 {
        if reply.reset_after <= 0 && remaining == quota.capacity() {
            return 0;
        }
        let reset = rounded_up(quota, reply.reset_after);
        if reply.limited || self.quantity == 0 {
            return reset;
        }
        reset.min(ticks(quota, (self.rate.max_burst + 1).saturating_mul(self.rate.interval)))
    }

    /// Returns the time in which a unit returns, in ticks, rounded up.
    fn unit(&self, quota: &Quota) -> u64 {
        ticks(quota, self.rate.interval)
    }
}

/// The numbers of a [`Reply`] that are times or units.
struct Numbers {
    /// Whether the module refuses; of a look, whether the bucket holds less than nothing.
    limited: bool,
    /// Units, as the module computes them: at times more than there are.
    remaining: i64,
    /// Seconds, cut off, until the cost would be admitted; -1 if it is.
    retry_after: i64,
    /// Seconds, cut off, until the bucket is full.
    reset_after: i64,
}

impl Numbers {
    /// Returns the ticks until the cost would be admitted, rounded up to a second.
    fn until_admitted(&self, quota: &Quota) -> u64 {
        rounded_up(quota, self.retry_after)
    }
}

/// Converts seconds whose fraction was cut off to ticks: the least that is enough for certain,
/// which is the next whole second.
fn rounded_up(quota: &Quota, seconds: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or(0).saturating_add(1);
    seconds.saturating_mul(1_000_000 / quota.tick().micros())
}

/// Converts nanoseconds to ticks, rounded up.
fn ticks(quota: &Quota, nanoseconds: u64) -> u64 {
    nanoseconds.div_ceil(quota.tick().micros() * 1_000)
}

fn no_decision() -> Error {
    Error::new(Kind::Store, "the reply of Redis to CL.THROTTLE is not a decision")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Key;
    use crate::store::Counter;

    fn sent((limited, capacity, remaining, retry_after, reset_after): Reply) -> Value {
        Value::Array([limited, capacity, remaining, retry_after, reset_after].map(Value::Int).into())
    }

    fn step(quota: Quota, cost: u64, reply: Reply) -> (bool, u64, u64, u64) {
        let check =
            Check::new(Counter::new("policy".try_into().expect("a valid name"), Key::new("key", "ada"), quota), cost);
        let step = Throttle::of("key".to_owned(), &check).unwrap().step(&check, sent(reply)).unwrap();
        (step.fits, step.remaining, step.wait, step.reset)
    }

    #[test]
    fn times_are_rounded_up_and_a_refusal_always_waits() {
        let quota = Quota::per_minute(10);
        let second = 1_000_000;
        assert_eq!(step(quota, 3, (0, 10, 7, -1, 18)), (true, 7, 0, 19 * second));
        assert_eq!(step(quota, 10, (0, 10, 0, -1, 60)), (true, 0, 6 * second, 60 * second), "not above all of it");
        assert_eq!(step(quota, 1, (1, 10, 0, 0, 54)), (false, 0, second, 55 * second));
        assert_eq!(step(quota, 8, (1, 10, 7, 5, 17)), (false, 7, 6 * second, 18 * second));
        assert_eq!(step(Quota::per_hour(10), 1, (1, 10, 0, 0, 0)), (false, 0, 1_000, 1_000), "in milliseconds");
    }

    #[test]
    fn a_look_fits_also_in_a_bucket_with_a_debt() {
        let quota = Quota::per_minute(10);
        assert_eq!(step(quota, 0, (0, 10, 10, -1, 0)), (true, 10, 0, 0));
        assert_eq!(step(quota, 0, (1, 10, 0, 4, 64)), (true, 0, 11_000_000, 65_000_000));
    }

    #[test]
    fn a_cost_above_the_capacity_never_fits_and_is_not_sent() {
        let quota = Quota::per_minute(10);
        for cost in [11, 1 << 40, u64::MAX] {
            assert_eq!(step(quota, cost, (0, 10, 7, -1, 17)), (false, 7, NEVER, 18_000_000));
        }
    }

    #[test]
    fn what_remains_is_right_where_the_module_cuts_its_interval() {
        let quota = Quota::per_minute(54_000);
        // Units are 1,111,111 ns apart, by the module's division 1,111,000.
        assert_eq!(step(quota, 1, (0, 54_000, 54_004, -1, 0)).1, 53_999);
        assert_eq!(step(quota, 30_000, (0, 54_000, 24_002, -1, 33)).1, 24_000);
        assert_eq!(step(Quota::per_second(3), 1, (0, 3, 2, -1, 0)).1, 2);
        assert_eq!(step(Quota::per_second(7), 1, (0, 7, 6, -1, 0)).1, 6);
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        let check = Check::new(
            Counter::new("policy".try_into().expect("a valid name"), Key::new("key", "ada"), Quota::per_minute(10)),
            1,
        );
        let throttle = Throttle::of("key".to_owned(), &check).unwrap();
        for reply in [(2, 10, 9, -1, 6), (-1, 10, 9, -1, 6), (0, 11, 9, -1, 6), (0, -1, 9, -1, 6)] {
            assert!(throttle.step(&check, sent(reply)).is_err_and(|error| error.is_store()), "{reply:?}");
        }
    }
}
