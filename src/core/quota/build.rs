use std::num::NonZeroU32;
use std::time::Duration;

use super::bounds::{Fault, accept};
use super::{Quota, Tick};
use crate::core::algorithm::Algorithm;
use crate::core::{Ban, Calendar, Error};

const SLOT_LIFE: Duration = Duration::from_secs(30);

/// Constructors for constants: an invalid quota does not compile, or panics.
impl Quota {
    /// `limit` units per second, as a token bucket that holds `limit`.
    ///
    /// After a pause, up to twice the limit passes within a second: see [which algorithm](Self#which-algorithm).
    ///
    /// # Panics
    ///
    /// If [`try_per_second`](Self::try_per_second) returns an error.
    #[track_caller]
    pub const fn per_second(limit: u64) -> Self {
        Self::token_bucket(limit, Duration::from_secs(1))
    }

    /// `limit` units per minute, as a token bucket that holds `limit`.
    ///
    /// After a pause, up to twice the limit passes within a minute: see [which algorithm](Self#which-algorithm).
    ///
    /// # Panics
    ///
    /// If [`try_per_minute`](Self::try_per_minute) returns an error.
    #[track_caller]
    pub const fn per_minute(limit: u64) -> Self {
        Self::token_bucket(limit, Duration::from_secs(60))
    }

    /// `limit` units per hour, as a token bucket that holds `limit`.
    ///
    /// After a pause, up to twice the limit passes within an hour: see [which algorithm](Self#which-algorithm).
    ///
    /// # Panics
    ///
    /// If [`try_per_hour`](Self::try_per_hour) returns an error.
    #[track_caller]
    pub const fn per_hour(limit: u64) -> Self {
        Self::token_bucket(limit, Duration::from_secs(3_600))
    }

    /// `limit` units per 24 hours, as a token bucket that holds `limit`.
    ///
    /// After a pause, up to twice the limit passes within a day: see [which algorithm](Self#which-algorithm). Units
    /// return evenly, not at midnight. For days of a calendar use [`calendar_window`](Self::calendar_window).
    ///
    /// # Panics
    ///
    /// If [`try_per_day`](Self::try_per_day) returns an error.
    #[track_caller]
    pub const fn per_day(limit: u64) -> Self {
        Self::token_bucket(limit, Duration::from_secs(86_400))
    }

    /// A bucket that holds `limit` units and is refilled at `limit` per `window`, continuously.
    ///
    /// See [`burst`](Self::burst) for another capacity. GCRA is this algorithm under other names. After a pause, up to
    /// twice the limit passes within a window: see [which algorithm](Self#which-algorithm).
    ///
    /// # Panics
    ///
    /// If [`try_token_bucket`](Self::try_token_bucket) returns an error.
    #[track_caller]
    pub const fn token_bucket(limit: u64, window: Duration) -> Self {
        accept(Self::checked(Algorithm::TokenBucket, limit, window))
    }

    /// The [token bucket](Self::token_bucket), by the name that the generic cell rate algorithm gives it.
    ///
    /// The `max_burst` of redis-cell is the [`burst`](Self::burst) less one.
    ///
    /// # Panics
    ///
    /// If [`try_gcra`](Self::try_gcra) returns an error.
    #[track_caller]
    pub const fn gcra(limit: u64, window: Duration) -> Self {
        Self::token_bucket(limit, window)
    }

    /// `limit` units in each window. Windows are aligned to the Unix epoch.
    ///
    /// Around a boundary up to twice the limit is allowed within one window's length.
    ///
    /// # Panics
    ///
    /// If [`try_fixed_window`](Self::try_fixed_window) returns an error.
    #[track_caller]
    pub const fn fixed_window(limit: u64, window: Duration) -> Self {
        accept(Self::checked(Algorithm::FixedWindow, limit, window))
    }

    /// `limit` units in each hour, day, week or month of a [`Calendar`](crate::policy::Calendar).
    ///
    /// A fixed window whose windows end by the clocks of a time zone.
    ///
    /// # Panics
    ///
    /// If [`try_calendar_window`](Self::try_calendar_window) returns an error.
    #[track_caller]
    pub fn calendar_window(limit: u64, calendar: Calendar) -> Self {
        accept(Self::checked_calendar(Algorithm::FixedWindow, limit, calendar))
    }

    /// `limit` units in any window of this length, exactly: the time of every unit is kept.
    ///
    /// # Panics
    ///
    /// If [`try_sliding_log`](Self::try_sliding_log) returns an error.
    #[track_caller]
    pub const fn sliding_log(limit: u64, window: Duration) -> Self {
        accept(Self::checked(Algorithm::SlidingLog, limit, window))
    }

