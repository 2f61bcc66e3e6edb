//! Bans: a key that is denied too often within a window is denied altogether for a while.
//!
//! Arithmetic is exact for the numbers of any [`Ban`] that can be built. [`algorithm::ban`](super::algorithm::ban)
//! applies bans to the state of a key.

use std::time::Duration;

use super::Error;
use super::error::built;

/// Bound of a ban and of its window, in milliseconds: 366 days.
const MAX_MILLIS: u128 = 366 * 86_400_000;

/// A ban: after a number of denials within a window, the key is denied for a time.
///
/// A denial by the quota is a *strike*, in shadow mode too. The window begins with the first strike outside of one. The
/// strike that completes the number begins the ban, and strikes start again from 0. During the ban each request is
/// denied, even a peek, and takes nothing. `Retry-After` is the end of the ban. A denial during a ban is no strike and
/// does not lengthen the ban, unless [`extending`](Self::extending) is set. Denials by other policies, by lists or for
/// a missing key are no strikes.
///
/// A ban always has that many strikes within one window. The reverse does not hold: up to 2 × `after` - 2 strikes
/// across two windows begin no ban.
///
/// All times are whole milliseconds. The rest of a ban is rounded up.
///
/// With the feature `serde` it is data for logs: `after`, `within_seconds`, `duration_seconds` and `max_seconds`.
///
/// # Who is banned
///
/// Every client with the key. A ban denies all clients behind one NAT, and all clients behind a proxy that the server
/// does not trust: set the trusted proxies first. A client that may choose its key could get the key of another client
/// banned, so a layer does not build with such a policy: see [`Policy::ban`](crate::Policy::ban). Counters that several
/// clients share because their keys are missing, ambiguous or could not be looked up are never banned.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Ban;
///
/// const MINUTE: Duration = Duration::from_secs(60);
/// // 10 denials within 5 minutes: banned for a minute, then for 2, 4, ... and never for more than an hour.
/// let ban = Ban::new(10, 5 * MINUTE, MINUTE).backoff(2.0, 60 * MINUTE);
/// assert_eq!(ban.duration(), MINUTE);
/// assert!(Ban::try_new(0, 5 * MINUTE, MINUTE).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Ban {
    pub(super) after: u32,
    /// Factor from one ban to the next, in thousandths.
    pub(super) growth: u32,
    /// Milliseconds.
    pub(super) within: u64,
    /// Milliseconds.
    pub(super) time: u64,
    /// Milliseconds.
    pub(super) most: u64,
    pub(crate) extends: bool,
    pub(crate) verified: bool,
    pub(crate) layer: bool,
}

impl Ban {
    /// A ban for `duration`, after `after` strikes within `within`.
    ///
    /// # Panics
    ///
    /// If [`try_new`](Self::try_new) returns an error. In a constant it does not compile.
    #[track_caller]
    pub const fn new(after: u32, within: Duration, duration: Duration) -> Self {
        match Self::checked(after, within, duration) {
            Ok(ban) => ban,
            Err(fault) => panic!("{}", fault),
        }
    }

    /// Fallible version of [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// If `after` is 0 or more than 100,000, or one of the times is 0, longer than 366 days, or not a whole number of
    /// milliseconds.
    pub fn try_new(after: u32, within: Duration, duration: Duration) -> Result<Self, Error> {
        Self::checked(after, within, duration).map_err(Error::invalid)
    }

    /// Makes each ban longer than the last one by a factor, and none longer than `max`.
    ///
    /// A key that was not banned for `max` after the end of its last ban begins with the first time again.
    ///
    /// # Panics
    ///
    /// If [`try_backoff`](Self::try_backoff) returns an error.
    #[track_caller]
    pub fn backoff(self, factor: f64, max: Duration) -> Self {
        built(self.try_backoff(factor, max))
    }

    /// Fallible version of [`backoff`](Self::backoff).
    ///
    /// # Errors
    ///
    /// If the factor is less than 1 or more than 100, or `max` is shorter than the first ban, longer than 366 days, or
    /// not a whole number of milliseconds.
    pub fn try_backoff(self, factor: f64, max: Duration) -> Result<Self, Error> {
        if !(1.0..=100.0).contains(&factor) {
            return Err(Error::invalid(format!("backoff must be from 1 to 100, not {factor}")));
        }
        let longest = millis(max).filter(|max| *max >= self.time).ok_or_else(|| {
            let (first, given) = (self.duration(), max);
            Error::invalid(format!(
                "the longest ban must be whole milliseconds, from the first of {first:?} to 366 days, not {given:?}"
            ))
        })?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 1,000 to 100,000")]
        let growth = (factor * 1_000.0).round() as u32;
        Ok(Self { growth, most: longest, ..self })
    }

    /// Restarts the time of a ban with each denial during the ban.
    ///
    /// A client that does not wait is then denied for good. A ban by [failures](crate::Policy::ban_failures) cannot be
    /// extended, because a denial is no failure: the layer does not build.
    pub const fn extending(self) -> Self {
        Self { extends: true, ..self }
    }

