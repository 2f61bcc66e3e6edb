//! The trait of tallies, which add up the reports of all processes, and its types.
//!
//! Reports have neither keys nor names, only [`CounterId`]s, so a tally cannot reveal data of clients.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tollgate::Error;
use tollgate::store::Counter;

pub(crate) const MAX_SHARDS: u8 = 16;

pub(crate) const MAX_REPORT: usize = 512;

pub(crate) const MAX_UNITS: u64 = 1 << 40;

pub(crate) const MAX_TOTAL: u64 = 1 << 52;

/// A service to which processes report their offered units, and which returns the totals of all processes.
///
/// Time is divided into ticks by the clock of the tally: tick number *c* is ⌊time since the Unix epoch / tick⌋. Each
/// report is added to one tick. It returns the totals of the tick before the current one, which is complete.
///
/// [`MemoryTally`](super::MemoryTally) serves a single process, and `RedisStore` many.
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
    /// counts nowhere. Any other one counts in the current tick. A report without counters that is not
    /// [live](Report::live) changes nothing.
    ///
    /// # Errors
    ///
    /// If there was no valid reply in time. The report may have been added or not. It is not sent again.
    ///
    /// # Cancellation
    ///
    /// The report may be added even if the future is dropped.
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>>;
}

/// The identity of a counter in a [`Tally`]: a hash of its policy and key, the same in all processes.
///
/// It has neither limit nor window, because offered units do not depend on them.
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

/// Units offered to one process in its last tick.
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
    /// Whether the process counts as one that reported in that tick.
    pub live: bool,
    /// Offered units by counter, each at most once: at most 512 of a [shard](CounterId::shard).
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

    /// Sets the offered units, by default none.
    pub fn counters(self, counters: impl IntoIterator<Item = Offered>) -> Self {
        Self { counters: counters.into_iter().collect(), ..self }
    }
}

/// Units of one counter that were offered to one process in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Offered {
    /// The counter.
    pub id: CounterId,
    /// Units of requests that may not use the reserve, at most 2^40.
    pub ordinary: u64,
    /// Units of requests that may use the reserve, at most 2^40; all units, if there is no reserve.
    pub critical: u64,
    /// The units that all processes together may allow in a tick, at most 2^40. From half of them on, a counter is hot,
    /// and its totals are returned to every process.
    pub limit: u64,
}

impl Offered {
    /// Creates a report of one counter, with each number cut to 2^40.
    pub fn new(id: CounterId, ordinary: u64, critical: u64, limit: u64) -> Self {
        let [ordinary, critical, limit] = [ordinary, critical, limit].map(|units| units.min(MAX_UNITS));
        Self { id, ordinary, critical, limit }
    }
}

/// Units offered to all processes in the last complete tick.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Totals {
    /// The time of the tally since the Unix epoch, in whole microseconds.
    pub now: Duration,
    /// Number of processes that reported for that tick: 0 if there are no totals, like after a restart.
    pub live: u64,
    /// The totals of each counter of the report, in its order: units of requests that may not use the reserve, and
    /// units of requests that may, each below 2^52. `None` if the tally has no space for the counter.
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

/// At most three quarters of the largest time for which arithmetic is exact.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(MAX_TOTAL / 4 * 3)
}
