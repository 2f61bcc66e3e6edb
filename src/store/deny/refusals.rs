//! Rules of the deny cache: lookup, recording and invalidation.
//!
//! Three things end a cached denial: its time (at most to the end of a window of a calendar that it reports), a change
//! of its counter through this process, and an allowed request of the same counter, after which larger costs wait
//! longer than the cached denial says.
//!
//! Until a denied check fits, no check that demands at least as much does, as long as nothing is refunded: time only
//! lowers the count, and other requests only raise it. "As much" depends on the algorithm: see [`DenialScope`]. If the
//! wait for a sum does not follow from the cached denial, the store is called once for that sum, because the returned
//! wait must be exact.
//!
//! Invariant: a denial is served only if the store was called after the last change of its counter. So no denial
//! decided before a refund is served after it. All methods are synchronous and hold one lock at a time, never while the
//! store is called.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use crate::core::Error;
use crate::core::algorithm::{DenialScope, mul_div_ceil};
use crate::core::decision::{Decision, Outcome, Source};
use crate::store::bans::changed;
use crate::store::clock::{Clock, micros};
use crate::store::evaluate::untaken;
use crate::store::map::{Fingerprint, Fingerprints, MapEntry, Shards, Table};
use crate::store::{AskMode, Change, Check, Counter, Mode, Receipt, Settles, StoreDecision, StoreId};

/// Time that a change may take to arrive. Denials by calls made within it are not cached.
const ON_ITS_WAY_US: u64 = 100_000;

/// Minimum capacity of a shard, if there are several.
const REFUSALS_PER_PART: usize = 1_024;

pub(crate) struct Refusals {
    id: StoreId,
    pub(super) shards: Shards<DenyShard>,
    generations: Generations,
    fingerprints: Fingerprints,
    hasher: RandomState,
    clock: Box<dyn Clock>,
    /// Maximum TTL of a denial, in microseconds.
    cap_us: u64,
    pub(super) from_cache: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// Before the call of the store, in microseconds of the cache's clock.
    sent: u64,
    /// Empty until they are needed, because a service that denies nobody never needs them.
    counters: Hashes,
}

type Hashes = SmallVec<[Fingerprint; 2]>;

impl Refusals {
    /// `capacity` must not be zero. With a cap of 0 nothing is cached.
    pub(crate) fn new(id: StoreId, cap: Duration, capacity: usize, clock: Box<dyn Clock>) -> Self {
        let cap_us = u64::try_from(cap.as_micros()).unwrap_or(u64::MAX);
        Self {
            id,
            shards: Shards::new(capacity, REFUSALS_PER_PART, DenyShard::new),
            generations: Generations::new(capacity),
            fingerprints: Fingerprints::new(),
            hasher: RandomState::new(),
            clock,
            cap_us,
            from_cache: AtomicU64::new(0),
        }
    }

    pub(super) fn snapshot(&self, checks: &[Check]) -> Snapshot {
        if self.cap_us == 0 {
            return Snapshot::default();
        }
        let mut snapshot = Snapshot { sent: self.now(), counters: Hashes::new() };
        if self.generations.may_be_live(snapshot.sent) {
            self.hash(&mut snapshot, checks);
        }
        snapshot
    }

    fn hash(&self, snapshot: &mut Snapshot, checks: &[Check]) {
        if snapshot.counters.is_empty() {
            snapshot.counters.extend(checks.iter().map(|check| self.fingerprints.hash(&check.counter)));
        }
    }

    /// Denies possible strikes only by a ban, because the store counts strikes. Checks without a cached denial have 0
    /// left.
    pub(super) fn refusal(&self, snapshot: &Snapshot, checks: &[Check], mode: AskMode) -> Option<StoreDecision> {
        let now = snapshot.sent;
        let may_be_live = || snapshot.counters.iter().any(|counter| self.generations.get(*counter).may_be_live(now));
        if mode == AskMode::Probe || !may_be_live() || !snapshot.is_simple(checks) {
            return None;
        }
        let units = (mode == AskMode::Cached).then(|| one_unit_peeks(checks));
        let checks = units.as_deref().unwrap_or(checks);
        let hits = checks.iter().zip(&snapshot.counters).map(|(check, counter)| self.find(check, *counter, now));
        let hits: SmallVec<[Option<CachedDenial>; 4]> = hits.collect();
        let may_strike = checks.iter().any(Check::strikes);
        if !hits.iter().flatten().any(|hit| hit.is_ban() || !may_strike) {
            return None;
        }
        self.from_cache.fetch_add(1, Ordering::Relaxed);
        let outcomes = checks.iter().zip(&hits).map(|(check, hit)| match hit {
            Some(refusal) => refusal.outcome(check, now),
            None => Outcome::allowed(check, 0),
        });
        Some(StoreDecision::new(Decision::new(outcomes, Source::DenyCache), Receipt::empty(self.id)))
    }

