//! The rules of the deny cache: what is refused from earlier refusals, what is cached, and when it is forgotten.
//!
//! Checks come in, before and after the store's decision; refusals go out. Three things end a cached refusal: its time
//! (`until`, in `table`; no later than a window of a calendar that it reports), a change of its counter through this
//! process (a new generation, in `slots`), and an admitted request of the same counter, after which larger costs wait
//! longer than the cached refusal says.
//!
//! Invariant: a refusal is cached only if the generation of its counter is what it was before the store was called, so
//! no refusal that was decided before a refund is served after it. All methods are synchronous and hold one lock at a
//! time, never while the store is called.

use std::array;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use super::demand::Demand;
use super::outcomes::{denied, last_reported};
use super::slots::Slots;
use super::snapshot::{CacheLookup, CachedStrikes, Mark, Marks, Snapshot, is_ban_cacheable, is_cacheable, repeats};
use super::strikes::{has_bans, is_for_the_store};
use super::table::{Cached, CachedRefusals, MOST_OTHERS, Other, Place, after};
use crate::core::Quota;
use crate::core::decision::{Decision, Outcome, Source};
use crate::store::clock::{Clock, micros};
use crate::store::map::{CounterHasher, Fingerprints};
use crate::store::{Check, Counter, Decided, Mode, Receipt, StoreId};

/// The deny cache of one store.
pub(crate) struct Refusals {
    /// The store whose refusals these are.
    id: StoreId,
    /// The cached refusals.
    kept: CachedRefusals,
    /// The generations of counters.
    slots: Slots,
    /// The hash of counters in marks and places.
    hasher: CounterHasher,
    /// What identifies the counter of a cached refusal without its text.
    fingerprints: Fingerprints,
    /// Where the time comes from.
    clock: Box<dyn Clock>,
    /// The longest a refusal is served, in microseconds.
    cap_us: u64,
    /// How many requests were refused from memory.
    from_cache: AtomicU64,
}

/// The cached refusal of each check of a request, in their order.
type Hits = SmallVec<[Option<Cached>; 4]>;

impl Refusals {
    /// Returns an empty cache for `capacity` refusals of the store `id`; both `cap` and `capacity` must not be zero.
    pub(super) fn new(id: StoreId, cap: Duration, capacity: usize, clock: Box<dyn Clock>) -> Self {
        let cap_us = u64::try_from(cap.as_micros()).unwrap_or(u64::MAX);
        Self {
            id,
            kept: CachedRefusals::new(capacity, cap_us),
            slots: Slots::new(capacity),
            hasher: CounterHasher::new(),
            fingerprints: Fingerprints::new(),
            clock,
            cap_us,
            from_cache: AtomicU64::new(0),
        }
    }

    /// Returns the identity that receipts of cached refusals have.
    pub(super) fn id(&self) -> StoreId {
        self.id
    }

    /// Returns how many requests were refused without calling the store.
    pub(crate) fn refused_from_cache(&self) -> u64 {
        self.from_cache.load(Ordering::Relaxed)
    }

    /// Returns how many refusals are kept, outlived ones included.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Looks a request up, before the store is called: it is refused if a cached refusal applies to one of its checks.
    pub(crate) fn lookup(&self, checks: &[Check]) -> CacheLookup {
        let mut snapshot = self.snapshot(checks);
        if snapshot.cacheable
            && !snapshot.looks
            && self.slots.may_be_live(snapshot.sent)
            && let Some(refused) = self.refused(checks, &snapshot.marks, snapshot.sent)
        {
            return CacheLookup::Refused(refused);
        }
        self.take_strikes(checks, &mut snapshot);
        CacheLookup::Miss(snapshot)
    }

    /// Returns a snapshot for a request that the store decides in any case.
    ///
    /// It replaces [`lookup`](Self::lookup) where a refusal from memory is not wanted, as in a probe.
    pub(crate) fn miss(&self, checks: &[Check]) -> Snapshot {
        let mut snapshot = self.snapshot(checks);
        self.take_strikes(checks, &mut snapshot);
        snapshot
    }

    fn snapshot(&self, checks: &[Check]) -> Snapshot {
        let marks: Marks = checks.iter().map(|check| self.mark(check)).collect();
        let looks = checks.iter().all(|check| check.cost == 0 && !check.is_only_for_ban());
        // Checks in shadow mode are decided each time, and two checks of one counter demand more than
        // each of them.
        let is_simple = if looks {
            !has_bans(checks)
        } else {
            checks.iter().all(|check| check.mode != Mode::Shadow) && !repeats(&marks)
        };
        Snapshot { sent: micros(self.clock.now()), marks, cacheable: is_simple, looks, strikes: SmallVec::new() }
    }

