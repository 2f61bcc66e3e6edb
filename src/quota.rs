//! How much is allowed: an algorithm, a limit, a window.

use std::fmt;
use std::time::Duration;

use crate::Error;

/// No intermediate value of any decision reaches this: Lua's numbers hold every integer below it,
/// and their quotients round down correctly.
pub(crate) const EXACT: u64 = 1 << 52;

/// Windows up to this long are counted in microseconds, longer ones in milliseconds.
const FINE_WINDOW: Duration = Duration::from_secs(60);

/// Stored times are kept modulo twice this many ticks, so no state may matter for longer.
const LONGEST: u64 = 1 << 43;

/// How units are counted against a [`Quota`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A count that starts anew at each multiple of the window since the Unix epoch.
    FixedWindow,
    /// A bucket of `burst` units, refilled continuously at `limit` per window.
    TokenBucket,
}

impl Algorithm {
    /// The algorithms there are, by the name they have in files.
    pub const ALL: &'static [(&'static str, Algorithm)] =
        &[("fixed_window", Algorithm::FixedWindow), ("token_bucket", Algorithm::TokenBucket)];

    /// Returns the name this algorithm has in files and in Lua.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::TokenBucket => "token_bucket",
        }
    }
}

/// How much one key may take: an algorithm, a limit in units, and the window the limit speaks of.
///
/// Constructors are `const` and panic on what can never work, so a bad constant does not compile;
/// each has a `try_` twin for values that come from a file or a user.
///
/// # Bounds
///
/// Decisions are exact in integers below 2^52. A tick is 1 µs for windows up to 60 s and 1 ms for
/// longer ones; a window is a whole number of ticks. For a token bucket `2 · max(limit, burst) ·
/// window` must stay below 2^52, with the window in ticks: up to 37 million units per minute, or 26
/// million per day.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Quota;
///
/// const API: Quota = Quota::token_bucket(5_000, Duration::from_secs(3600)).burst(200);
/// assert_eq!(API.limit(), 5_000);
/// assert_eq!(API.capacity(), 200);
/// assert!(Quota::try_per_second(0).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    algorithm: Algorithm,
    limit: u64,
    /// In ticks.
    window: u64,
    tick: Tick,
    /// The most units that can be taken at once.
    capacity: u64,
}

/// The grain of time of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tick {
    Micro,
    Milli,
}

impl Tick {
    pub(crate) const fn micros(self) -> u64 {
        match self {
            Tick::Micro => 1,
            Tick::Milli => 1_000,
        }
    }
}

impl Quota {
    /// `limit` units per second, as a token bucket that holds `limit`.
    ///
    /// # Panics
    ///
    /// Where [`try_per_second`](Self::try_per_second) returns an error.
    pub const fn per_second(limit: u64) -> Self {
        Self::token_bucket(limit, Duration::from_secs(1))
    }

    /// `limit` units per minute, as a token bucket that holds `limit`.
    ///
    /// # Panics
    ///
    /// Where [`try_per_minute`](Self::try_per_minute) returns an error.
    pub const fn per_minute(limit: u64) -> Self {
        Self::token_bucket(limit, Duration::from_secs(60))
    }

    /// `limit` units per hour, as a token bucket that holds `limit`.
    ///
    /// # Panics
    ///
    /// Where [`try_per_hour`](Self::try_per_hour) returns an error.
    pub const fn per_hour(limit: u64) -> Self {
        Self::token_bucket(limit, Duration::from_secs(3_600))
    }

    /// A bucket that holds `limit` units and is refilled at `limit` per `window`, continuously.
    ///
    /// See [`burst`](Self::burst) for another capacity. GCRA is this algorithm under other names.
    ///
    /// # Panics
    ///
    /// Where [`try_token_bucket`](Self::try_token_bucket) returns an error.
    pub const fn token_bucket(limit: u64, window: Duration) -> Self {
        accept(Self::checked(Algorithm::TokenBucket, limit, window))
    }

    /// `limit` units in each window, windows being aligned to the Unix epoch.
    ///
    /// # Panics
    ///
    /// Where [`try_fixed_window`](Self::try_fixed_window) returns an error.
    pub const fn fixed_window(limit: u64, window: Duration) -> Self {
        accept(Self::checked(Algorithm::FixedWindow, limit, window))
    }

