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

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use super::demand::Demand;
use super::outcomes::denied;
use super::slots::Slots;
use super::snapshot::{Mark, Marks, Snapshot, is_ban_cacheable, is_cacheable, repeats};
use super::table::{Cached, CachedRefusals, Place};
use crate::core::Error;
use crate::core::decision::{Decision, Outcome, Source};
#[cfg(feature = "redis")]
use crate::store::SystemClock;
use crate::store::clock::{Clock, micros};
use crate::store::map::{CounterHasher, Fingerprints};
use crate::store::{AskMode, Check, Counter, Decided, Mode, Receipt, StoreId};

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
    /// Returns a cache of the store `id` that caches nothing.
    #[cfg(feature = "redis")]
    pub(crate) fn off(id: StoreId) -> Self {
        Self::new(id, Duration::ZERO, 1, Box::new(SystemClock::new()))
    }

    /// Returns an empty cache for `capacity` refusals of the store `id`, which must not be zero. With a cap of 0 it
    /// caches nothing.
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

    /// Returns how many requests were refused without calling the store.
    pub(super) fn refused_from_cache(&self) -> u64 {
        self.from_cache.load(Ordering::Relaxed)
    }

    /// Returns how many refusals are kept, outlived ones included.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Notes a request before the store is called.
    pub(super) fn snapshot(&self, checks: &[Check]) -> Snapshot {
        if self.cap_us == 0 {
            return Snapshot::default();
        }
        let marks: Marks = checks.iter().map(|check| self.mark(check)).collect();
        // Checks in shadow mode are decided each time, and two checks of one counter demand more than
        // each of them.
        let is_simple = checks.iter().all(|check| check.mode != Mode::Shadow) && !repeats(&marks);
        let looks = checks.iter().all(|check| check.cost == 0 && !check.is_only_for_ban());
        Snapshot { sent: micros(self.clock.now()), marks, is_simple, looks }
    }

    /// Returns the refusal of a request, if a cached one applies to one of its checks.
    pub(super) fn refusal(&self, snapshot: &Snapshot, checks: &[Check], mode: AskMode) -> Option<Decided> {
        let may_serve = mode != AskMode::Probe && snapshot.is_simple && self.slots.may_be_live(snapshot.sent);
        match mode {
            _ if !may_serve => None,
            AskMode::Cached => self.refused(&of_one_unit(checks), snapshot),
            _ => self.refused(checks, snapshot),
        }
    }

    /// Returns the refusal of a request, if a cached one applies to any of its checks.
    ///
    /// A request that may be a strike is refused only if a key is banned: the store counts strikes.
    fn refused(&self, checks: &[Check], snapshot: &Snapshot) -> Option<Decided> {
        let now = snapshot.sent;
        let hits: Hits = checks.iter().zip(&snapshot.marks).map(|(check, mark)| self.find(check, mark, now)).collect();
        let is_ban = |hit: &Option<Cached>| hit.is_some_and(|cached| cached.is_ban());
        let may_strike = checks.iter().any(Check::strikes);
        if hits.iter().all(Option::is_none) || may_strike && !hits.iter().any(is_ban) {
            return None;
        }
        self.from_cache.fetch_add(1, Ordering::Relaxed);
        let outcomes = checks.iter().zip(&hits).map(|(check, hit)| match hit {
            Some(cached) => denied(check, Demand::of(check), cached, now),
            None => Outcome::allowed(check, 0),
        });
        let decision = Decision::new(outcomes, Source::DenyCache);
        Some(Decided::new(decision, Receipt::empty(self.id)))
    }

    /// Records a decision, if there is one and the cache is on: caches a refusal by the store itself, and not by another
    /// source, such as a fallback.
    ///
    /// [`record_looks`](Self::record_looks) describes what is cached of looks.
    pub(super) fn record(&self, snapshot: &Snapshot, checks: &[Check], decided: &Result<Decided, Error>) {
        let Ok(Decided { decision, .. }) = decided else { return };
        if snapshot.marks.is_empty() {
            return;
        }
        if snapshot.looks {
            self.record_looks(snapshot, checks, decision);
        } else if decision.is_allowed() {
            self.note_taken(snapshot, checks);
        } else if decision.source() == Source::Store && snapshot.is_simple {
            self.cache(snapshot, checks, decision);
        }
    }

    /// Caches refusals by looks: if a look has nothing left beyond its floor, a cost of one unit would be refused. Of
    /// looks with bans these are the refusals by a ban, as others may be strikes.
    fn record_looks(&self, snapshot: &Snapshot, looks: &[Check], decision: &Decision) {
        let outcomes = decision.outcomes();
        if decision.source() != Source::Store || outcomes.iter().all(|outcome| outcome.remaining() > 0) {
            return;
        }
        let checks = of_one_unit(looks);
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

    /// Caches each refusing check of a request.
    fn cache(&self, snapshot: &Snapshot, checks: &[Check], decision: &Decision) {
        let (now, windows_end) = (micros(self.clock.now()), calendars_end(checks, snapshot.sent));
        for ((check, mark), outcome) in checks.iter().zip(&snapshot.marks).zip(decision.outcomes()) {
            let is_ban = outcome.is_banned() && is_ban_cacheable(check);
            if outcome.is_allowed() || !is_ban && !is_cacheable(check) {
                continue;
            }
            let cached = Cached::new(check, outcome, mark.generation, snapshot.sent, now, self.cap_us);
            let cached = Cached { until: cached.until.min(windows_end), ..cached };
            if cached.until > now && self.slots.admit(mark.base, mark.generation, snapshot.sent, cached.until) {
                self.kept.put(self.place(mark, check, Demand::of(check)), cached, now);
            }
        }
    }

    /// Forgets a counter now, and again when the returned guard is dropped, once a change is made.
    pub(super) fn forgetting(self: &Arc<Self>, counter: &Counter) -> Forgetting {
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

    /// Returns what identifies a refusal: counter, quota, and kind of demand. The fingerprint is compared where hashes
    /// are equal.
    fn place(&self, mark: &Mark, check: &Check, demand: Demand) -> Place {
        let hash = self.hasher.of_other((mark.base, check.counter.quota(), demand.kind));
        Place { hash, counter: self.fingerprints.of(&check.counter) }
    }

    /// Returns the hash of policy and key, which does not depend on the quota.
    fn base(&self, counter: &Counter) -> u64 {
        self.hasher.of(counter)
    }
}

/// Returns looks as checks of the unit that they stand for.
fn of_one_unit(looks: &[Check]) -> SmallVec<[Check; 2]> {
    let cost = |look: &Check| if look.is_only_for_ban() { 0 } else { look.cost.max(1) };
    looks.iter().map(|look| look.clone().cost(cost(look))).collect()
}

/// Returns when the first of the windows of a calendar ends that checks count in, by this process's clock; the largest
/// number if there is none. The next one may be of another length, and a cached refusal would report that of the last.
fn calendars_end(checks: &[Check], now: u64) -> u64 {
    let calendars = checks.iter().filter_map(|check| check.counter.quota().calendar());
    let ends = calendars.map(|calendar| calendar.window_at(now / 1_000).end.saturating_mul(1_000));
    ends.min().unwrap_or(u64::MAX)
}

/// A change to a counter that is under way; forgets the counter when it is dropped.
#[derive(Debug)]
pub(super) struct Forgetting {
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