    /// Returns the cached refusal of a request, without a call of the store.
    ///
    /// Strikes are for the call of the decision, so a request with bans has none here unless its key is banned.
    pub(crate) fn recall(&self, checks: &[Check]) -> Option<Decided> {
        let Snapshot { sent, marks, cacheable, looks, .. } = self.snapshot(checks);
        if !cacheable || looks || !self.slots.may_be_live(sent) {
            return None;
        }
        let mut each = checks.iter().zip(&marks);
        let is_banned = each.any(|(check, mark)| self.find(check, mark, sent).is_some_and(|cached| cached.is_ban()));
        if has_bans(checks) && !is_banned {
            return None;
        }
        self.refused(checks, &marks, sent)
    }

    /// Returns the refusal of a request, if a cached one applies to any of its checks.
    fn refused(&self, checks: &[Check], marks: &Marks, now: u64) -> Option<Decided> {
        let hits: Hits = checks.iter().zip(marks).map(|(check, mark)| self.find(check, mark, now)).collect();
        if hits.iter().all(Option::is_none) || !self.count_strikes(checks, marks, &hits, now) {
            return None;
        }
        self.from_cache.fetch_add(1, Ordering::Relaxed);
        let outcomes = checks.iter().zip(marks).zip(&hits).map(|((check, mark), hit)| match hit {
            Some(cached) => denied(check, Demand::of(check), cached, now),
            None => last_reported(check, self.hash(mark, &check.counter.quota, Demand::of(check)), &hits, now),
        });
        let decision = Decision::new(outcomes, Source::DenyCache);
        Some(Decided::new(decision, Receipt::new(self.id, [])))
    }

    /// Counts a strike for each check that is refused from the cache, if it has a ban; returns false, and counts
    /// nothing, if the store has to decide one of them.
    fn count_strikes(&self, checks: &[Check], marks: &Marks, hits: &Hits, now: u64) -> bool {
        let both = || checks.iter().zip(hits).filter_map(|(check, hit)| Some((check, hit.as_ref()?)));
        if both().any(|(check, cached)| is_for_the_store(check, cached.standing, now)) {
            return false;
        }
        for ((check, mark), _) in checks.iter().zip(marks).zip(hits).filter(|(_, hit)| hit.is_some()) {
            if let Some(ban) = check.ban.as_deref().filter(|_| check.strikes()) {
                self.kept.strike(self.place(mark, check, Demand::of(check)), &ban.ban, now);
            }
        }
        true
    }

    /// Moves the strikes of a request's checks out of the cache: they are sent with it, at most once.
    fn take_strikes(&self, checks: &[Check], snapshot: &mut Snapshot) {
        if !snapshot.cacheable || snapshot.looks || !has_bans(checks) {
            return;
        }
        for (index, (check, mark)) in checks.iter().zip(&snapshot.marks).enumerate() {
            let Some(ban) = check.ban.as_deref() else { continue };
            let place = self.place(mark, check, Demand::of(check));
            let taken = self.kept.take_strikes(place, mark.generation, snapshot.sent);
            let taken = taken.filter(|(_, age)| *age < ban.ban.within());
            let taken = taken.map(|(strikes, age)| (strikes.min(ban.ban.after()), age));
            snapshot.strikes.extend(taken.map(|(strikes, age)| CachedStrikes { check: index, strikes, age }));
        }
    }

    /// Records a decision: caches a refusal by the store itself, and not by another source, such as a fallback.
    ///
    /// [`record_looks`](Self::record_looks) describes what is cached of looks.
    pub(crate) fn record(&self, snapshot: &Snapshot, checks: &[Check], decision: &Decision) {
        if snapshot.looks {
            self.record_looks(snapshot, checks, decision);
        } else if decision.is_allowed() {
            self.note_taken(snapshot, checks);
        } else if decision.source() == Source::Store && snapshot.cacheable {
            self.cache(snapshot, checks, decision);
        }
    }

    /// Caches refusals by looks: if a look has nothing left beyond its floor, a cost of one unit would be refused. Of
    /// looks with bans these are the refusals by a ban, as others may be strikes.
    fn record_looks(&self, snapshot: &Snapshot, checks: &[Check], decision: &Decision) {
        let outcomes = decision.outcomes();
        if decision.source() != Source::Store || outcomes.iter().all(|outcome| outcome.remaining() > 0) {
            return;
        }
        if !snapshot.cacheable && !decision.is_banned() {
            return;
        }
        let checks: SmallVec<[Check; 4]> = checks.iter().map(|look| look.clone().cost(1)).collect();
        let outcomes = checks.iter().zip(outcomes).map(|(check, look)| match look.remaining() {
            0 if check.ban.is_none() => Outcome::denied(check, 0, look.wait())
                .resets_after(look.reset_after())
                .with_window_minutes(look.window_minutes()),
            _ => look.clone(),
        });
        self.cache(snapshot, &checks, &Decision::new(outcomes, Source::Store));
    }

