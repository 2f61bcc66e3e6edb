//! What all clones of a ratio store share: the counters, the tally, the last totals.
//!
//! Every other file of this module works on [`Shared`]. Parts of the map are locked for a few probes, or to go through
//! their entries once in a tick, and never across an `await`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::Handle as Runtime;
use tokio::time::Instant;

use super::entry::{Entry, Moment};
use super::law::Draws;
use super::phase::Phase;
use super::tally::{CounterId, Tally};
use crate::core::PolicyName;
use crate::store::map::{CounterHasher, Locked, Shards, Table};
use crate::store::{Check, Counter, MemoryStore, StoreId};
use crate::telemetry::Telemetry;

/// After so many ticks without a decision, nothing is reported.
const IDLE: u32 = 60;

/// The settings of a store, which were checked.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) tick: Duration,
    pub(super) life: Duration,
    pub(super) report: usize,
    pub(super) capacity: usize,
    pub(super) shards: u8,
    pub(super) instances: u64,
    pub(super) fair: Option<(PolicyName, PolicyName)>,
    pub(super) seed: u64,
}

/// The counters of a store, and what it knows of all processes.
pub(super) struct Shared {
    pub(super) id: StoreId,
    pub(super) settings: Settings,
    pub(super) tally: Box<dyn Tally>,
    /// The counters, by the hash of policy and key.
    pub(super) parts: Shards<Part>,
    hasher: CounterHasher,
    /// Decides by the share of this process.
    pub(super) local: MemoryStore,
    /// The zero of all times here.
    pub(super) start: Instant,
    /// When totals were received last, in microseconds and 1 more; 0 if there were none.
    heard: AtomicU64,
    /// How many processes reported then; 0 if there were no totals.
    live: AtomicU64,
    /// How many processes reported by the last reply with any, whether its totals were taken or not.
    seen: AtomicU64,
    /// The hot counters of the last totals.
    pub(super) hot: ArcSwap<Hot>,
    /// When the last decision was made, in microseconds.
    used: AtomicU64,
    /// The number of the task that reports; 0 if there is none.
    pub(super) task: AtomicU64,
    /// Before this time no other task is started, in microseconds.
    pub(super) next_task: AtomicU64,
    pub(super) closed: AtomicBool,
    pub(super) phase: Phase,
    pub(super) telemetry: Telemetry,
    /// The first runtime that a request came from.
    runtime: OnceLock<Runtime>,
}

/// A part of the counters.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) table: Table<Entry>,
    /// When the current tick of this process began.
    pub(super) since: Instant,
    /// When it was last swept, as it was full.
    swept: Option<Instant>,
    pub(super) draws: Draws,
}

/// The totals of hot counters, sorted, and when they were received.
#[derive(Debug)]
pub(super) struct Hot {
    pub(super) heard: Option<Instant>,
    pub(super) totals: Vec<(CounterId, [u64; 2])>,
}

impl Shared {
    pub(super) fn new(tally: Box<dyn Tally>, settings: Settings) -> Self {
        let start = Instant::now();
        let mut draws = Draws::new(settings.seed);
        let phase = Phase::new(settings.tick, draws.draw());
        let seeds = Mutex::new(draws);
        let part = |room| {
            let seed = seeds.lock().unwrap_or_else(PoisonError::into_inner).draw();
            Part { table: Table::swept_when_full(room), since: start, swept: None, draws: Draws::new(seed) }
        };
        // Windows begin with the store: shares of several processes are not aligned anyway.
        let clock = move || Duration::from_secs(1 << 30) + start.elapsed();
        Self {
            id: StoreId::new(),
            tally,
            parts: Shards::new(settings.capacity, 64, part),
            hasher: CounterHasher::new(),
            local: MemoryStore::builder().capacity(settings.capacity).with_clock(clock).build(),
            start,
            heard: AtomicU64::new(0),
            live: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            hot: ArcSwap::from_pointee(Hot { heard: None, totals: Vec::new() }),
            used: AtomicU64::new(0),
            task: AtomicU64::new(0),
            next_task: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            phase,
            telemetry: Telemetry::default(),
            runtime: OnceLock::new(),
            settings,
        }
    }

    /// Returns the microseconds since the start.
    pub(super) fn micros(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.start).as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the current runtime, else the first that a request came from; `None` before there was any.
    pub(super) fn runtime(&self) -> Option<Runtime> {
        let current = Runtime::try_current().ok();
        if let Some(runtime) = &current {
            let _ = self.runtime.set(runtime.clone());
        }
        current.or_else(|| self.runtime.get().cloned())
    }

