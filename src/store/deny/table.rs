//! The cached refusals: a bounded number, in parts with a lock each.

use std::time::Duration;

use super::demand::Demand;
use crate::core::Outcome;
use crate::store::Check;
use crate::store::map::{Entry, Fingerprint, Shards, Table};

/// The least refusals of a part: there are several parts only if each has room for so many.
const REFUSALS_PER_PART: usize = 1_024;

/// Refusals by counter, quota and kind of demand. All take the same room: the text of a
/// counter, which clients may choose and make long, is not kept.
#[derive(Debug)]
pub(super) struct CachedRefusals {
    shards: Shards<Part>,
    /// How long a full part is not searched for room again, in microseconds.
    pause_us: u64,
}

/// A cached refusal of a counter. Times are microseconds of this process's clock. It is kept small: its size, and that
/// of its [`Place`], is what the memory of a flood of refusals consists of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cached {
    /// The demand that was refused.
    pub(super) units: u64,
    /// What was left, with the floor of the check that was refused; 0 if nothing was left.
    pub(super) left: u64,
    /// When the store was called.
    pub(super) sent: u64,
    /// Until when this may be returned.
    pub(super) until: u64,
    /// When the demand fits again, counted from the reply: never early.
    pub(super) retry_at: u64,
    pub(super) reset_at: u64,
    /// The length of the window that counted, as outcomes keep it.
    pub(super) minutes: u16,
    /// How often the counter had been forgotten when the store was called.
    pub(super) generation: u32,
    /// When the ban of the key ends, counted from the reply; 0 if it is not banned.
    pub(super) ban_ends: u64,
}

/// The refusals of one part of the map.
#[derive(Debug)]
struct Part {
    /// Swept when it has doubled, and when it is full at most once in a pause.
    table: Table<Refusal>,
    /// When it is searched for room again, if it is full.
    search_at: u64,
}

/// An entry: a refusal, and what identifies it.
#[derive(Debug)]
struct Refusal {
    place: Place,
    cached: Cached,
}

/// What identifies a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Of counter, quota and kind of demand, with random keys of this process.
    pub(super) hash: u64,
    /// Of the counter: no client can choose two that collide.
    pub(super) counter: Fingerprint,
}

impl Cached {
    /// Returns the entry of a refusal whose call was made at `sent` and returned at `now`, for up to `cap_us`.
    pub(super) fn new(check: &Check, outcome: &Outcome, generation: u32, sent: u64, now: u64, cap_us: u64) -> Self {
        let wait = outcome.retry_after();
        // After a ban the quota may refuse, which is a strike.
        let lasts = outcome.banned_for().map(|left| left / if is_extended(check) { 2 } else { 1 }).or(wait);
        // A tick that had begun when the store was called is over before a whole one has passed.
        let begun = check.counter.quota().tick().micros() - 1;
        let surely = lasts.map_or(u64::MAX, |wait| after(sent, wait).saturating_sub(begun));
        Self {
            units: Demand::of(check).units,
            left: match outcome.remaining() {
                0 => 0,
                remaining => remaining.saturating_add(check.floor),
            },
            sent,
            until: surely.min(sent.saturating_add(cap_us)),
            retry_at: wait.map_or(u64::MAX, |wait| after(now, wait)),
            reset_at: after(now, outcome.reset_after()),
            minutes: outcome.window_minutes(),
            generation,
            ban_ends: outcome.banned_for().map_or(0, |left| after(now, left)),
        }
    }

    /// Returns whether the key was banned: what demands another number of units may have to wait for longer.
    pub(super) fn is_ban(&self) -> bool {
        self.ban_ends > 0
    }

    /// Returns whether the refusal may be served at `now`: it has not ended, and its counter is of the same generation.
    /// If the clock steps back, refusals from after its new time end.
    pub(super) fn is_live(&self, now: u64, generation: u32) -> bool {
        self.sent <= now && now < self.until && self.generation == generation
    }
}

impl CachedRefusals {
    /// Up to `capacity` refusals, none of which lives longer than `cap_us`.
    pub(super) fn new(capacity: usize, cap_us: u64) -> Self {
        let part = |room| Part { table: Table::new(room), search_at: 0 };
        Self { shards: Shards::new(capacity, REFUSALS_PER_PART, part), pause_us: cap_us / 8 }
    }

    /// Returns how many refusals are kept, expired ones that were not yet dropped included.
    pub(super) fn len(&self) -> usize {
        self.shards.each().map(|part| part.table.len()).sum()
    }

    /// Returns the cached refusal of a demand, or of a smaller one of its kind.
    ///
    /// It may be no longer live; the caller checks that.
    pub(super) fn find(&self, place: Place, demand: Demand) -> Option<Cached> {
        let part = self.shards.lock(place.hash);
        let refusal = part.table.find(place.hash, |refusal| refusal.place == place)?;
        let cached = &refusal.cached;
        let serves = if cached.is_ban() { cached.units == demand.units } else { cached.units <= demand.units };
        serves.then_some(*cached)
    }

    /// Caches a refusal, if there is room, and if no live one at `now` refuses more for longer.
    pub(super) fn put(&self, place: Place, cached: Cached, now: u64) {
        let mut part = self.shards.lock(place.hash);
        if let Some(refusal) = part.table.find_mut(place.hash, |refusal| refusal.place == place) {
            let old = &mut refusal.cached;
            let is_stronger = (old.units, cached.until) < (cached.units, old.until);
            if cached.is_ban() || old.is_ban() || !(old.is_live(now, cached.generation) && is_stronger) {
                *old = cached;
            }
        } else if part.has_room(now, self.pause_us) {
            part.table.insert(Refusal { place, cached });
        }
    }
}

impl Part {
    /// Returns whether one more fits. Live refusals are not evicted, so that made-up keys push out no others:
    /// requests whose refusals find no room reach the store.
    fn has_room(&mut self, now: u64, pause_us: u64) -> bool {
        if !self.table.is_due() {
            return true;
        }
        if self.table.is_full() && now < self.search_at {
            return false;
        }
        self.table.sweep(|refusal| now < refusal.cached.until);
        self.search_at = now.saturating_add(pause_us);
        !self.table.is_full()
    }
}

impl Entry for Refusal {
    fn hash(&self) -> u64 {
        self.place.hash
    }
}

/// Returns whether a refusal of the check by a ban extends it. Then one has to reach the store before the ban ends.
fn is_extended(check: &Check) -> bool {
    check.strikes() && check.ban.as_deref().is_some_and(|ban| ban.ban.extends())
}

/// A time so much later, in microseconds.
fn after(now: u64, wait: Duration) -> u64 {
    now.saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
}
