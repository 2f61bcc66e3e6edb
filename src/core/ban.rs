//! Bans: how often a key may be refused, within which time, before it is refused altogether for a while.
//!
//! Settings come in; a [`Ban`] of numbers within which all arithmetic is exact goes out, or an error that says what to
//! change. What a ban does with the state of a key is in [`algorithm::ban`](super::algorithm::ban).

use std::time::Duration;

use super::Error;
use super::error::built;

/// The longest time of a ban and of its window, in milliseconds: 366 days.
const MAX_MILLIS: u128 = 366 * 86_400_000;

/// A ban: after so many refusals within a window, the key is refused for a time.
///
/// A refusal by the quota is a *strike*, in shadow mode too. The window begins with the first strike outside of one.
/// The strike that completes the number begins the ban, and the strikes start anew. While it lasts, each request is
/// refused, a look too, and takes nothing; `Retry-After` is the end of the ban. A refusal during a ban is no strike and
/// does not lengthen it, unless [`extending`](Self::extending) is set. Refusals by other policies, by lists or for a
/// missing key are no strikes.
///
/// There is never a ban without that many strikes within one window. The reverse does not hold: up to
/// 2 × `after` - 2 strikes that lie across two windows begin no ban.
///
/// All times are whole milliseconds, and what is left of a ban is rounded up to one.
///
/// With the feature `serde` it is data for logs: `after`, `within_seconds`, `duration_seconds` and `max_seconds`.
///
/// # Who is banned
///
/// Everybody who has the key. A ban refuses neighbours behind one NAT, and behind a proxy that the server does not
/// trust it refuses everybody: set the trusted proxies first. A client that may choose its key could have the key of
/// another one banned, so a layer refuses such a policy: see [`Policy::ban`](crate::Policy::ban). Counters that several
/// clients share because their keys are missing, ambiguous or could not be looked up are never banned.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Ban;
///
/// const MINUTE: Duration = Duration::from_secs(60);
/// // 10 refusals within 5 minutes: banned for a minute, then for 2, 4, ... and never for more than an hour.
/// let ban = Ban::new(10, 5 * MINUTE, MINUTE).backoff(2.0, 60 * MINUTE);
/// assert_eq!(ban.duration(), MINUTE);
/// assert!(Ban::try_new(0, 5 * MINUTE, MINUTE).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Ban {
    /// Strikes that begin a ban.
    pub(super) after: u32,
    /// How much longer each ban is than the last one, in thousandths.
    pub(super) growth: u32,
    /// The window of strikes, in milliseconds.
    pub(super) within: u64,
    /// The first ban, in milliseconds.
    pub(super) time: u64,
    /// The longest ban, in milliseconds.
    pub(super) most: u64,
    /// Whether a refusal during a ban begins its time anew.
    pub(crate) extends: bool,
    /// Whether keys that clients send are verified before.
    pub(crate) verified: bool,
    /// Whether a banned key is refused where the policy does not apply, too.
    pub(crate) layer: bool,
}

impl Ban {
    /// A ban for `duration`, after `after` strikes within `within`.
    ///
    /// # Panics
    ///
    /// Where [`try_new`](Self::try_new) returns an error; in a constant it does not compile.
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
    /// Where [`try_backoff`](Self::try_backoff) returns an error.
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

    /// Begins the time of a ban anew with each refusal during it.
    ///
    /// A client that does not wait is then refused for good. A ban by [failures](crate::Policy::ban_failures) cannot be
    /// extended, as a refusal is none: the layer is not built.
    pub const fn extending(self) -> Self {
        Self { extends: true, ..self }
    }

    /// Refuses a banned key on the whole layer: also requests that the policy does not apply to by its methods, routes
    /// or [`when`](crate::Policy::when).
    ///
    /// Only requests that the policy applies to are strikes. Preflights and clients on the policy's allow list are not
    /// refused. Other requests look whether their key is banned, within their decision: on a route without policies the
    /// layer then calls its store, too, and on a Redis Cluster policies by other keys are decided at the same time on
    /// several servers. The policy is among the outcomes of such a decision, and headers show it only in a refusal.
    ///
    /// In a [`Limiter`](crate::Limiter) each rule applies to each key, so every ban is like this.
    pub const fn whole_layer(self) -> Self {
        Self { layer: true, ..self }
    }

    /// Declares that somebody verifies the keys of the policy before its requests reach the layer, such as a gateway
    /// that checks a token: no client can send the key of another one.
    ///
    /// A ban by a key that clients choose is an error without this. It does not make a ban acceptable by an address in
    /// a header that anyone may write: see [`KeyInfo`](crate::key::KeyInfo::unforgeable).
    pub const fn of_verified_keys(self) -> Self {
        Self { verified: true, ..self }
    }

    /// Returns how many strikes begin a ban.
    pub const fn after(&self) -> u32 {
        self.after
    }

    /// Returns the window within which strikes are counted.
    pub const fn within(&self) -> Duration {
        Duration::from_millis(self.within)
    }

    /// Returns how long the first ban lasts.
    pub const fn duration(&self) -> Duration {
        Duration::from_millis(self.time)
    }

    /// Returns how long a ban lasts at most.
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

/// Returns a time in whole milliseconds, if it is one that a ban may have.
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