    /// A peek with nothing left denies a cost of one unit, but only by a ban if it has one, because others may be
    /// strikes.
    pub(super) fn record(&self, snapshot: &mut Snapshot, checks: &[Check], decided: &Result<StoreDecision, Error>) {
        let Ok(StoreDecision { decision, .. }) = decided else { return };
        let looks = checks.iter().all(|check| check.cost == 0 && !check.is_only_for_ban());
        let is_taken = !looks && decision.is_allowed();
        if self.cap_us == 0 || is_taken && !self.generations.may_be_live(snapshot.sent) {
            return;
        }
        self.hash(snapshot, checks);
        let (outcomes, is_empty) = (decision.outcomes(), |look: &Outcome| look.remaining() == 0);
        match looks {
            false if is_taken => self.note_taken(snapshot, checks),
            _ if decision.source() != Source::Store => {}
            false if snapshot.is_simple(checks) => self.cache(snapshot, checks, outcomes),
            true if outcomes.iter().any(is_empty) => {
                let refused = |(check, look): (&Check, &Outcome)| {
                    let refuses = is_empty(look) && check.ban.is_none();
                    if refuses { look.to_denied(look.wait()) } else { look.clone() }
                };
                let outcomes: SmallVec<[Outcome; 2]> = checks.iter().zip(outcomes).map(refused).collect();
                self.cache(snapshot, &one_unit_peeks(checks), &outcomes);
            }
            _ => {}
        }
    }

    fn note_taken(&self, snapshot: &Snapshot, checks: &[Check]) {
        for (counter, _) in snapshot.counters.iter().zip(checks).filter(|(_, check)| check.cost > 0) {
            let generation = self.generations.get(*counter);
            if generation.may_be_live(snapshot.sent) {
                generation.forget(self.now() + 1);
            }
        }
    }

    fn cache(&self, snapshot: &Snapshot, checks: &[Check], outcomes: &[Outcome]) {
        let (now, sent) = (self.now(), snapshot.sent);
        let latest = calendars_end(checks, sent).min(sent.saturating_add(self.cap_us));
        for ((check, counter), outcome) in checks.iter().zip(&snapshot.counters).zip(outcomes) {
            let (generation, until) = (self.generations.get(*counter), latest.min(surely_until(check, outcome, sent)));
            let refuses = !outcome.is_allowed() && is_cacheable(check, outcome.is_banned());
            if !refuses || until <= now || !generation.keeps(sent) {
                continue;
            }
            self.generations.until.fetch_max(until, Ordering::SeqCst);
            generation.note(until);
            if outcome.is_banned() {
                let of_ban = self.generations.get(self.fingerprints.hash(&ban_counter(&check.counter)));
                if !of_ban.keeps(sent) {
                    continue;
                }
                of_ban.note(until);
            }
            let refusal = CachedDenial {
                place: self.place(*counter, check, outcome.is_banned()),
                units: demand(check),
                left: if outcome.remaining() > 0 { outcome.remaining().saturating_add(check.floor) } else { 0 },
                sent,
                until,
                retry_at: outcome.retry_after().map_or(u64::MAX, |wait| after(now, wait)),
                reset_at: after(now, outcome.reset_after()),
                minutes: outcome.window_minutes(),
                ban_ends: outcome.banned_for().map_or(0, |left| after(now, left)),
            };
            self.shards.lock(refusal.place.hash).put(refusal, now, self.cap_us / 8);
        }
    }

    /// Also invalidates denials by calls made before the change has certainly arrived.
    pub(crate) fn changed(&self, counter: &Counter, change: Change) {
        self.forget(counter);
        // A ban belongs to the key, whatever the quota. So lifting the ban also ends denials of counters with other
        // windows.
        if change == Change::Lift {
            self.forget(&ban_counter(counter));
        }
    }

    fn forget(&self, counter: &Counter) {
        let (now, generation) = (self.now(), self.generations.get(self.fingerprints.hash(counter)));
        // Also invalidates denials from after this time, if the clock stepped back.
        let stepped_back = generation.may_be_live(now.saturating_add(self.cap_us));
        let before = if stepped_back { generation.until() } else { 0 };
        generation.forget(before.max(now.saturating_add(ON_ITS_WAY_US)));
    }

