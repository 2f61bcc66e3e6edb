//! The cached refusals, a bounded number in parts with a lock each; and when counters were changed.
//!
//! Until a refused check fits, none that demands at least as much does, as long as nothing is refunded: time only lowers
//! what is counted, and other requests only raise it. What "as much" means depends on the algorithm: see [`Refusal`].
//! As the wait that is returned must be exact, the store is called once for each sum whose wait does not follow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::core::Outcome;
use crate::core::algorithm::{Refusal, mul_div_ceil};
use crate::store::Check;
use crate::store::map::{Fingerprint, MapEntry, Table};

/// A cached refusal of a counter. Times are microseconds of this process's clock. It is kept small: its size is what the
/// memory of a flood of refusals consists of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cached {
    pub(super) place: Place,
    /// What was [demanded](demand).
    pub(super) units: u64,
    /// What was left, with the floor of the check that was refused; 0 if nothing was left.
    pub(super) left: u64,
    /// When the store was called.
    pub(super) sent: u64,
    /// Until when this may be returned.
    pub(super) until: u64,
    /// When the demand fits again, counted from the reply: never early. The largest number if no wait helps.
    pub(super) retry_at: u64,
    pub(super) reset_at: u64,
    /// The length of the window that counted, as outcomes keep it.
    pub(super) minutes: u16,
    /// When the ban of the key ends, counted from the reply; 0 if it is not banned.
    pub(super) ban_ends: u64,
}

/// What identifies a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Of counter, quota and perhaps the sum, with random keys of this process.
    pub(super) hash: u64,
    /// Of the counter: no client can choose two that collide.
    pub(super) counter: Fingerprint,
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
pub(super) fn demand(check: &Check) -> u64 {
    let quota = check.counter.quota();
    match check.cost.saturating_add(check.floor) {
        _ if quota.decides_by_floor(check.cost, check.floor) => check.floor,
        sum => sum.min(quota.capacity() + 1),
    }
}

/// Returns the demand of a check whose refusal implies that of no other demand.
pub(super) fn demand_alone(check: &Check) -> Option<u64> {
    (check.counter.quota().facts().refusal == Refusal::SameSum).then(|| demand(check))
}

impl Cached {
    /// Returns whether the key was banned: what demands another number of units may have to wait for longer.
    pub(super) fn is_ban(&self) -> bool {
        self.ban_ends > 0
    }

    /// Returns whether the refusal holds at `now`. If the clock steps back, refusals from after its new time end.
    pub(super) fn is_live(&self, now: u64) -> bool {
        self.sent <= now && now < self.until
    }

    /// Returns the outcome of a check that demands as much, or more where it is no ban, as the store would have reported
    /// it: times count down from when they were reported, and never end early.
    ///
    /// Where units return evenly, more of them are there after `more * window / limit` further ticks; with other
    /// algorithms that imply a refusal of more, all return at once.
    pub(super) fn outcome(&self, check: &Check, now: u64) -> Outcome {
        let (quota, demand) = (check.counter.quota(), demand(check));
        let left = |time: u64| Duration::from_micros(time.saturating_sub(now));
        let more = if quota.facts().returns_evenly { demand - self.units } else { 0 };
        let ticks = || mul_div_ceil(more, quota.window_ticks(), quota.limit());
        let later = || ticks().saturating_mul(quota.tick().micros());
        let helps = self.retry_at != u64::MAX && demand <= quota.capacity();
        let wait = helps.then(|| left(self.retry_at.saturating_add(later())));
        let outcome = Outcome::denied(check, self.left.saturating_sub(check.floor), wait)
            .resets_after(left(self.reset_at))
            .with_window_minutes(self.minutes);
        if self.is_ban() { outcome.banned(left(self.ban_ends)) } else { outcome }
    }
}

impl DenyShard {
    /// Up to `room` refusals.
    pub(super) fn new(room: usize) -> Self {
        Self { table: Table::new(room), search_at: 0 }
    }

    /// Returns how many refusals are kept.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the cached refusal of a demand, or of a smaller one that implies it.
    ///
    /// It may be no longer live; the caller checks that.
    pub(super) fn find(&self, place: Place, demand: u64) -> Option<Cached> {
        let refusal = self.table.find(place.hash, |refusal| refusal.place == place)?;
        let serves = refusal.units == demand || refusal.units < demand && !refusal.is_ban();
        serves.then_some(*refusal)
    }

    /// Caches a refusal instead of the one at its place, or if there is room at `now`. A full part is not searched for
    /// room again for `pause_us`.
    pub(super) fn put(&mut self, refusal: Cached, now: u64, pause_us: u64) {
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

/// When counters were changed, by their fingerprint: a refusal is live only if the store was called later. So forgetting a counter
/// is one write, without a search for its refusals.
///
/// All fields are atomics, read and written in one total order (`SeqCst`) without any lock. Times are microseconds of the
/// cache's clock.
#[derive(Debug)]
pub(super) struct Generations(Box<[Generation]>);

/// The state of all counters whose hashes pick it.
#[derive(Debug, Default)]
pub(super) struct Generation {
    /// Refusals by calls made before this are forgotten.
    from: AtomicU64,
    /// Until when there may be refusals to serve or forget: mostly there are none.
    until: AtomicU64,
}

impl Generations {
    /// As many as are needed for so many refusals.
    pub(super) fn new(refusals: usize) -> Self {
        let count = refusals.min(MOST_GENERATIONS).next_power_of_two();
        Self((0..count).map(|_| Generation::default()).collect())
    }

    /// Returns that which the low bits of a hash pick.
    pub(super) fn of(&self, counter: Fingerprint) -> &Generation {
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let bits = counter.hash as usize;
        &self.0[bits & (self.0.len() - 1)]
    }
}

impl Generation {
    /// Returns whether there may be a refusal that holds at `now`.
    pub(super) fn may_be_live(&self, now: u64) -> bool {
        self.until.load(Ordering::SeqCst) > now
    }

    /// Returns until when there may be refusals.
    pub(super) fn until(&self) -> u64 {
        self.until.load(Ordering::SeqCst)
    }

    /// Forgets refusals by calls made before a time.
    pub(super) fn forget(&self, before: u64) {
        self.from.fetch_max(before, Ordering::SeqCst);
    }

    /// Returns whether a refusal by a call made at `sent` is not forgotten.
    pub(super) fn keeps(&self, sent: u64) -> bool {
        sent >= self.from.load(Ordering::SeqCst)
    }

    /// Notes that there is a refusal until then.
    pub(super) fn note(&self, until: u64) {
        self.until.fetch_max(until, Ordering::SeqCst);
    }
}