    /// A sliding log of up to 1 million units, each of which takes 4 bytes and some time.
    ///
    /// In Redis, an allowed request reads and writes the whole log of its key, whatever it costs, and a denied one reads
    /// it. Other requests wait meanwhile: less than 1 ms for 10,000 units, and 30 to 50 ms for 1 million. So a layer does
    /// not build if a log of more than 10,000 units has a [`cost_by`](crate::Policy::cost_by), by which few requests
    /// fill it. This is not checked for tiers.
    ///
    /// # Panics
    ///
    /// If [`try_long_sliding_log`](Self::try_long_sliding_log) returns an error.
    #[track_caller]
    pub const fn long_sliding_log(limit: u64, window: Duration) -> Self {
        accept(Self::checked_long(Algorithm::SlidingLog, limit, window))
    }

    /// About `limit` units in any window of this length, from the counts of two aligned windows.
    ///
    /// # Panics
    ///
    /// If [`try_sliding_window`](Self::try_sliding_window) returns an error.
    #[track_caller]
    pub const fn sliding_window(limit: u64, window: Duration) -> Self {
        accept(Self::checked(Algorithm::SlidingWindow, limit, window))
    }

    /// Requests start `window / limit` apart. A request that arrives too early is denied, or waits if there is a
    /// [`queue`](Self::queue).
    ///
    /// # Panics
    ///
    /// If [`try_leaky_bucket`](Self::try_leaky_bucket) returns an error.
    #[track_caller]
    pub const fn leaky_bucket(limit: u64, window: Duration) -> Self {
        accept(Self::checked(Algorithm::LeakyBucket, limit, window))
    }

    /// Up to `limit` requests in flight: each holds a slot until its response body has ended, failed or been dropped.
    ///
    /// A request holds `cost` slots. Its process renews them while it is served. The slots of a process that died are
    /// free again after a [`slot_ttl`](Self::slot_ttl), 30 s by default, and at most an eighth more. A task in each
    /// runtime whose requests take slots renews all slots of a layer or limiter, until none is held. Outside of a tokio
    /// runtime with timers slots are released, but may expire while they are held.
    ///
    /// When the store fails, its [fallback](crate::OnFailure#slots) does not count the slots held in the store, and
    /// when the store recovers, it does not count the slots held in the fallback.
    ///
    /// # Panics
    ///
    /// If [`try_concurrency`](Self::try_concurrency) returns an error.
    #[track_caller]
    pub const fn concurrency(limit: u64) -> Self {
        accept(Self::checked(Algorithm::Concurrency, limit, SLOT_LIFE))
    }

    /// Sets how long a slot of a concurrency outlives its process, at least 2 s. Slots are renewed in thirds of it.
    ///
    /// It is the [`window`](Self::window) of the quota.
    ///
    /// # Panics
    ///
    /// If [`try_slot_ttl`](Self::try_slot_ttl) returns an error.
    #[track_caller]
    pub const fn slot_ttl(self, life: Duration) -> Self {
        accept(self.checked_life(life))
    }

    /// Sets the longest time that one request holds its slots of a concurrency, in whole seconds, rounded up; 1 h by
    /// default.
    ///
    /// After that the slots are released even if the request continues, such as for a client that does not read.
    ///
    /// # Panics
    ///
    /// If [`try_max_hold`](Self::try_max_hold) returns an error.
    #[track_caller]
    pub const fn max_hold(self, longest: Duration) -> Self {
        accept(self.checked_hold(longest))
    }

    /// Sets how many requests of a leaky bucket may wait for their turn; 0 by default, which denies a request that
    /// arrives too early.
    ///
    /// With a cost of 1 unit each, a queued request waits for at most `places * window / limit`. The
    /// [timeout](crate::RateLimitLayer::timeout) does not bound that wait.
    ///
    /// # Panics
    ///
    /// If [`try_queue`](Self::try_queue) returns an error.
    #[track_caller]
    pub const fn queue(self, places: u64) -> Self {
        accept(self.checked_queue(places))
    }

    /// Sets how many requests of a leaky bucket start immediately after a pause, with a cost of 1 unit each; 1 by
    /// default. Later requests wait for their turn, `window / limit` apart, in the other places of the
    /// [queue](Self::queue), which must be set first.
    ///
    /// The same requests are allowed, but start earlier: in any time `t` at most `requests + t * limit / window` start.
    /// The equivalent directives of nginx, which does not count the first request, are:
    ///
    /// | `limit_req` | `Quota` |
    /// | --- | --- |
    /// | `burst=12` | `.queue(12)` |
    /// | `burst=12 delay=8` | `.queue(12).nodelay(9)` |
    /// | `burst=12 nodelay` | `.queue(12).nodelay(13)` |
    ///
    /// # Panics
    ///
    /// If [`try_nodelay`](Self::try_nodelay) returns an error.
    #[track_caller]
    pub const fn nodelay(self, requests: u64) -> Self {
        accept(self.checked_at_once(requests))
    }

