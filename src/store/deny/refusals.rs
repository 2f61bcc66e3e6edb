//! The rules of the deny cache: what is refused from earlier refusals, what is cached, and when it is forgotten.
//!
//! Checks come in, before and after the store's decision; refusals go out. Three things end a cached refusal: its time
//! (no later than a window of a calendar that it reports), a change of its counter through this process, and an admitted
//! request of the same counter, after which larger costs wait longer than the cached refusal says.
//!
//! Until a refused check fits, none that demands at least as much does, as long as nothing is refunded: time only lowers
//! what is counted, and other requests only raise it. What "as much" means depends on the algorithm: see [`Refusal`].
//! As the wait that is returned must be exact, the store is called once for each sum whose wait does not follow.
//!
//! Invariant: a refusal is served only if the store was called after the last change of its counter, so no refusal that
//! was decided before a refund is served after it. All methods are synchronous and hold one lock at a time, never while
//! the store is called.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use crate::core::Error;
use crate::core::algorithm::{Refusal, mul_div_ceil};
use crate::core::decision::{Decision, Outcome, Source};
use crate::store::bans::changed;
use crate::store::clock::{Clock, micros};
use crate::store::evaluate::of_any;
use crate::store::map::{Fingerprint, Fingerprints, MapEntry, Shards, Table};
use crate::store::{AskMode, Change, Check, Counter, Mode, Receipt, Settles, StoreDecision, StoreId};

/// A change may arrive this much later than it is made. Refusals by calls made meanwhile are not cached.
const ON_ITS_WAY_US: u64 = 100_000;

/// The least refusals of a part: there are several parts only if each has room for so many.
const REFUSALS_PER_PART: usize = 1_024;

/// The deny cache of one store.
pub(crate) struct Refusals {
    /// The store whose refusals these are.
    id: StoreId,
    /// The cached refusals.
    pub(super) shards: Shards<DenyShard>,
    /// When counters were changed.
    generations: Generations,
    /// What identifies the counter of a cached refusal without its text.
    fingerprints: Fingerprints,
    /// The hash of what else identifies it.
    hasher: RandomState,
    /// Where the time comes from.
    clock: Box<dyn Clock>,
    /// The longest a refusal is served, in microseconds.
    cap_us: u64,
    /// How many requests were refused from memory.
    pub(super) from_cache: AtomicU64,
}

/// What is noted of a request before the store decides it, with which the decision is recorded.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// The time before the store was called, in microseconds of the cache's clock.
    sent: u64,
    /// What identifies the counter of each check, in their order; two of them need no allocation.
    counters: SmallVec<[Fingerprint; 2]>,
    /// Whether refusals of the checks are those of the request: none is in shadow mode, and no two are of one counter.
    is_simple: bool,
    /// Whether all of its checks only look (cost 0).
    looks: bool,
}

impl Refusals {
    /// Returns an empty cache for `capacity` refusals of the store `id`, which must not be zero. With a cap of 0 it
    /// caches nothing.
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

    /// Notes a request before the store is called.
    pub(super) fn snapshot(&self, checks: &[Check]) -> Snapshot {
        if self.cap_us == 0 {
            return Snapshot::default();
        }
        let counters: SmallVec<[Fingerprint; 2]> =
            checks.iter().map(|check| self.fingerprints.of(&check.counter)).collect();
        let repeats = counters.iter().enumerate().any(|(index, counter)| counters[..index].contains(counter));
        // Checks in shadow mode are decided each time, and two checks of one counter demand more than
        // each of them.
        let is_simple = !repeats && checks.iter().all(|check| check.mode != Mode::Shadow);
        let looks = checks.iter().all(|check| check.cost == 0 && !check.is_only_for_ban());
        Snapshot { sent: self.now(), counters, is_simple, looks }
    }