    fn find(&self, check: &Check, counter: Fingerprint, now: u64) -> Option<CachedDenial> {
        let generation = self.generations.get(counter);
        if !generation.may_be_live(now) {
            return None;
        }
        let of = |by_ban: bool| {
            let place = self.place(counter, check, by_ban);
            let refusal = self.shards.lock(place.hash).find(place, demand(check))?;
            let serves = refusal.is_live(now) && generation.keeps(refusal.sent) && is_cacheable(check, by_ban);
            let is_lifted =
                || !self.generations.get(self.fingerprints.hash(&ban_counter(&check.counter))).keeps(refusal.sent);
            (serves && !(by_ban && is_lifted())).then_some(refusal)
        };
        check.ban.as_ref().and_then(|_| of(true)).or_else(|| of(false))
    }

    fn place(&self, counter: Fingerprint, check: &Check, by_ban: bool) -> DenialKey {
        let alone = if by_ban { Some(demand(check)) } else { demand_alone(check) };
        let hash = self.hasher.hash_one((counter.hash, check.counter.quota(), by_ban, alone));
        DenialKey { hash, counter }
    }

    fn now(&self) -> u64 {
        micros(self.clock.now())
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusals").field("from_cache", &self.from_cache).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Whether a check's denial denies the request: no check is in shadow mode, because those are decided each time,
    /// and no two are of one counter, because two demand more than each of them.
    fn is_simple(&self, checks: &[Check]) -> bool {
        let repeats = |(index, counter)| self.counters[..index].contains(counter);
        !self.counters.iter().enumerate().any(repeats) && checks.iter().all(|check| check.mode != Mode::Shadow)
    }
}

/// A denial by quota holds until its wait is over, unless units may be refunded, or slots released, at any moment.
fn is_cacheable(check: &Check, by_ban: bool) -> bool {
    let has_cost = check.cost > 0 || by_ban && check.is_only_for_ban();
    let is_plain = || !check.strikes() && check.settles == Settles::AsTaken && !check.counter.quota().facts().held;
    has_cost && check.mode == Mode::Enforce && (by_ban || is_plain())
}

fn ban_counter(counter: &Counter) -> Counter {
    changed(&untaken(counter), Change::Lift).0.into_owned().counter
}

fn one_unit_peeks(looks: &[Check]) -> SmallVec<[Check; 2]> {
    let cost = |look: &Check| if look.is_only_for_ban() { 0 } else { look.cost.max(1) };
    looks.iter().map(|look| look.clone().cost(cost(look))).collect()
}

/// Returns until when a check that was sent at `sent` is certainly denied: `u64::MAX` if no wait helps.
fn surely_until(check: &Check, outcome: &Outcome, sent: u64) -> u64 {
    // After a ban the quota may deny, which is a strike. A denial that extends the ban has to reach the store before it
    // ends.
    let extends = check.strikes() && check.ban.as_deref().is_some_and(|ban| ban.ban.extends);
    let ban = outcome.banned_for().map(|left| if extends { left / 2 } else { left });
    // A tick that had begun ends before a whole tick has passed. Ticks of bans are 1 ms.
    let begun = if outcome.is_banned() { 999 } else { check.counter.quota().tick().micros() - 1 };
    ban.or(outcome.retry_after()).map_or(u64::MAX, |wait| after(sent, wait).saturating_sub(begun))
}

/// A cached denial ends with the first window of a calendar, because it reports the length of that window.
fn calendars_end(checks: &[Check], now: u64) -> u64 {
    let calendars = checks.iter().filter_map(|check| check.counter.quota().calendar());
    let ends = calendars.map(|calendar| calendar.window_at(now / 1_000).end.saturating_mul(1_000));
    ends.min().unwrap_or(u64::MAX)
}

fn after(now: u64, wait: Duration) -> u64 {
    now.saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
}

/// Times in microseconds. Small, because it makes up the memory of a flood of denials.
#[derive(Clone, Copy, Debug)]
struct CachedDenial {
    place: DenialKey,
    units: u64,
    left: u64,
    sent: u64,
    until: u64,
    /// When the demand fits, counted from the reply: never early. `u64::MAX` if no wait helps.
    retry_at: u64,
    reset_at: u64,
    minutes: u16,
    /// End of the key's ban, counted from the reply. 0 without a ban.
    ban_ends: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DenialKey {
    /// Hash of counter, quota and, for some algorithms, the sum, with random keys of this process.
    hash: u64,
    /// Identifies the counter. Clients cannot cause collisions.
    counter: Fingerprint,
}

/// Entries of equal size: the text of a counter, which clients may make long, is not kept.
#[derive(Debug)]
pub(super) struct DenyShard {
    table: Table<CachedDenial>,
    search_at: u64,
}

/// Cost plus floor, or the floor alone where the algorithm denies by that. All sums beyond the capacity are equal.
fn demand(check: &Check) -> u64 {
    let quota = check.counter.quota();
    match check.cost.saturating_add(check.floor) {
        _ if quota.decides_by_floor(check.cost, check.floor) => check.floor,
        sum => sum.min(quota.capacity() + 1),
    }
}

fn demand_alone(check: &Check) -> Option<u64> {
    (check.counter.quota().facts().refusal == DenialScope::SameSum).then(|| demand(check))
}

impl CachedDenial {
    fn is_ban(&self) -> bool {
        self.ban_ends > 0
    }