    /// Sets the capacity of a token bucket: the units that may be taken at once after a pause.
    ///
    /// # Panics
    ///
    /// If [`try_burst`](Self::try_burst) returns an error.
    #[track_caller]
    pub const fn burst(self, burst: u64) -> Self {
        accept(self.checked_burst(burst))
    }

    /// Returns part `index`, from 0, of `of` equal parts of the quota, for regions or processes that count separately.
    ///
    /// The limit is divided, and so are the burst, the places of a queue and the requests that start immediately. The
    /// first parts get the remainder of a division, one unit each, so all parts together are the quota. Parts can be
    /// divided again: `quota.share(region, regions).share(instance, instances)`.
    ///
    /// A key that uses one part only is limited to it.
    ///
    /// # Panics
    ///
    /// If [`try_share`](Self::try_share) returns an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use tollgate::Quota;
    ///
    /// let regions = NonZeroU32::new(3).expect("not zero");
    /// let limits = [0, 1, 2].map(|region| Quota::per_second(1_000).share(region, regions).limit());
    /// assert_eq!(limits, [334, 333, 333]);
    /// ```
    #[track_caller]
    pub const fn share(self, index: u32, of: NonZeroU32) -> Self {
        accept(self.checked_share(index, of))
    }
}

/// Constructors for values from a file or a user.
impl Quota {
    pub(crate) const fn from_ban(ban: &Ban) -> Self {
        let [window, limit, capacity] = ban.packed();
        Self { algorithm: Algorithm::Ban, limit, window, tick: Tick::Milli, capacity, extra: 0, calendar: None }
    }
}

impl Quota {
    /// Fallible version of [`per_second`](Self::per_second).
    ///
    /// # Errors
    ///
    /// If `limit` is zero or beyond the [bounds](Self#bounds).
    pub fn try_per_second(limit: u64) -> Result<Self, Error> {
        Self::try_token_bucket(limit, Duration::from_secs(1))
    }

    /// Fallible version of [`per_minute`](Self::per_minute).
    ///
    /// # Errors
    ///
    /// If `limit` is zero or beyond the [bounds](Self#bounds).
    pub fn try_per_minute(limit: u64) -> Result<Self, Error> {
        Self::try_token_bucket(limit, Duration::from_secs(60))
    }

    /// Fallible version of [`per_hour`](Self::per_hour).
    ///
    /// # Errors
    ///
    /// If `limit` is zero or beyond the [bounds](Self#bounds).
    pub fn try_per_hour(limit: u64) -> Result<Self, Error> {
        Self::try_token_bucket(limit, Duration::from_secs(3_600))
    }

    /// Fallible version of [`per_day`](Self::per_day).
    ///
    /// # Errors
    ///
    /// If `limit` is zero or beyond the [bounds](Self#bounds).
    pub fn try_per_day(limit: u64) -> Result<Self, Error> {
        Self::try_token_bucket(limit, Duration::from_secs(86_400))
    }

    /// Fallible version of [`token_bucket`](Self::token_bucket).
    ///
    /// # Errors
    ///
    /// If `limit` or `window` is zero, the window is not a whole number of ticks, or the quota is
    /// beyond the [bounds](Self#bounds).
    pub fn try_token_bucket(limit: u64, window: Duration) -> Result<Self, Error> {
        Self::try_new(Algorithm::TokenBucket, limit, window)
    }

    /// Fallible version of [`gcra`](Self::gcra).
    ///
    /// # Errors
    ///
    /// Like [`try_token_bucket`](Self::try_token_bucket).
    pub fn try_gcra(limit: u64, window: Duration) -> Result<Self, Error> {
        Self::try_token_bucket(limit, window)
    }

    /// Fallible version of [`fixed_window`](Self::fixed_window).
    ///
    /// # Errors
    ///
    /// If `limit` or `window` is zero, the window is not a whole number of ticks, or the quota is
    /// beyond the [bounds](Self#bounds).
    pub fn try_fixed_window(limit: u64, window: Duration) -> Result<Self, Error> {
        Self::try_new(Algorithm::FixedWindow, limit, window)
    }

    /// Fallible version of [`calendar_window`](Self::calendar_window).
    ///
    /// # Errors
    ///
    /// If `limit` is zero or beyond the [bounds](Self#bounds).
    pub fn try_calendar_window(limit: u64, calendar: Calendar) -> Result<Self, Error> {
        Self::checked_calendar(Algorithm::FixedWindow, limit, calendar).map_err(Fault::error)
    }