    /// Denies a banned key on the whole layer, even requests that the policy's methods, routes or
    /// [`when`](crate::Policy::when) exclude.
    ///
    /// Only requests that the policy applies to are strikes. Clients on the policy's allow list are not denied. A request
    /// whose key is ambiguous is denied with 400. The decision on any other request checks whether its key is banned. So
    /// the layer calls its store on routes without policies, too, and on a Redis Cluster policies by other keys are
    /// decided at the same time on several servers. The policy is among the outcomes of such a decision, and headers show it only in a denial.
    ///
    /// In a [`Limiter`](crate::Limiter) each rule applies to each key, so every ban is like this.
    pub const fn whole_layer(self) -> Self {
        Self { layer: true, ..self }
    }

    /// Declares that the keys of the policy are verified before requests reach the layer, such as by a gateway that
    /// checks a token, so no client can send the key of another client.
    ///
    /// A ban by a key that clients choose is an error without this. It does not make a ban acceptable by an address in
    /// a header that anyone may write: see [`KeyInfo`](crate::key::KeyInfo::unforgeable).
    pub const fn of_verified_keys(self) -> Self {
        Self { verified: true, ..self }
    }

    /// Returns the number of strikes that begin a ban.
    pub const fn after(&self) -> u32 {
        self.after
    }

    /// Returns the window within which strikes are counted.
    pub const fn within(&self) -> Duration {
        Duration::from_millis(self.within)
    }

    /// Returns the duration of the first ban.
    pub const fn duration(&self) -> Duration {
        Duration::from_millis(self.time)
    }

    /// Returns the longest duration of a ban.
    pub const fn max(&self) -> Duration {
        Duration::from_millis(self.most)
    }

    pub(crate) const fn packed(&self) -> [u64; 3] {
        let limit = self.time << 18 | (self.after as u64) << 1 | self.extends as u64;
        [self.within, limit, (self.growth as u64) << 35 | self.most]
    }

    pub(crate) const fn unpacked([within, limit, capacity]: [u64; 3]) -> Self {
        let (after, growth) = ((limit >> 1 & 0x1_ffff) as u32, (capacity >> 35) as u32);
        let (time, most) = (limit >> 18, capacity & ((1 << 35) - 1));
        Self { after, growth, within, time, most, extends: limit & 1 == 1, verified: false, layer: false }
    }

    const fn checked(after: u32, within: Duration, time: Duration) -> Result<Self, &'static str> {
        if after == 0 || after > 100_000 {
            return Err("after must be from 1 to 100000 strikes");
        }
        let Some(within) = millis(within) else {
            return Err("within must be whole milliseconds, from 1ms to 366 days");
        };
        let Some(time) = millis(time) else {
            return Err("duration must be whole milliseconds, from 1ms to 366 days");
        };
        Ok(Self { after, growth: 1_000, within, time, most: time, extends: false, verified: false, layer: false })
    }
}

#[allow(clippy::cast_possible_truncation, reason = "it was compared")]
const fn millis(time: Duration) -> Option<u64> {
    let is_valid = !time.is_zero() && time.as_millis() <= MAX_MILLIS && time.subsec_nanos().is_multiple_of(1_000_000);
    if is_valid { Some(time.as_millis() as u64) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const DAYS: Duration = Duration::from_secs(366 * 86_400);

    #[test]
    fn what_can_never_work_is_an_error_that_says_what_to_give() {
        let (second, uneven) = (Duration::from_secs(1), Duration::from_micros(1_500));
        let of = Ban::try_new;
        let grows = |factor, most| Ban::new(3, MINUTE, 10 * MINUTE).try_backoff(factor, most);
        for (ban, message) in [
            (of(0, MINUTE, MINUTE), "after must be from 1 to 100000 strikes"),
            (of(100_001, MINUTE, MINUTE), "after must be from 1 to 100000 strikes"),
            (of(1, uneven, MINUTE), "within must be whole milliseconds, from 1ms to 366 days"),
            (of(1, DAYS + second, MINUTE), "within must be whole milliseconds, from 1ms to 366 days"),
            (of(1, MINUTE, Duration::ZERO), "duration must be whole milliseconds, from 1ms to 366 days"),
            (of(1, MINUTE, Duration::MAX), "duration must be whole milliseconds, from 1ms to 366 days"),
            (grows(0.5, 20 * MINUTE), "backoff must be from 1 to 100, not 0.5"),
            (grows(f64::NAN, 20 * MINUTE), "backoff must be from 1 to 100, not NaN"),
            (
                grows(2.0, 5 * MINUTE),
                "the longest ban must be whole milliseconds, from the first of 600s to 366 days, not 300s",
            ),
        ] {
            assert_eq!(ban.expect_err(message).to_string(), message);
        }
    }

    #[test]
    fn the_numbers_of_the_largest_ban_are_exact_in_lua() {
        let ban = Ban::new(100_000, DAYS, DAYS).backoff(100.0, DAYS).extending();
        assert!(ban.packed().iter().all(|number| *number < 1 << 53));
        assert_eq!(Ban::unpacked(ban.packed()), ban);
    }
}