    /// Sets the capacity of a token bucket: how many units may be taken at once after a pause.
    ///
    /// # Panics
    ///
    /// Where [`try_burst`](Self::try_burst) returns an error.
    pub const fn burst(self, burst: u64) -> Self {
        accept(self.checked_burst(burst))
    }

    /// As [`per_second`](Self::per_second).
    ///
    /// # Errors
    ///
    /// If `limit` is zero or beyond the [bounds](Self#bounds).
    pub fn try_per_second(limit: u64) -> Result<Self, Error> {
        Self::try_token_bucket(limit, Duration::from_secs(1))
    }

    /// As [`per_minute`](Self::per_minute).
    ///
    /// # Errors
    ///
    /// If `limit` is zero or beyond the [bounds](Self#bounds).
    pub fn try_per_minute(limit: u64) -> Result<Self, Error> {
        Self::try_token_bucket(limit, Duration::from_secs(60))
    }

    /// As [`per_hour`](Self::per_hour).
    ///
    /// # Errors
    ///
    /// If `limit` is zero or beyond the [bounds](Self#bounds).
    pub fn try_per_hour(limit: u64) -> Result<Self, Error> {
        Self::try_token_bucket(limit, Duration::from_secs(3_600))
    }

    /// As [`token_bucket`](Self::token_bucket).
    ///
    /// # Errors
    ///
    /// If `limit` or `window` is zero, the window is not a whole number of ticks, or the quota is
    /// beyond the [bounds](Self#bounds).
    pub fn try_token_bucket(limit: u64, window: Duration) -> Result<Self, Error> {
        Self::try_new(Algorithm::TokenBucket, limit, window)
    }

    /// As [`fixed_window`](Self::fixed_window).
    ///
    /// # Errors
    ///
    /// If `limit` or `window` is zero, the window is not a whole number of ticks, or the quota is
    /// beyond the [bounds](Self#bounds).
    pub fn try_fixed_window(limit: u64, window: Duration) -> Result<Self, Error> {
        Self::try_new(Algorithm::FixedWindow, limit, window)
    }

    /// A quota of any algorithm, with its own default of burst or queue.
    ///
    /// # Errors
    ///
    /// If `limit` or `window` is zero, the window is not a whole number of ticks, or the quota is
    /// beyond the [bounds](Self#bounds).
    pub fn try_new(algorithm: Algorithm, limit: u64, window: Duration) -> Result<Self, Error> {
        Self::checked(algorithm, limit, window).map_err(|fault| fault.given(algorithm, limit, window))
    }

    /// As [`burst`](Self::burst).
    ///
    /// # Errors
    ///
    /// If the algorithm is not a token bucket, or `burst` is zero or beyond the
    /// [bounds](Self#bounds).
    pub fn try_burst(self, burst: u64) -> Result<Self, Error> {
        self.checked_burst(burst).map_err(|fault| fault.given_burst(burst))
    }

    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units per window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window.
    pub const fn window(&self) -> Duration {
        Duration::from_micros(self.window * self.tick.micros())
    }