    /// Fallible version of [`sliding_log`](Self::sliding_log).
    ///
    /// # Errors
    ///
    /// If `limit` or `window` is zero, the window is not a whole number of ticks, or the quota is
    /// beyond the [bounds](Self#bounds).
    pub fn try_sliding_log(limit: u64, window: Duration) -> Result<Self, Error> {
        Self::try_new(Algorithm::SlidingLog, limit, window)
    }

    /// Fallible version of [`long_sliding_log`](Self::long_sliding_log).
    ///
    /// # Errors
    ///
    /// If `limit` or `window` is zero, the window is not a whole number of ticks, or the quota is
    /// beyond the [bounds](Self#bounds).
    pub fn try_long_sliding_log(limit: u64, window: Duration) -> Result<Self, Error> {
        Self::checked_long(Algorithm::SlidingLog, limit, window).map_err(Fault::error)
    }

    /// Fallible version of [`sliding_window`](Self::sliding_window).
    ///
    /// # Errors
    ///
    /// If `limit` or `window` is zero, the window is not a whole number of ticks, or the quota is
    /// beyond the [bounds](Self#bounds).
    pub fn try_sliding_window(limit: u64, window: Duration) -> Result<Self, Error> {
        Self::try_new(Algorithm::SlidingWindow, limit, window)
    }

    /// Fallible version of [`leaky_bucket`](Self::leaky_bucket).
    ///
    /// # Errors
    ///
    /// If `limit` or `window` is zero, the window is not a whole number of ticks, or the quota is
    /// beyond the [bounds](Self#bounds).
    pub fn try_leaky_bucket(limit: u64, window: Duration) -> Result<Self, Error> {
        Self::try_new(Algorithm::LeakyBucket, limit, window)
    }

    /// Fallible version of [`concurrency`](Self::concurrency).
    ///
    /// # Errors
    ///
    /// If `limit` is zero or beyond the [bounds](Self#bounds).
    pub fn try_concurrency(limit: u64) -> Result<Self, Error> {
        Self::try_new(Algorithm::Concurrency, limit, SLOT_LIFE)
    }

    /// Fallible version of [`slot_ttl`](Self::slot_ttl).
    ///
    /// # Errors
    ///
    /// If the algorithm is not a concurrency, or `life` is shorter than 2 s, not a whole number of ticks, or beyond the
    /// [bounds](Self#bounds).
    pub fn try_slot_ttl(self, life: Duration) -> Result<Self, Error> {
        self.checked_life(life).map_err(Fault::error)
    }

    /// Fallible version of [`max_hold`](Self::max_hold).
    ///
    /// # Errors
    ///
    /// If the algorithm is not a concurrency, or `longest` is shorter than 1 s or longer than 136 years.
    pub fn try_max_hold(self, longest: Duration) -> Result<Self, Error> {
        self.checked_hold(longest).map_err(Fault::error)
    }

    /// Fallible version of [`queue`](Self::queue).
    ///
    /// # Errors
    ///
    /// If the algorithm is not a leaky bucket, there are more places than the [bounds](Self#bounds) allow, or fewer
    /// than the requests that start [immediately](Self::nodelay) need.
    pub fn try_queue(self, places: u64) -> Result<Self, Error> {
        self.checked_queue(places).map_err(Fault::error)
    }

    /// Fallible version of [`nodelay`](Self::nodelay).
    ///
    /// # Errors
    ///
    /// If the algorithm is not a leaky bucket, or the number is 0, more than the queue and one, or more than 2^32.
    pub fn try_nodelay(self, requests: u64) -> Result<Self, Error> {
        self.checked_at_once(requests).map_err(Fault::error)
    }

    /// A quota of any algorithm, with its own default of burst or queue.
    ///
    /// # Errors
    ///
    /// If `limit` or `window` is zero, the window is not a whole number of ticks, or the quota is
    /// beyond the [bounds](Self#bounds).
    pub fn try_new(algorithm: Algorithm, limit: u64, window: Duration) -> Result<Self, Error> {
        Self::checked(algorithm, limit, window).map_err(Fault::error)
    }

    /// Fallible version of [`burst`](Self::burst).
    ///
    /// # Errors
    ///
    /// If the algorithm is not a token bucket, or `burst` is zero or beyond the
    /// [bounds](Self#bounds).
    pub fn try_burst(self, burst: u64) -> Result<Self, Error> {
        self.checked_burst(burst).map_err(Fault::error)
    }

    /// Fallible version of [`share`](Self::share).
    ///
    /// # Errors
    ///
    /// If there are no more than `index` parts, a part would have no units, or its burst or queue would be beyond the
    /// [bounds](Self#bounds) for its limit.
    pub fn try_share(self, index: u32, of: NonZeroU32) -> Result<Self, Error> {
        self.checked_share(index, of).map_err(Fault::error)
    }
}
