//! The tally of one process: the mirror of `lua/ratio.lua`, with the same names in the same order.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate::Error;
use tollgate::store::Clock;

use crate::tally::{CounterId, MAX_TOTAL, MAX_UNITS, Offered, Report, Tally, Totals, micros};

const MAX_COUNTERS: usize = 1_024;

const MAX_HOT: usize = 32;

/// A [`Tally`] of the stores of one process, for tests and simulations.
///
/// It replies immediately. Clones share it.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
/// use tollgate_ratio::{MemoryTally, Report, Tally};
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
    shared: Arc<TallyInner>,
}

struct TallyInner {
    clock: Box<dyn Clock>,
    /// Ticks of each shard by number. The key is the microseconds of a tick, the number of shards, and the shard.
    shards: Mutex<BTreeMap<(u64, u8, u8), Buckets>>,
}

type Buckets = BTreeMap<u64, Bucket>;

#[derive(Debug, Default)]
struct Bucket {
    live: u64,
    hot: Vec<CounterId>,
    units: BTreeMap<CounterId, [u64; 2]>,
}

impl MemoryTally {
    /// A tally without reports, by the system's clock.
    #[allow(clippy::new_without_default, reason = "two defaults would share nothing")]
    pub fn new() -> Self {
        let (start, since) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        Self::with_clock(move || since + start.elapsed())
    }

    /// A tally without reports, by another clock.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self { shared: Arc::new(TallyInner { clock: Box::new(clock), shards: Mutex::default() }) }
    }

    /// Deletes all reports, like a server that restarts.
    pub fn clear(&self) {
        self.shared.shards.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn add(&self, report: &Report) -> Totals {
        let now_us = micros(self.shared.clock.now());
        let tick_us = u64::try_from(report.tick.as_micros()).unwrap_or(u64::MAX).max(1);
        let mut shards = self.shared.shards.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals = Totals::new(Duration::from_micros(now_us), 0).counters(vec![None; report.counters.len()]);
        for shard in 0..report.shards.max(1) {
            let buckets = shards.entry((tick_us, report.shards, shard)).or_default();
            ratio(buckets, now_us / tick_us, (report, shard), &mut totals);
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

fn ratio(buckets: &mut Buckets, tick: u64, (report, shard): (&Report, u8), totals: &mut Totals) {
    let last = tick.saturating_sub(1);
    let is_late = report.target > 0 && report.target < last;
    let target = if report.target == last { last } else { tick };
    let own = || report.counters.iter().enumerate().filter(|(_, offered)| offered.id.shard(report.shards) == shard);
    buckets.retain(|number, _| (last..=tick).contains(number));
    let mut without_room = Vec::new();
    // Offered units are written first, because a report may be for the tick that is read. Several late reports of one
    // process would count as several processes of one tick.
    if !is_late && (report.live || own().next().is_some()) {
        let into = buckets.entry(target).or_default();
        into.live += u64::from(report.live);
        let full = into.fields() > 2 * MAX_COUNTERS;
        without_room.extend(own().filter(|(_, offered)| !into.add(offered, full)).map(|(index, _)| index));
    }
    let units = |id: &CounterId| {
        let units = buckets.get(&last).and_then(|bucket| bucket.units.get(id)).copied().unwrap_or_default();
        units.map(|units| units.min(MAX_TOTAL - 1))
    };
    let of = |number| buckets.get(&number).into_iter().flat_map(|bucket| bucket.hot.iter().copied());
    let mut hot: Vec<CounterId> = of(target).collect();
    for (index, offered) in own() {
        let [ordinary, critical] = units(&offered.id);
        totals.counters[index] = (!without_room.contains(&index)).then_some([ordinary, critical]);
        let is_hot = !is_late && 2 * (ordinary + critical) >= offered.limit.min(MAX_UNITS);
        if is_hot && hot.len() < MAX_HOT && !hot.contains(&offered.id) {
            hot.push(offered.id);
        }
    }
    let all_hot = hot.iter().copied().chain(of(last).filter(|id| !hot.contains(id)));
    totals.hot.extend(all_hot.map(|id| (id, units(&id))));
    totals.live = totals.live.max(buckets.get(&last).map_or(0, |bucket| bucket.live));
    if let Some(into) = buckets.get_mut(&target) {
        into.hot = hot;
    }
}

impl Bucket {
    fn add(&mut self, offered: &Offered, full: bool) -> bool {
        let [ordinary, critical] = [offered.ordinary, offered.critical].map(|units| units.min(MAX_UNITS));
        if full && !self.units.contains_key(&offered.id) {
            return false;
        }
        if ordinary + critical > 0 {
            let units = self.units.entry(offered.id).or_default();
            *units = [units[0] + ordinary, units[1] + critical];
        }
        true
    }

    fn fields(&self) -> usize {
        let of_counters: usize = self.units.values().map(|units| 1 + usize::from(units[1] > 0)).sum();
        2 + usize::from(self.live > 0) + usize::from(!self.hot.is_empty()) + of_counters
    }
}