    /// Notes a decision, and returns its time in microseconds.
    pub(super) fn touch(&self, now: Instant) -> u64 {
        let micros = self.micros(now);
        self.used.store(micros, Ordering::Relaxed);
        micros
    }

    /// Returns the end of a life that begins at `now`, in microseconds.
    pub(super) fn life_from(&self, now: Instant) -> u64 {
        self.micros(now + self.settings.life)
    }

    /// Returns whether there was no decision for 60 ticks, or a life if that is longer.
    ///
    /// The first request after that is admitted by the share: of n processes, at most n / 60 in a tick.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let idle = self.micros(now).saturating_sub(self.used.load(Ordering::SeqCst));
        u128::from(idle) > self.settings.life.max(self.settings.tick * IDLE).as_micros()
    }

    /// Returns whether a tick with reports of `live` processes has those of all: one with none is no data, and one with
    /// fewer than three quarters of those before has lost some, or processes have ended; the next tick shows which.
    pub(super) fn is_complete(&self, live: u64) -> bool {
        live > 0 && u128::from(live) * 4 >= u128::from(self.seen.swap(live, Ordering::Relaxed)) * 3
    }

    /// Notes that totals of `live` processes were received.
    pub(super) fn hear(&self, now: Instant, live: u64) {
        self.live.store(live, Ordering::Relaxed);
        self.heard.store(self.micros(now).saturating_add(1), Ordering::Release);
    }

    /// Returns whether totals were received within a life, and it was not closed.
    pub(super) fn is_known(&self, now: Instant) -> bool {
        let heard = self.heard.load(Ordering::Acquire);
        !self.closed.load(Ordering::Acquire)
            && heard > 0
            && u128::from((self.micros(now) + 1).saturating_sub(heard)) <= self.settings.life.as_micros()
    }

    /// Returns how many processes reported in the last tick of which there were totals; 0 if there was none.
    pub(super) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Returns how many processes limits are divided by: at least 1.
    pub(super) fn instances(&self) -> u64 {
        self.settings.instances.max(self.live())
    }

    pub(super) fn hash(&self, counter: &Counter) -> u64 {
        self.hasher.of(counter)
    }

    /// The parts of all checks, locked.
    pub(super) fn lock_all(&self, checks: &[Check]) -> Locked<'_, Part> {
        self.parts.lock_all(checks.iter().map(|check| self.hash(&check.counter)))
    }

    pub(super) fn moment(&self, now: Instant, since: Instant) -> Moment {
        Moment { now, since, tick: self.settings.tick, life: self.settings.life }
    }

    /// Returns the totals of a counter that is hot, and when they were received.
    pub(super) fn hot_totals(&self, id: &CounterId, now: Instant) -> Option<([u64; 2], Instant)> {
        let hot = self.hot.load();
        let heard = hot.heard.filter(|heard| now.saturating_duration_since(*heard) <= self.settings.life)?;
        let place = hot.totals.binary_search_by_key(id, |(id, _)| *id).ok()?;
        Some((hot.totals[place].1, heard))
    }
}

impl Part {
    /// Returns the entry of a counter.
    pub(super) fn find(&self, hash: u64, counter: &Counter) -> Option<&Entry> {
        self.table.find(hash, |entry| is_of(entry, counter))
    }

    /// Returns the entry of a check's counter, made if there is room: entries that mean little are dropped for it, at
    /// most once in a tick.
    pub(super) fn make(&mut self, shared: &Shared, hash: u64, check: &Check, now: Instant) -> Option<&mut Entry> {
        let moment = shared.moment(now, self.since);
        let live = shared.live();
        let stays = |entry: &Entry| entry.is_worth_its_place(live, &moment);
        if self.table.is_full() {
            // Or each made-up key would go through all that are there.
            if self.swept.is_some_and(|swept| now.saturating_duration_since(swept) < moment.tick) {
                let entry = self.table.find_mut(hash, |entry| is_of(entry, &check.counter))?;
                entry.follow(check, &moment);
                return Some(entry);
            }
            self.swept = Some(now);
            self.table.sweep(stays);
        }
        let make = || {
            let mut entry = Entry::new(hash, &check.counter, &moment);
            entry.follow(check, &moment);
            if let Some((totals, heard)) = shared.hot_totals(&entry.id, now) {
                entry.hear_first(totals, heard);
            }
            Some(entry)
        };
        let entry = self.table.find_or_insert(hash, |entry| is_of(entry, &check.counter), make, stays)?;
        entry.follow(check, &moment);
        Some(entry)
    }
}

/// Whether an entry is that of a counter, whatever its quota.
pub(super) fn is_of(entry: &Entry, counter: &Counter) -> bool {
    entry.counter.policy() == counter.policy() && entry.counter.key() == counter.key()
}