    /// Forgets refusals of larger costs than an admitted one: they wait longer now.
    fn note_taken(&self, snapshot: &Snapshot, checks: &[Check]) {
        if self.slots.may_be_live(snapshot.sent) {
            let taking = snapshot.marks.iter().zip(checks).filter(|(_, check)| check.cost > 0);
            for (mark, _) in taking {
                self.slots.forget_if_live(mark.base, snapshot.sent);
            }
        }
    }

    /// Caches each refusing check of a request, and with it what the first [`MOST_OTHERS`] others reported.
    fn cache(&self, snapshot: &Snapshot, checks: &[Check], decision: &Decision) {
        let now = micros(self.clock.now());
        let all = || checks.iter().zip(&snapshot.marks).zip(decision.outcomes());
        let refuses = |check: &Check, outcome: &Outcome| {
            let is_ban = outcome.is_banned() && is_ban_cacheable(check);
            (is_ban || is_cacheable(check)) && !outcome.is_allowed()
        };
        let others = all().filter(|((check, _), outcome)| !refuses(check, outcome));
        let others = others.map(|((check, mark), outcome)| {
            let hash = self.hash(mark, &check.counter.quota, Demand::of(check));
            Other::new(hash, outcome, after(now, outcome.reset_after()))
        });
        let others: SmallVec<[Other; 4]> = others.take(MOST_OTHERS).collect();
        let others = others.last().map(|last| Arc::new(array::from_fn(|at| *others.get(at).unwrap_or(last))));
        let windows_end = calendars_end(checks, snapshot.sent);
        for ((check, mark), outcome) in all().filter(|((check, _), outcome)| refuses(check, outcome)) {
            let cached = Cached::new(check, outcome, mark.generation, snapshot.sent, now, self.cap_us);
            let cached = Cached { others: others.clone(), until: cached.until.min(windows_end), ..cached };
            if cached.until > now && self.slots.admit(mark.base, mark.generation, snapshot.sent, cached.until) {
                self.kept.put(self.place(mark, check, Demand::of(check)), cached, now);
            }
        }
    }

    /// Forgets a counter now, and again when the returned guard is dropped, once a change is made.
    pub(crate) fn forgetting(self: &Arc<Self>, counter: &Counter) -> Forgetting {
        let base = self.base(counter);
        self.slots.forget(base);
        Forgetting { refusals: Arc::clone(self), base }
    }

    /// Forgets a counter that is changed in the background.
    pub(crate) fn settled(&self, counter: &Counter) {
        self.slots.forget_for_a_while(self.base(counter), micros(self.clock.now()));
    }

    /// Returns the live cached refusal of a check, or of a smaller demand of its kind.
    fn find(&self, check: &Check, mark: &Mark, now: u64) -> Option<Cached> {
        if !is_cacheable(check) && !is_ban_cacheable(check) {
            return None;
        }
        let demand = Demand::of(check);
        let cached = self.kept.find(self.place(mark, check, demand), demand);
        let cached = cached.filter(|cached| cached.is_live(now, mark.generation));
        cached.filter(|cached| if cached.is_ban() { is_ban_cacheable(check) } else { is_cacheable(check) })
    }

    /// Returns the hash of a check's counter and its generation now.
    fn mark(&self, check: &Check) -> Mark {
        let base = self.base(&check.counter);
        Mark { base, generation: self.slots.generation(base) }
    }

    /// Returns the hash of all that identifies a refusal: counter, quota, and kind of demand.
    fn hash(&self, mark: &Mark, quota: &Quota, demand: Demand) -> u64 {
        self.hasher.of_other((mark.base, quota, demand.kind))
    }

    /// Returns what identifies a refusal; the fingerprint is compared where hashes are equal.
    fn place(&self, mark: &Mark, check: &Check, demand: Demand) -> Place {
        Place { hash: self.hash(mark, &check.counter.quota, demand), counter: self.fingerprints.of(&check.counter) }
    }

    /// Returns the hash of policy and key, which does not depend on the quota.
    fn base(&self, counter: &Counter) -> u64 {
        self.hasher.of(counter)
    }
}

/// Returns when the first of the windows of a calendar ends that checks count in, by this process's clock; the largest
/// number if there is none. The next one may be of another length, and a cached refusal would report that of the last.
fn calendars_end(checks: &[Check], now: u64) -> u64 {
    let calendars = checks.iter().filter_map(|check| check.counter.quota.calendar());
    let ends = calendars.map(|calendar| calendar.window_at(now / 1_000).end.saturating_mul(1_000));
    ends.min().unwrap_or(u64::MAX)
}

/// A change to a counter that is under way; forgets the counter when it is dropped.
#[derive(Debug)]
pub(crate) struct Forgetting {
    refusals: Arc<Refusals>,
    base: u64,
}

impl Drop for Forgetting {
    fn drop(&mut self) {
        self.refusals.slots.forget(self.base);
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusals")
            .field("cap_us", &self.cap_us)
            .field("from_cache", &self.from_cache)
            .finish_non_exhaustive()
    }
}
