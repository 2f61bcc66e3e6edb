use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;
use tollgate::MemoryStore;
use tollgate::policy::PolicyName;
use tollgate::store::StoreId;

use crate::builder::RatioStoreBuilder;
use crate::counter::{RatioCounter, draw, float, whole};
use crate::events::Metrics;
use crate::parts::{Part, Parts};
use crate::tally::{CounterId, Offered, Totals, micros};

pub(super) const CLOSED: u64 = u64::MAX;

pub(super) struct RatioInner {
    pub(super) id: StoreId,
    pub(super) settings: RatioStoreBuilder,
    pub(super) parts: Parts,
    pub(super) local: MemoryStore,
    pub(super) start: Instant,
    /// Microseconds between the beginning of a tick and the report of this process.
    pub(super) phase: u64,
    totals: ArcSwapOption<Hot>,
    /// By the last reply with any, even if its totals were not used.
    seen: AtomicU64,
    pub(super) is_used: AtomicBool,
    /// Microseconds before which no other task is started.
    pub(super) next_task: AtomicU64,
    pub(super) metrics: Metrics,
}

#[derive(Debug)]
struct Hot {
    until: Instant,
    live: u64,
    totals: BTreeMap<CounterId, [u64; 2]>,
}

impl RatioInner {
    pub(super) fn new(settings: RatioStoreBuilder) -> Self {
        let start = Instant::now();
        let mut next = settings.seed.unwrap_or_else(|| fastrand::u64(..));
        let mut seed = || {
            next = next.wrapping_add(1 << 40);
            next.wrapping_sub(1 << 40)
        };
        // Windows begin with the store: shares of several processes are not aligned anyway.
        let clock = move || Duration::from_secs(1 << 30) + start.elapsed();
        let parts = Parts::new(settings.capacity, start, &mut seed);
        // From 0.1 to 0.9 ticks, so that the clocks of machines do not matter.
        let phase = whole(float(micros(settings.tick)) * (0.1 + 0.8 * draw(&mut seed())));
        Self {
            id: StoreId::new(),
            parts,
            local: MemoryStore::builder().capacity(settings.capacity).clock(clock).build(),
            start,
            phase,
            totals: ArcSwapOption::empty(),
            seen: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
            next_task: AtomicU64::new(0),
            metrics: Metrics::default(),
            settings,
        }
    }

    pub(super) fn micros(&self, time: Instant) -> u64 {
        micros(time.saturating_duration_since(self.start))
    }

    /// `None` without totals within a TTL, or if the store is closed.
    pub(super) fn live(&self, now: Instant) -> Option<u64> {
        let hot = self.totals.load();
        let is_closed = self.next_task.load(Ordering::Acquire) == CLOSED;
        hot.as_ref().filter(|hot| now <= hot.until && !is_closed).map(|hot| hot.live)
    }

    fn last_live(&self) -> u64 {
        self.totals.load().as_ref().map_or(0, |hot| hot.live)
    }

    pub(super) fn instances(&self) -> NonZeroU64 {
        NonZeroU64::from(self.settings.instances).max(NonZeroU64::new(self.last_live()).unwrap_or(NonZeroU64::MIN))
    }

    /// Counters that do not fit the report are limited by the share of this process. Units are scaled to a whole tick,
    /// except in the last report, because this process has already reported for the same tick.
    pub(super) fn begin_tick(&self, now: Instant, is_last: bool) -> Vec<Offered> {
        let (live, mut candidates) = (self.last_live(), Vec::new());
        for mut part in self.parts.each() {
            let elapsed = now.saturating_duration_since(part.since).div_duration_f64(self.settings.tick);
            // Small differences are kept, because units that are counted late in one tick are missing in the next.
            let scale = if is_last || (elapsed - 1.0).abs() <= 0.1 { 1.0 } else { elapsed.recip() };
            let is_full = part.is_full();
            let Part { table, since, seed, .. } = &mut *part;
            *since = now;
            table.iter_mut().for_each(|entry| entry.roll(scale));
            if is_full {
                // Light counters are removed first.
                table.retain(|entry| entry.is_exact(live, now));
            }
            for entry in table.iter() {
                let offered = entry.offered(live, now, || draw(seed));
                candidates.extend(offered.map(|offered| (entry.weight(), entry.hash, offered)));
            }
        }
        candidates.sort_unstable_by(|(one, _, of), (other, _, with)| other.total_cmp(one).then(of.id.cmp(&with.id)));
        let mut room = vec![self.settings.report; self.settings.shards.into()];
        candidates.retain(|(_, hash, Offered { id, .. })| {
            let room = &mut room[usize::from(id.shard(self.settings.shards))];
            let has_room = *room > 0;
            *room -= usize::from(has_room);
            if !has_room && let Some(entry) = self.parts.lock(*hash).table.find_mut(*hash, |entry| entry.id == *id) {
                entry.by_share = true;
            }
            has_room
        });
        candidates.into_iter().map(|(_, _, offered)| offered).collect()
    }

    /// A tick without reports is no data. If a tick has fewer than three quarters of the reports before, some are lost
    /// or processes have ended, and the next tick shows which.
    pub(super) fn hear(&self, reported: impl Iterator<Item = CounterId>, totals: Totals, now: Instant) {
        let Totals { live, .. } = totals;
        if live == 0 || live.saturating_mul(4) < self.seen.swap(live, Ordering::Relaxed).saturating_mul(3) {
            return;
        }
        let (until, hot) = (now + self.settings.ratio_life(), totals.hot.into_iter().collect::<BTreeMap<_, _>>());
        let own: BTreeMap<CounterId, Option<[u64; 2]>> = reported.zip(totals.counters).collect();
        for mut part in self.parts.each() {
            for entry in &mut part.table {
                match hot.get(&entry.id).copied().map(Some).or_else(|| own.get(&entry.id).copied()) {
                    Some(Some(totals)) => entry.hear(totals, until),
                    Some(None) => entry.by_share = true,
                    None => {}
                }
            }
        }
        self.totals.store(Some(Hot { until, live, totals: hot }.into()));
    }

    pub(super) fn tell(&self, entry: &mut RatioCounter) {
        if let Some(hot) = &*self.totals.load()
            && let Some(totals) = hot.totals.get(&entry.id)
        {
            entry.hear(*totals, hot.until);
        }
    }

    pub(super) fn highest(&self, now: Instant) -> (u64, HashMap<PolicyName, f64>) {
        let mut highest = HashMap::new();
        let Some(live) = self.live(now) else { return (0, highest) };
        for part in self.parts.each() {
            for entry in &part.table {
                let most: &mut f64 = highest.entry(entry.counter.policy().clone()).or_default();
                *most = most.max(entry.ratio(now).unwrap_or_default());
            }
        }
        (live, highest)
    }
}