    /// If the clock steps back, denials from after its new time end.
    fn is_live(&self, now: u64) -> bool {
        self.sent <= now && now < self.until
    }

    /// Times count down from the report, and never end early. `more` units take `more * window / limit` further ticks.
    fn outcome(&self, check: &Check, now: u64) -> Outcome {
        let (quota, demand) = (check.counter.quota(), demand(check));
        let left = |time: u64| Duration::from_micros(time.saturating_sub(now));
        let more = if quota.facts().returns_evenly { demand - self.units } else { 0 };
        let ticks = || mul_div_ceil(more, quota.window_ticks(), quota.limit());
        let later = || ticks().saturating_mul(quota.tick().micros());
        let helps = self.retry_at != u64::MAX && demand <= quota.capacity();
        let wait = helps.then(|| left(self.retry_at.saturating_add(later())));
        let outcome = Outcome::denied(check, self.left.saturating_sub(check.floor), wait)
            .with_reset_after(left(self.reset_at))
            .with_window_minutes(self.minutes);
        if self.is_ban() { outcome.banned(left(self.ban_ends)) } else { outcome }
    }
}

impl DenyShard {
    fn new(room: usize) -> Self {
        Self { table: Table::new(room), search_at: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    fn find(&self, place: DenialKey, demand: u64) -> Option<CachedDenial> {
        let refusal = self.table.find(place.hash, |refusal| refusal.place == place)?;
        let serves = refusal.units == demand || refusal.units < demand && !refusal.is_ban();
        serves.then_some(*refusal)
    }

    /// Searches a full table at most once per `pause_us`.
    fn put(&mut self, refusal: CachedDenial, now: u64, pause_us: u64) {
        let place = refusal.place;
        if let Some(old) = self.table.find_mut(place.hash, |old| old.place == place) {
            *old = refusal;
        } else if self.has_room(now, pause_us) {
            self.table.insert(refusal);
        }
    }

    /// Live denials are not evicted, so invented keys cannot evict them.
    fn has_room(&mut self, now: u64, pause_us: u64) -> bool {
        if !self.table.is_due() {
            return true;
        }
        if self.table.is_full() && now < self.search_at {
            return false;
        }
        self.table.sweep(|refusal| now < refusal.until);
        self.search_at = now.saturating_add(pause_us);
        !self.table.is_full()
    }
}

impl MapEntry for CachedDenial {
    fn hash(&self) -> u64 {
        self.place.hash
    }
}

/// Counters share generations, so that one invalidation also drops denials of some other counters.
const MAX_GENERATIONS: usize = 16_384;

/// Times of changes. A denial is live only if the store was called later, so that invalidation is one write, without a
/// lock.
#[derive(Debug)]
struct Generations {
    each: Box<[Generation]>,
    /// When the last denial of all expires.
    until: AtomicU64,
}

#[derive(Debug, Default)]
struct Generation {
    /// Denials by calls made earlier are invalid.
    from: AtomicU64,
    /// When the last denial expires.
    until: AtomicU64,
}

impl Generations {
    fn new(refusals: usize) -> Self {
        let count = refusals.min(MAX_GENERATIONS).next_power_of_two();
        Self { each: (0..count).map(|_| Generation::default()).collect(), until: AtomicU64::new(0) }
    }

    fn may_be_live(&self, now: u64) -> bool {
        self.until.load(Ordering::SeqCst) > now
    }

    fn get(&self, counter: Fingerprint) -> &Generation {
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let bits = counter.hash as usize;
        &self.each[bits & (self.each.len() - 1)]
    }
}

impl Generation {
    fn may_be_live(&self, now: u64) -> bool {
        self.until.load(Ordering::SeqCst) > now
    }

    fn until(&self) -> u64 {
        self.until.load(Ordering::SeqCst)
    }

    fn forget(&self, before: u64) {
        self.from.fetch_max(before, Ordering::SeqCst);
    }

    fn keeps(&self, sent: u64) -> bool {
        sent >= self.from.load(Ordering::SeqCst)
    }

    fn note(&self, until: u64) {
        self.until.fetch_max(until, Ordering::SeqCst);
    }
}
