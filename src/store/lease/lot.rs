//! The units of one lease.
//!
//! A decision of the inner store about one check comes in, with the times of its call and its result.
//! Until the lot is over its units are spent one request after the other; then what is left is returned, which
//! consumes the lot: its receipt can be settled once only.
//!
//! Two times end it: its lifetime, counted from when it was *requested*, as the inner store may have charged it
//! then; and the edge of the window that its units were charged to, less a tick, as the store rounds its clock down.
//! Both err to the early side, so a unit is never spent in a later window than it was charged to, as long as both
//! processes' clocks run alike. In an aligned window the lot ends by the wall clock too, which may be set at any time.

use std::ops::Range;
use std::time::Duration;

use crate::core::Quota;
use crate::core::algorithm::Refund;
use crate::store::clock::micros;
use crate::store::{Counter, Receipt, StoreDecision};

/// Times are microseconds of this process's clock.
#[derive(Debug)]
pub(super) struct Lot {
    /// The inner store's, for exactly one check.
    pub(super) receipt: Receipt,
    /// How many units were charged.
    granted: u64,
    /// How many of them are unspent; never more than `granted`.
    pub(super) left: u64,
    /// When the lease was requested.
    sent: u64,
    /// When it came.
    received: u64,
    /// Nothing is spent from then on.
    ends: u64,
    /// The same life by the wall clock, for aligned windows.
    wall: Range<u64>,
    /// The end of the window the units were charged to.
    edge: u64,
}

/// What the inner store said of a counter when it granted a lease.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// When the lease was requested.
    sent: u64,
    /// What remained.
    pub(super) remaining: u64,
    /// Until its untouched state would admit a full limit.
    reset: u64,
    /// The length of the window the units were charged to.
    pub(super) window: Duration,
}

/// Returns how long a lease of this quota lives, in microseconds: a tenth of the window, and at most a second.
pub(super) fn lifetime(quota: &Quota) -> u64 {
    micros(quota.window() / 10).min(1_000_000)
}

/// Returns the period in which so many requests make a key hot: the lifetime of a lease; a second with an overdraft, as
/// that is of use to keys with less load too.
pub(super) fn period(quota: &Quota, overdraft: u64) -> u64 {
    if overdraft > 0 { 1_000_000 } else { lifetime(quota) }
}

impl Lot {
    /// What an allowed decision about one check leased, and what it says of the counter. It may have been made as soon as
    /// it was sent, so all times are counted from then; `wall` is the wall clock's time then, if windows are aligned.
    pub(super) fn new(decided: StoreDecision, sent: u64, wall: Option<u64>, received: u64) -> (Self, Seen) {
        let StoreDecision { decision, receipt } = decided;
        let (outcome, taken) = (&decision.outcomes()[0], &receipt.taken()[0]);
        let (quota, granted) = (outcome.quota(), taken.units);
        let window = quota.window_end(outcome.reset_after()).map_or(u64::MAX / 4, micros);
        // The store rounds its clock down to a tick, so the window may end a tick earlier.
        let edge = (sent + window).saturating_sub(quota.tick().micros());
        let ends = edge.min(sent + lifetime(quota));
        let wall = wall.map_or(0..0, |wall| wall..wall + ends.saturating_sub(sent));
        let (remaining, reset, window) = (outcome.remaining(), micros(outcome.reset_after()), outcome.window());
        let seen = Seen { sent, remaining, reset, window };
        (Self { granted, left: granted, sent, received, ends, wall, edge, receipt }, seen)
    }