    /// The most units that can be held at once: a bucket's burst, else the limit.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) const fn tick(&self) -> Tick {
        self.tick
    }

    pub(crate) const fn window_ticks(&self) -> u64 {
        self.window
    }

    /// The same algorithm and window with fewer units.
    pub(crate) const fn with_units(self, limit: u64, capacity: u64) -> Self {
        Self { limit, capacity, ..self }
    }

    const fn checked(algorithm: Algorithm, limit: u64, window: Duration) -> Result<Self, Fault> {
        let tick = if window.as_micros() <= FINE_WINDOW.as_micros() { Tick::Micro } else { Tick::Milli };
        let grain = tick.micros() as u128 * 1_000;
        let ticks = window.as_nanos() / grain;
        if limit == 0 {
            return Err(Fault::ZeroLimit);
        }
        if window.is_zero() {
            return Err(Fault::ZeroWindow);
        }
        if !window.as_nanos().is_multiple_of(grain) {
            return Err(Fault::Fraction);
        }
        if ticks >= (LONGEST / 4) as u128 {
            return Err(Fault::LongWindow);
        }
        #[allow(clippy::cast_possible_truncation, reason = "ticks are below 2^41")]
        let quota = Self { algorithm, limit, window: ticks as u64, tick, capacity: limit };
        let most = quota.most_units();
        if limit > most { Err(Fault::LargeLimit { most }) } else { Ok(quota) }
    }

    const fn checked_burst(self, burst: u64) -> Result<Self, Fault> {
        if !matches!(self.algorithm, Algorithm::TokenBucket) {
            return Err(Fault::NoBurst);
        }
        if burst == 0 {
            return Err(Fault::ZeroBurst);
        }
        let most = self.most_burst();
        if burst > most { Err(Fault::LargeBurst { most }) } else { Ok(Self { capacity: burst, ..self }) }
    }

    /// The most units for which every intermediate value is below [`EXACT`].
    const fn most_units(&self) -> u64 {
        match self.algorithm {
            Algorithm::FixedWindow => EXACT / 8 - 1,
            Algorithm::TokenBucket => (EXACT - 1) / 2 / self.window,
        }
    }

    /// The largest burst that is exact and whose deepest debt is paid within [`LONGEST`] ticks.
    const fn most_burst(&self) -> u64 {
        let paid = (LONGEST - self.window) as u128 * self.limit as u128 / (2 * self.window) as u128;
        let exact = self.most_units();
        #[allow(clippy::cast_possible_truncation, reason = "the smaller one is below 2^52")]
        if paid < exact as u128 { paid as u64 } else { exact }
    }
}

/// Why a quota cannot be.
#[derive(Clone, Copy, Debug)]
enum Fault {
    ZeroLimit,
    ZeroWindow,
    Fraction,
    LongWindow,
    LargeLimit { most: u64 },
    NoBurst,
    ZeroBurst,
    LargeBurst { most: u64 },
}

impl Fault {
    fn given(self, algorithm: Algorithm, limit: u64, window: Duration) -> Error {
        let name = algorithm.name();
        Error::invalid(match self {
            Fault::ZeroLimit => "limit 0 admits nothing: give at least 1".to_owned(),
            Fault::ZeroWindow => "window 0s is no period: give at least 1us".to_owned(),
            Fault::Fraction => format!(
                "window {window:?} is not a whole number of ticks: give whole microseconds up to 60s, \
                 whole milliseconds above"
            ),
            Fault::LongWindow => format!("window {window:?} is too long: give less than 69 years"),
            Fault::LargeLimit { most } => format!(
                "limit {limit} is too large for a {name} over {window:?}: give at most {most}, or a \
                 shorter window"
            ),
            Fault::NoBurst | Fault::ZeroBurst | Fault::LargeBurst { .. } => unreachable!("no burst was given"),
        })
    }

    fn given_burst(self, burst: u64) -> Error {
        Error::invalid(match self {
            Fault::NoBurst => format!("burst {burst} is for a token bucket only: leave it out"),
            Fault::LargeBurst { most } => format!("burst {burst} is too large: give at most {most}"),
            _ => "burst 0 admits nothing: give at least 1".to_owned(),
        })
    }
}

/// Unwraps a quota where it can be checked at compile time.
const fn accept(quota: Result<Quota, Fault>) -> Quota {
    match quota {
        Ok(quota) => quota,
        Err(Fault::ZeroLimit) => panic!("limit 0 admits nothing: give at least 1"),
        Err(Fault::ZeroWindow) => panic!("window 0s is no period: give at least 1us"),
        Err(Fault::Fraction) => panic!("the window is not a whole number of ticks"),
        Err(Fault::LongWindow) => panic!("the window is too long: give less than 69 years"),
        Err(Fault::LargeLimit { .. }) => panic!("the limit is too large for this window"),
        Err(Fault::NoBurst) => panic!("a burst is for a token bucket only"),
        Err(Fault::ZeroBurst) => panic!("burst 0 admits nothing: give at least 1"),
        Err(Fault::LargeBurst { .. }) => panic!("the burst is too large for this limit and window"),
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {:?} ({})", self.limit, self.window(), self.algorithm.name())
    }
}
