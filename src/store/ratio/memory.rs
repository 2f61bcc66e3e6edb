//! The tally of one process: the twin of `lua/ratio.lua`, with the same names in the same order.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::tally::{CounterId, MOST_TOTAL, MOST_UNITS, Offered, Report, Tally, Totals};
use crate::core::Error;
use crate::store::clock::micros;
use crate::store::{Clock, SystemClock};

/// The most counters of a tick and shard, as far as one report does not exceed it.
const MOST_COUNTERS: usize = 1_024;

/// The most hot counters that one tick and shard lists.
const MOST_HOT: usize = 32;

/// A [`Tally`] of the stores of one process, for tests and simulations.
///
/// It replies at once. Clones share it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::{MemoryTally, Report, Tally};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let tally = MemoryTally::with_clock(|| Duration::from_secs(1_000));
/// let totals = tally.report(Report::new(Duration::from_secs(1), 1_000)).await?;
/// assert_eq!((totals.now, totals.live), (Duration::from_secs(1_000), 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryTally {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Box<dyn Clock>,
    /// The three hashes of each shard, by the length of a tick in microseconds, how many shards there are, and which one
    /// it is.
    shards: Mutex<BTreeMap<(u64, u8, u8), [Bucket; 3]>>,
}

/// The reports of one tick to one shard.
#[derive(Clone, Debug, Default)]
struct Bucket {
    tick: Option<u64>,
    live: u64,
    hot: Vec<CounterId>,
    units: BTreeMap<CounterId, [u64; 2]>,
    /// Fields of the counters, as Redis has them: one of each that has ordinary units, and one of each that has others.
    places: usize,
}

impl MemoryTally {
    /// A tally without reports, by the system's clock.
    #[allow(clippy::new_without_default, reason = "two defaults would share nothing")]
    pub fn new() -> Self {
        Self::with_clock(SystemClock::new())
    }

    /// A tally without reports, by another clock.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self { shared: Arc::new(Shared { clock: Box::new(clock), shards: Mutex::default() }) }
    }

    /// Deletes all reports, as a server that restarts does.
    pub fn clear(&self) {
        self.shared.shards.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn add(&self, report: &Report) -> Totals {
        let now_us = micros(self.shared.clock.now());
        let tick_us = u64::try_from(report.tick.as_micros()).unwrap_or(u64::MAX).max(1);
        let mut shards = self.shared.shards.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals = Totals::new(Duration::from_micros(now_us), 0).counters(vec![None; report.counters.len()]);
        for shard in 0..report.shards.max(1) {
            let is_own = |(_, offered): &(usize, &Offered)| offered.id.shard(report.shards) == shard;
            let own: Vec<(usize, &Offered)> = report.counters.iter().enumerate().filter(is_own).collect();
            let buckets = shards.entry((tick_us, report.shards, shard)).or_default();
            let (live, hot) = ratio(buckets, (tick_us, now_us), report, &own, &mut totals.counters);
            totals.live = totals.live.max(live);
            totals.hot.extend(hot);
        }
        totals
    }
}

impl Tally for MemoryTally {
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
        Box::pin(ready(Ok(self.add(&report))))
    }
}

impl fmt::Debug for MemoryTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTally").finish_non_exhaustive()
    }
}