    /// Returns whether nothing of it may be spent at `now`.
    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.ends
    }

    /// Returns whether nothing of it may be spent by the wall clock, which is read if windows are aligned to it.
    pub(super) fn is_over_by_wall(&self, wall: Option<u64>) -> bool {
        wall.is_some_and(|wall| !self.wall.contains(&wall))
    }

    /// Returns whether it has units enough for a cost, and is not over.
    pub(super) fn covers(&self, cost: u64, now: u64) -> bool {
        self.left >= cost && !self.is_over(now)
    }

    /// Returns the counter that the units were charged to, with the quota of then.
    pub(super) fn counter(&self) -> &Counter {
        &self.receipt.taken()[0].counter
    }

    /// The mark the inner store gave these units.
    pub(super) fn stamp(&self) -> u64 {
        self.receipt.taken()[0].stamp
    }

    /// How long it can still be spent.
    pub(super) fn life(&self, now: u64) -> u64 {
        self.ends.saturating_sub(now)
    }

    /// Puts units back that were spent from here; `false` if that is too late.
    pub(super) fn put_back(&mut self, units: u64, now: u64) -> bool {
        let fits = !self.is_over(now) && self.left + units <= self.granted;
        self.left += if fits { units } else { 0 };
        fits
    }

    /// Returns how many of the units that are left are to be refunded to the inner store.
    ///
    /// Units of a window or a log are as if they had never been taken. A bucket may have been full
    /// except for them, and then has refilled their place in the meantime: refunding all of them
    /// would count that time twice, and many processes could hold a full bucket together with the
    /// units of each. So what is refilled in the lease's life is kept.
    pub(super) fn refund(&self, limit: u64, now: u64) -> u64 {
        let facts = self.counter().quota().facts();
        let counts = facts.windows != 1 || now < self.edge;
        match facts.refund {
            Refund::Unrefilled => self.left.saturating_sub(self.refilled(limit, now)),
            Refund::Counted | Refund::LastInLine if counts => self.left,
            Refund::Counted | Refund::LastInLine => 0,
        }
    }

    /// Returns the units a bucket refills, rounded up, until the refund will have arrived: that takes as long again as
    /// the result took.
    ///
    /// `ceil(limit * age / window)`, with the larger of the limit of then and of now.
    fn refilled(&self, limit: u64, now: u64) -> u64 {
        let quota = self.counter().quota();
        let age = now.saturating_sub(self.sent) + self.received.saturating_sub(self.sent);
        let window = u128::from(micros(quota.window()));
        let refilled = (u128::from(limit.max(quota.limit())) * u128::from(age)).div_ceil(window);
        u64::try_from(refilled).unwrap_or(u64::MAX)
    }
}

impl Seen {
    /// Returns how long the inner store's counter takes from `now` to be as unused, in microseconds.
    pub(super) fn reset(&self, now: u64) -> u64 {
        self.reset.saturating_sub(now.saturating_sub(self.sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Key;
    use crate::store::{Ask, Check, MaybeFuture, MemoryStore, Store};

    const QUOTA: Quota = Quota::token_bucket(600, Duration::from_secs(60));

    /// A lease of 50 units, requested at 1 s and granted at 1.4 s.
    fn lot(store: &MemoryStore, quota: Quota) -> Lot {
        let counter = Counter::new("p".try_into().expect("a valid name"), Key::new("k", "v"), quota);
        let MaybeFuture::Ready(decided) = store.decide(&[Check::new(counter, 50)], Ask::default()) else {
            panic!("memory decides at once")
        };
        Lot::new(decided.expect("memory decides"), 1_000_000, None, 1_400_000).0
    }

    #[test]
    fn a_lease_lives_from_when_it_was_asked_for() {
        let lot = lot(&MemoryStore::new(), QUOTA);
        assert!(lot.covers(50, 1_999_999) && !lot.covers(51, 1_999_999));
        assert!(!lot.covers(1, 2_000_000), "a second after it was requested, not after it was granted");
    }

    #[test]
    fn a_bucket_gets_back_what_it_did_not_refill_meanwhile_and_a_log_gets_all() {
        let store = MemoryStore::new();
        // Ten units a second: over half a second, and again the 0.4 s until the refund will have arrived.
        assert_eq!(lot(&store, QUOTA).refund(600, 1_500_000), 50 - 9);
        let log = Quota::sliding_log(600, Duration::from_secs(60));
        assert_eq!(lot(&store, log).refund(600, 1_500_000), 50);
    }
}