    /// Returns the refusal of a request, if a cached one applies to any of its checks.
    ///
    /// A request that may be a strike is refused only if a key is banned: the store counts strikes. A check of which
    /// nothing is cached reports that nothing remains, which is never too much.
    pub(super) fn refusal(&self, snapshot: &Snapshot, checks: &[Check], mode: AskMode) -> Option<StoreDecision> {
        let now = snapshot.sent;
        let may_be_live = || snapshot.counters.iter().any(|counter| self.generations.of(*counter).may_be_live(now));
        if mode == AskMode::Probe || !snapshot.is_simple || !may_be_live() {
            return None;
        }
        let units = (mode == AskMode::Cached).then(|| of_one_unit(checks));
        let checks = units.as_deref().unwrap_or(checks);
        let hits = checks.iter().zip(&snapshot.counters).map(|(check, counter)| self.find(check, *counter, now));
        let hits: SmallVec<[Option<Cached>; 4]> = hits.collect();
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

    /// Records a decision. Refusals are those of the store itself, and not of another source, such as a fallback.
    ///
    /// If a look has nothing left beyond its floor, a cost of one unit would be refused. Of looks with bans only the
    /// refusals by a ban are cached, as others may be strikes.
    pub(super) fn record(&self, snapshot: &Snapshot, checks: &[Check], decided: &Result<StoreDecision, Error>) {
        let Ok(StoreDecision { decision, .. }) = decided else { return };
        let (outcomes, is_empty) = (decision.outcomes(), |look: &Outcome| look.remaining() == 0);
        match snapshot.looks {
            false if decision.is_allowed() => self.note_taken(snapshot, checks),
            _ if decision.source() != Source::Store => {}
            false if snapshot.is_simple => self.cache(snapshot, checks, outcomes),
            true if outcomes.iter().any(is_empty) => {
                let refused = |(check, look): (&Check, &Outcome)| {
                    let refuses = is_empty(look) && check.ban.is_none();
                    if refuses { look.to_denied(look.wait()) } else { look.clone() }
                };
                let outcomes: SmallVec<[Outcome; 2]> = checks.iter().zip(outcomes).map(refused).collect();
                self.cache(snapshot, &of_one_unit(checks), &outcomes);
            }
            _ => {}
        }
    }

    /// Forgets refusals of larger costs than an admitted one: they wait longer now.
    fn note_taken(&self, snapshot: &Snapshot, checks: &[Check]) {
        for (counter, _) in snapshot.counters.iter().zip(checks).filter(|(_, check)| check.cost > 0) {
            let generation = self.generations.of(*counter);
            if generation.may_be_live(snapshot.sent) {
                generation.forget(self.now() + 1);
            }
        }
    }

    fn cache(&self, snapshot: &Snapshot, checks: &[Check], outcomes: &[Outcome]) {
        let (now, sent) = (self.now(), snapshot.sent);
        let latest = calendars_end(checks, sent).min(sent.saturating_add(self.cap_us));
        for ((check, counter), outcome) in checks.iter().zip(&snapshot.counters).zip(outcomes) {
            let (generation, until) = (self.generations.of(*counter), latest.min(surely_until(check, outcome, sent)));
            let refuses = !outcome.is_allowed() && is_cacheable(check, outcome.is_banned());
            if !refuses || until <= now || !generation.keeps(sent) {
                continue;
            }
            generation.note(until);
            if outcome.is_banned() {
                let of_ban = self.generations.of(self.fingerprints.of(&of_ban(&check.counter)));
                if !of_ban.keeps(sent) {
                    continue;
                }
                of_ban.note(until);
            }
            let refusal = Cached {
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

    /// Forgets a counter that is changed, and refusals by calls made before the change has surely arrived.
    ///
    /// A ban is that of the key, whatever the quota: if it is lifted, so are the refusals of counters of other windows.
    pub(crate) fn changed(&self, counter: &Counter, change: Change) {
        self.forget(counter);
        if change == Change::Lift {
            self.forget(&of_ban(counter));
        }
    }

    fn forget(&self, counter: &Counter) {
        let (now, generation) = (self.now(), self.generations.of(self.fingerprints.of(counter)));
        // Refusals from after this time are forgotten too, where the clock stepped back.
        let stepped_back = generation.may_be_live(now.saturating_add(self.cap_us));
        let before = if stepped_back { generation.until() } else { 0 };
        generation.forget(before.max(now.saturating_add(ON_ITS_WAY_US)));
    }

    /// Returns the live cached refusal of a check, or of a smaller demand that implies it.
    fn find(&self, check: &Check, counter: Fingerprint, now: u64) -> Option<Cached> {
        let generation = self.generations.of(counter);
        if !generation.may_be_live(now) {
            return None;
        }
        let of = |by_ban: bool| {
            let place = self.place(counter, check, by_ban);
            let refusal = self.shards.lock(place.hash).find(place, demand(check))?;
            let serves = refusal.is_live(now) && generation.keeps(refusal.sent) && is_cacheable(check, by_ban);
            let is_lifted = || !self.generations.of(self.fingerprints.of(&of_ban(&check.counter))).keeps(refusal.sent);
            (serves && !(by_ban && is_lifted())).then_some(refusal)
        };
        check.ban.as_ref().and_then(|_| of(true)).or_else(|| of(false))
    }

    fn place(&self, counter: Fingerprint, check: &Check, by_ban: bool) -> Place {
        let alone = if by_ban { Some(demand(check)) } else { demand_alone(check) };
        let hash = self.hasher.hash_one((counter.hash, check.counter.quota(), by_ban, alone));
        Place { hash, counter }
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

/// Returns whether a refusal of this check may be cached, by a ban or by its quota.
///
/// A ban ends by time alone, or is lifted. A refusal by the quota holds until its wait is over if the check has a cost,
/// is enforced, is no strike, and settles as taken: units that are refunded by a request's outcome may be available at
/// any moment, and so may slots.
fn is_cacheable(check: &Check, by_ban: bool) -> bool {
    let has_cost = check.cost > 0 || by_ban && check.is_only_for_ban();
    let is_plain = || !check.strikes() && check.settles == Settles::AsTaken && !check.counter.quota().facts().held;
    has_cost && check.mode == Mode::Enforce && (by_ban || is_plain())
}

fn of_ban(counter: &Counter) -> Counter {
    changed(&of_any(counter), Change::Lift).0.into_owned().counter
}

/// Returns looks as checks of the unit that they stand for.
fn of_one_unit(looks: &[Check]) -> SmallVec<[Check; 2]> {
    let cost = |look: &Check| if look.is_only_for_ban() { 0 } else { look.cost.max(1) };
    looks.iter().map(|look| look.clone().cost(cost(look))).collect()
}

/// Returns until when a check that was sent at `sent` is surely refused: `u64::MAX` if no wait helps.
///
/// After a ban the quota may refuse, which is a strike; and a refusal that extends the ban has to reach the store before
/// it ends. A tick that had begun when the store was called is over before a whole one has passed; those of bans are 1 ms.
fn surely_until(check: &Check, outcome: &Outcome, sent: u64) -> u64 {
    let extends = check.strikes() && check.ban.as_deref().is_some_and(|ban| ban.ban.extends);
    let ban = outcome.banned_for().map(|left| if extends { left / 2 } else { left });
    let begun = if outcome.is_banned() { 999 } else { check.counter.quota().tick().micros() - 1 };
    ban.or(outcome.retry_after()).map_or(u64::MAX, |wait| after(sent, wait).saturating_sub(begun))
}

/// Returns when the first of the windows of a calendar ends that checks count in, by this process's clock; the largest
/// number if there is none. The next one may be of another length, and a cached refusal would report that of the last.
fn calendars_end(checks: &[Check], now: u64) -> u64 {
    let calendars = checks.iter().filter_map(|check| check.counter.quota().calendar());
    let ends = calendars.map(|calendar| calendar.window_at(now / 1_000).end.saturating_mul(1_000));
    ends.min().unwrap_or(u64::MAX)
}

fn after(now: u64, wait: Duration) -> u64 {
    now.saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
}

/// A cached refusal of a counter. Times are microseconds of this process's clock. It is kept small: its size is what the
/// memory of a flood of refusals consists of.
#[derive(Clone, Copy, Debug)]
struct Cached {
    place: Place,
    /// What was [demanded](demand).
    units: u64,
    /// What was left, with the floor of the check that was refused; 0 if nothing was left.
    left: u64,
    /// When the store was called.
    sent: u64,
    /// Until when this may be returned.
    until: u64,
    /// When the demand fits again, counted from the reply: never early. The largest number if no wait helps.
    retry_at: u64,
    reset_at: u64,
    /// The length of the window that counted, as outcomes keep it.
    minutes: u16,
    /// When the ban of the key ends, counted from the reply; 0 if it is not banned.
    ban_ends: u64,
}

/// What identifies a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Of counter, quota and perhaps the sum, with random keys of this process.
    hash: u64,
    /// Of the counter: no client can choose two that collide.
    counter: Fingerprint,
}

/// The refusals of one part of the map, by counter, quota and, where no other sum is implied, the sum that was refused. All
/// take the same room: the text of a counter, which clients may choose and make long, is not kept.
#[derive(Debug)]
pub(super) struct DenyShard {
    /// Swept when it has doubled, and when it is full at most once in a pause.
    table: Table<Cached>,
    /// When it is searched for room again, if it is full.
    search_at: u64,
}

/// Returns how much a check demands of its counter: the sum of its cost and floor, or its floor alone where the algorithm
/// refuses by that. Sums beyond the capacity are all alike, as no wait helps any of them.
fn demand(check: &Check) -> u64 {
    let quota = check.counter.quota();
    match check.cost.saturating_add(check.floor) {
        _ if quota.decides_by_floor(check.cost, check.floor) => check.floor,
        sum => sum.min(quota.capacity() + 1),
    }
}

/// Returns the demand of a check whose refusal implies that of no other demand.
fn demand_alone(check: &Check) -> Option<u64> {
    (check.counter.quota().facts().refusal == Refusal::SameSum).then(|| demand(check))
}

impl Cached {
    /// Returns whether the key was banned: what demands another number of units may have to wait for longer.
    fn is_ban(&self) -> bool {
        self.ban_ends > 0
    }

    /// Returns whether the refusal holds at `now`. If the clock steps back, refusals from after its new time end.
    fn is_live(&self, now: u64) -> bool {
        self.sent <= now && now < self.until
    }

    /// Returns the outcome of a check that demands as much, or more where it is no ban, as the store would have reported
    /// it: times count down from when they were reported, and never end early.
    ///
    /// Where units return evenly, more of them are there after `more * window / limit` further ticks; with other
    /// algorithms that imply a refusal of more, all return at once.
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

    /// Returns the cached refusal of a demand, or of a smaller one that implies it.
    ///
    /// It may be no longer live; the caller checks that.
    fn find(&self, place: Place, demand: u64) -> Option<Cached> {
        let refusal = self.table.find(place.hash, |refusal| refusal.place == place)?;
        let serves = refusal.units == demand || refusal.units < demand && !refusal.is_ban();
        serves.then_some(*refusal)
    }

    /// Caches a refusal instead of the one at its place, or if there is room at `now`. A full part is not searched for
    /// room again for `pause_us`.
    fn put(&mut self, refusal: Cached, now: u64, pause_us: u64) {
        let place = refusal.place;
        if let Some(old) = self.table.find_mut(place.hash, |old| old.place == place) {
            *old = refusal;
        } else if self.has_room(now, pause_us) {
            self.table.insert(refusal);
        }
    }

    /// Returns whether one more fits. Live refusals are not evicted, so that made-up keys push out no others:
    /// requests whose refusals find no room reach the store.
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

impl MapEntry for Cached {
    fn hash(&self) -> u64 {
        self.place.hash
    }
}

/// The most generations, which counters share: if one is forgotten, a few others are too.
const MOST_GENERATIONS: usize = 16_384;

/// When counters were changed, by their fingerprint: a refusal is live only if the store was called later. So
/// forgetting a counter is one write, without a search for its refusals.
///
/// All fields are atomics, read and written in one total order (`SeqCst`) without any lock. Times are microseconds of the
/// cache's clock.
#[derive(Debug)]
struct Generations(Box<[Generation]>);

/// The state of all counters whose hashes pick it.
#[derive(Debug, Default)]
struct Generation {
    /// Refusals by calls made before this are forgotten.
    from: AtomicU64,
    /// Until when there may be refusals to serve or forget: mostly there are none.
    until: AtomicU64,
}

impl Generations {
    fn new(refusals: usize) -> Self {
        let count = refusals.min(MOST_GENERATIONS).next_power_of_two();
        Self((0..count).map(|_| Generation::default()).collect())
    }

    fn of(&self, counter: Fingerprint) -> &Generation {
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let bits = counter.hash as usize;
        &self.0[bits & (self.0.len() - 1)]
    }
}

impl Generation {
    fn may_be_live(&self, now: u64) -> bool {
        self.until.load(Ordering::SeqCst) > now
    }

    /// Returns until when there may be refusals.
    fn until(&self) -> u64 {
        self.until.load(Ordering::SeqCst)
    }

    /// Forgets refusals by calls made before a time.
    fn forget(&self, before: u64) {
        self.from.fetch_max(before, Ordering::SeqCst);
    }

    /// Returns whether a refusal by a call made at `sent` is not forgotten.
    fn keeps(&self, sent: u64) -> bool {
        sent >= self.from.load(Ordering::SeqCst)
    }

    /// Notes that there is a refusal until then.
    fn note(&self, until: u64) {
        self.until.fetch_max(until, Ordering::SeqCst);
    }
}