/// Adds the counters of one shard to their tick; sets their totals of the last tick, and returns how many processes
/// were live in it, and the totals of hot counters.
fn ratio(
    buckets: &mut [Bucket; 3],
    (tick_us, now_us): (u64, u64),
    report: &Report,
    own: &[(usize, &Offered)],
    totals: &mut [Option<[u64; 2]>],
) -> (u64, Vec<(CounterId, [u64; 2])>) {
    let tick = now_us / tick_us;
    let next = report.target.saturating_add(1);
    let (is_late, target) = (report.target > 0 && next < tick, if next == tick { report.target } else { tick });
    for bucket in buckets.iter_mut() {
        bucket.expire(tick);
    }
    // What was offered is written first, as a report may be for the tick that is read.
    let has_room = if is_late {
        // Several that were held up would count as so many processes of one tick.
        vec![true; own.len()]
    } else {
        buckets[place(target)].write(target, report.live, own)
    };
    let last = tick.wrapping_sub(1);
    let of_last = |buckets: &[Bucket; 3], id: &CounterId| buckets[place(last)].units_in(last, id);
    for (&(index, offered), has_room) in own.iter().zip(has_room) {
        let units = of_last(buckets, &offered.id);
        totals[index] = has_room.then_some(units);
        if !is_late && 2 * (units[0] + units[1]) >= offered.limit.min(MOST_UNITS) {
            buckets[place(target)].add_hot(offered.id);
        }
    }
    let mut hot = buckets[place(target)].in_tick(target).map(|into| into.hot.clone()).unwrap_or_default();
    let (live, hot_then) = match buckets[place(last)].in_tick(last) {
        Some(last) => (last.live, &last.hot[..]),
        None => (0, &[][..]),
    };
    let more: Vec<CounterId> = hot_then.iter().filter(|id| !hot.contains(id)).copied().collect();
    hot.extend(more);
    (live, hot.into_iter().map(|id| (id, of_last(buckets, &id))).collect())
}

impl Bucket {
    /// Forgets what is older than the last tick.
    fn expire(&mut self, tick: u64) {
        if self.tick.is_some_and(|number| number + 3 <= tick) {
            *self = Self::default();
        }
    }

    /// Returns the bucket if it is that of a tick.
    fn in_tick(&self, number: u64) -> Option<&Self> {
        (self.tick == Some(number)).then_some(self)
    }

    /// Returns the totals of a counter in a tick.
    fn units_in(&self, number: u64, id: &CounterId) -> [u64; 2] {
        let units = self.in_tick(number).and_then(|bucket| bucket.units.get(id));
        units.copied().unwrap_or_default().map(|units| units.min(MOST_TOTAL - 1))
    }

    /// Adds what was offered in the tick `target`; returns for each counter whether there was room.
    fn write(&mut self, target: u64, live: bool, own: &[(usize, &Offered)]) -> Vec<bool> {
        if self.tick != Some(target) && (live || !own.is_empty()) {
            *self = Self { tick: Some(target), ..Self::default() };
        }
        self.live += u64::from(live);
        let full = self.fields() > 2 * MOST_COUNTERS;
        own.iter().map(|(_, offered)| self.add(offered, full)).collect()
    }

    /// Adds what was offered of one counter, and returns whether there was room.
    fn add(&mut self, offered: &Offered, full: bool) -> bool {
        let [ordinary, critical] = [offered.ordinary, offered.critical].map(|units| units.min(MOST_UNITS));
        let is_new = !self.units.contains_key(&offered.id);
        if full && is_new {
            return false;
        }
        if ordinary + critical > 0 {
            let units = self.units.entry(offered.id).or_default();
            self.places += usize::from(is_new) + usize::from(critical > 0 && units[1] == 0);
            units[0] += ordinary;
            units[1] += critical;
        }
        true
    }

    /// Returns how many fields the hash has in Redis.
    fn fields(&self) -> usize {
        match self.tick {
            // Besides the counters: "tick", "list", "live" and "hot".
            Some(_) => 2 + usize::from(self.live > 0) + usize::from(!self.hot.is_empty()) + self.places,
            None => 0,
        }
    }

    /// Lists a counter as hot.
    fn add_hot(&mut self, id: CounterId) {
        if self.tick.is_some() && self.hot.len() < MOST_HOT && !self.hot.contains(&id) {
            self.hot.push(id);
        }
    }
}

/// The place of the bucket of a tick.
fn place(number: u64) -> usize {
    usize::try_from(number % 3).unwrap_or_default()
}
