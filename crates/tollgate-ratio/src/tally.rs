//! Where processes report what they were offered: the trait, and what goes in and comes out.
//!
//! It is the seam between the ratios and the server that adds the reports of all processes up. What is reported has
//! neither keys nor names, only [`CounterId`]s, so a tally cannot show what clients send.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tollgate::Error;
use tollgate::store::Counter;

/// The most shards of a report.
pub(crate) const MAX_SHARDS: u8 = 16;

/// The most counters of a report in one shard.
pub(crate) const MAX_REPORT: usize = 512;

/// The most units of a kind, and the largest limit, in a report.
pub(crate) const MAX_UNITS: u64 = 1 << 40;

/// Totals are below this.
pub(crate) const MAX_TOTAL: u64 = 1 << 52;

/// Where processes report what they were offered, and receive the totals of all processes.
///
/// Time is divided into ticks by the clock of the tally: tick number *c* is ⌊time since the Unix epoch / tick⌋. Each
/// report is added to one tick, and the totals of the one before the current are returned, which is complete.
///
/// [`MemoryTally`](super::MemoryTally) is one for a single process, and `RedisStore` one for many.
///
/// # Examples
///
/// A tally that loses every report:
///
/// ```
/// use std::future::{Future, ready};
/// use std::pin::Pin;
/// use tollgate_ratio::{Report, Tally, Totals};
/// use tollgate::Error;
///
/// struct Unavailable;
///
/// impl Tally for Unavailable {
///     fn report(&self, _: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
///         Box::pin(ready(Err(Error::timeout("the tally did not reply"))))
///     }
/// }
/// ```
pub trait Tally: Send + Sync + 'static {
    /// Adds a report to its tick, at most once, and returns the totals of the last complete tick.
    ///
    /// The tick is the [target](Report::target) if that is the last one. A report for an older one, which was held up,
    /// counts nowhere; any other one counts in the current tick. A report without counters that is not
    /// [live](Report::live) changes nothing.
    ///
    /// # Errors
    ///
    /// If there was no valid reply in time. The report may have been added or not; it is not sent again.
    ///
    /// # Cancellation
    ///
    /// The report may be added even if the future is dropped.
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>>;
}

/// The identity of a counter in a [`Tally`]: a hash of its policy and key, the same in all processes.
///
/// Neither limit nor window is in it: what was offered does not depend on them.
///
/// # Examples
///
/// ```
/// use tollgate::policy::PolicyName;
/// use tollgate_ratio::CounterId;
/// use tollgate::store::Counter;
/// use tollgate::{Key, Quota};
///
/// let (policy, key) = (PolicyName::try_from("api")?, Key::new("user", "ada"));
/// let of = |limit| CounterId::new(&Counter::new(policy.clone(), key.clone(), Quota::per_second(limit)));
/// assert_eq!(of(10), of(20));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterId([u8; Self::LENGTH]);

impl CounterId {
    /// The bytes of an identity.
    pub const LENGTH: usize = 16;

    /// Returns the identity of a counter.
    pub fn new(counter: &Counter) -> Self {
        let mut hasher = blake3::Hasher::new();
        // No name of a policy contains a byte of 0.
        hasher.update(counter.policy().as_str().as_bytes()).update(&[0]).update(counter.key().as_ref().as_bytes());
        let mut id = [0; Self::LENGTH];
        hasher.finalize_xof().fill(&mut id);
        Self(id)
    }

    /// Returns the identity of these bytes.
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    /// Returns the shard of the counter, of `shards` that a tally may have: from 0 to `shards` - 1.
    pub fn shard(&self, shards: u8) -> u8 {
        self.0[0] % shards.max(1)
    }
}

impl fmt::Debug for CounterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What one process was offered in its last tick.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Report {
    /// The length of a tick: whole microseconds, from 10 ms to 60 s.
    pub tick: Duration,
    /// Into how many shards the counters are divided: from 1 to 16.
    pub shards: u8,
    /// The number of the tick that the report is for, or 0, which is the current one.
    pub target: u64,
    /// Whether the process is counted as one of those that reported in that tick.
    pub live: bool,
    /// What was offered, by counter, each at most once: at most 512 of a [shard](CounterId::shard).
    pub counters: Vec<Offered>,
}

impl Report {
    /// A report without counters of a live process, in one shard, to the tick `target`.
    pub fn new(tick: Duration, target: u64) -> Self {
        Self { tick, shards: 1, target, live: true, counters: Vec::new() }
    }

    /// Sets into how many shards the counters are divided, by default 1.
    pub fn shards(self, shards: u8) -> Self {
        Self { shards, ..self }
    }

    /// Sets whether the process is counted as live, by default it is.
    pub fn live(self, live: bool) -> Self {
        Self { live, ..self }
    }

    /// Sets what was offered, by default nothing.
    pub fn counters(self, counters: impl IntoIterator<Item = Offered>) -> Self {
        Self { counters: counters.into_iter().collect(), ..self }
    }
}

/// What one process was offered of one counter in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Offered {
    /// The counter.
    pub id: CounterId,
    /// Units of requests that may not use the reserve, at most 2^40.
    pub ordinary: u64,
    /// Units of requests that may use it, at most 2^40; all, if there is no reserve.
    pub critical: u64,
    /// The units that all processes together may admit in a tick, at most 2^40: a counter is hot, and its totals are
    /// returned to every process, from half of them.
    pub limit: u64,
}

impl Offered {
    /// What was offered, each number cut to 2^40.
    pub fn new(id: CounterId, ordinary: u64, critical: u64, limit: u64) -> Self {
        let [ordinary, critical, limit] = [ordinary, critical, limit].map(|units| units.min(MAX_UNITS));
        Self { id, ordinary, critical, limit }
    }
}

/// What all processes were offered in the last complete tick.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Totals {
    /// The time of the tally since the Unix epoch, in whole microseconds.
    pub now: Duration,
    /// How many processes reported for that tick: 0 if there are no totals, as after a restart.
    pub live: u64,
    /// The totals of each counter of the report, in its order: units of requests that may not use the reserve, and of
    /// those that may, each below 2^52. `None` if the tally has no room for the counter.
    pub counters: Vec<Option<[u64; 2]>>,
    /// The totals of hot counters, whether or not they are in the report: at most 64 of a shard.
    pub hot: Vec<(CounterId, [u64; 2])>,
}

impl Totals {
    /// Totals of `live` processes, at the time `now`, without counters.
    pub fn new(now: Duration, live: u64) -> Self {
        Self { now, live, counters: Vec::new(), hot: Vec::new() }
    }

    /// Sets the totals of each counter of the report, in its order, by default none.
    pub fn counters(self, counters: Vec<Option<[u64; 2]>>) -> Self {
        Self { counters, ..self }
    }

    /// Sets the totals of hot counters, by default none.
    pub fn hot(self, hot: Vec<(CounterId, [u64; 2])>) -> Self {
        Self { hot, ..self }
    }
}

/// Returns the microseconds of a time, at most three quarters of what the arithmetic is exact for.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(MAX_TOTAL / 4 * 3)
}
