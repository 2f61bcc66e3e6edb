//! The numbers of one counter: what it was offered, its ratio, and the band around it.
//!
//! A request comes in with its kind: 0 if it may not use the reserve, 1 if it may. Whether it is admitted goes out.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use super::callers::Callers;
use super::law::{ALL, Deviation, Draws, Rate, keeps, kept, slack};
use super::tally::{CounterId, MOST_TOTAL, MOST_UNITS};
use crate::store::map;
use crate::store::{Check, Counter};

/// One counter.
#[derive(Debug)]
pub(super) struct Entry {
    hash: u64,
    pub(super) counter: Counter,
    pub(super) id: CounterId,
    /// What a tick admits under the counter's quota.
    pub(super) rate: Rate,
    /// The units that only critical requests may use; 0 without a reserve.
    floor: u64,
    pub(super) kinds: [Kind; 2],
    /// When it was used last.
    pub(super) used: Instant,
    /// When its totals were received last.
    pub(super) heard: Option<Instant>,
    /// What all processes were offered of each kind in the tick of these totals.
    totals: [u64; 2],
    /// When the totals were at least half of the rate: for a life from then on it is reported exactly.
    hot: Option<Instant>,
    /// Whether it was not reported for want of room, so that this process admits its share.
    pub(super) by_share: bool,
}

/// The requests that may not use the reserve, or those that may.
#[derive(Debug)]
pub(super) struct Kind {
    /// Units offered since the tick began.
    offered: u64,
    /// Those of the first request among them.
    first: u64,
    /// The largest cost of a request in the current tick, and in the last one.
    costs: [u64; 2],
    /// Units admitted since then.
    admitted: u64,
    /// Units offered in the last tick, and in the one before it, each of a whole tick.
    pub(super) last: [u64; 2],
    keep: u64,
    deviation: Deviation,
    /// How many of those offered in a whole tick are admitted by the keep.
    expected: u64,
    /// When the keep was last below all, and how many were expected then at most.
    limited: Option<(Instant, u64)>,
    /// How many are expected at most, for a life from then on.
    most: u64,
    callers: Option<Box<Callers>>,
}

/// The moment of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Instant,
    /// When the tick began in this process.
    pub(super) since: Instant,
    pub(super) tick: Duration,
    pub(super) life: Duration,
}

impl map::Entry for Entry {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl Moment {
    fn is_fresh(&self, heard: Instant) -> bool {
        self.now.saturating_duration_since(heard) <= self.life
    }

    /// Returns `units` of a tick as those of the time since it began, which is at most 2 ticks.
    fn of_elapsed(&self, units: u64, least: u128) -> u64 {
        let tick = self.tick.as_micros();
        let elapsed = self.now.saturating_duration_since(self.since).as_micros().clamp(least, 2 * tick);
        u64::try_from(u128::from(units) * elapsed / tick).unwrap_or(u64::MAX)
    }
}

impl Entry {
    pub(super) fn new(hash: u64, counter: &Counter, moment: &Moment) -> Self {
        let rate = Rate::new(counter.quota(), moment.tick);
        Self {
            hash,
            counter: counter.clone(),
            id: CounterId::of(counter),
            rate,
            floor: 0,
            kinds: [Kind::new(), Kind::new()],
            used: moment.now,
            heard: None,
            totals: [0; 2],
            hot: None,
            by_share: false,
        }
    }

    /// Sets the quota and the floor of a check, where they have changed: tiers that share a key are each dropped by
    /// their own limit.
    pub(super) fn follow(&mut self, check: &Check, moment: &Moment) {
        self.floor = if check.floor > 0 { check.floor } else { self.floor };
        self.used = moment.now;
        if self.counter.quota() == check.counter.quota() {
            return;
        }
        self.counter = check.counter.clone();
        self.rate = Rate::new(check.counter.quota(), moment.tick);
        if let Some(heard) = self.heard {
            let keeps = self.keeps();
            self.kinds.iter_mut().zip(keeps).for_each(|(kind, keep)| kind.change(keep, heard));
        }
    }

    fn keeps(&self) -> [u64; 2] {
        keeps(self.rate, self.totals, (self.floor, self.counter.quota().capacity()))
    }

    /// Whether its last totals still hold.
    fn is_known(&self, moment: &Moment) -> bool {
        self.heard.is_some_and(|heard| moment.is_fresh(heard))
    }

    /// Whether its totals were at least half of the rate within a life.
    pub(super) fn is_hot(&self, moment: &Moment) -> bool {
        self.hot.is_some_and(|hot| moment.is_fresh(hot))
    }

    /// Whether it is hot, or offered so much of late that it is reported exactly. New keys push all others out of a full
    /// map, and never those: totals would lack what this process admits of them.
    pub(super) fn is_worth_its_place(&self, live: u64, moment: &Moment) -> bool {
        let late = |kind: &Kind| kind.offered.max(kind.last[0]).min(MOST_UNITS);
        let units = late(&self.kinds[0]) + late(&self.kinds[1]);
        self.is_hot(moment) || self.rate.threshold(live).is_below(units)
    }

    /// Counts what is offered, without a decision.
    pub(super) fn offer(&mut self, check: &Check, caller: Option<u64>) {
        let kind = &mut self.kinds[usize::from(check.floor == 0)];
        kind.count(check.cost);
        if let Some(hash) = caller {
            kind.callers.get_or_insert_default().count(hash, check.cost);
        }
    }

    /// Counts what is offered, and returns whether it is admitted.
    pub(super) fn admits(&mut self, check: &Check, caller: Option<u64>, moment: &Moment, draws: &mut Draws) -> bool {
        let is_known = self.is_known(moment);
        let cost = check.cost;
        let room = self.room(check, moment);
        let kind = &mut self.kinds[usize::from(check.floor == 0)];
        kind.count(cost);
        let costs = (cost, kind.largest());
        let keep = if is_known { kind.keep } else { ALL };
        let passes = match caller {
            Some(hash) => kind.callers.get_or_insert_default().admits(hash, costs, keep, draws),
            None => kind.deviation.admits(keep, costs, draws.draw()),
        };
        let is_low = is_known && kind.is_low(cost, moment);
        let admits = (passes || is_low) && cost <= room;
        if admits {
            kind.admitted = kind.admitted.saturating_add(cost);
        }
        admits
    }

    /// Returns how many more units may be admitted in this tick: this process alone never admits more than the quota,
    /// and no more than its former part while its ratio is above 0.
    fn room(&self, check: &Check, moment: &Moment) -> u64 {
        let quota = check.counter.quota();
        let most = self.rate.units().max(quota.capacity());
        let outside = u128::from(most) * u128::from(quota.capacity().saturating_sub(check.floor));
        let outside = u64::try_from(outside / u128::from(quota.capacity().max(1))).unwrap_or(u64::MAX);
        let all = self.kinds.iter().fold(0_u64, |sum, kind| sum.saturating_add(kind.admitted));
        let (tick, kind) = (moment.tick.as_micros(), &self.kinds[usize::from(check.floor == 0)]);
        let expected = kind.most.saturating_add(kind.slack(kind.most, check.cost));
        let is_limited = kind.limited.is_some_and(|(since, _)| moment.is_fresh(since));
        let own = if is_limited { expected.min(outside) } else { outside };
        let left = moment.of_elapsed(own, tick).saturating_sub(kind.admitted);
        moment.of_elapsed(most, tick).saturating_sub(all).min(left)
    }

    /// Returns the units that are left to take, of all processes together, as far as this one knows.
    pub(super) fn remaining(&self, check: &Check, moment: &Moment) -> u64 {
        let quota = check.counter.quota();
        let (kind, is_known) = (&self.kinds[usize::from(check.floor == 0)], self.is_known(moment));
        if is_known && kind.keep < ALL {
            return 0;
        }
        let total = if is_known { self.totals[0] + self.totals[1] } else { 0 };
        let admitted = self.kinds.iter().fold(check.floor, |sum, kind| sum.saturating_add(kind.admitted));
        self.rate.left(quota, total).min(quota.capacity()).saturating_sub(admitted)
    }

    /// Returns the drop ratio of requests that may not use the reserve; of the others, if there were none.
    pub(super) fn ratio(&self, moment: &Moment) -> Option<f64> {
        let keep = self.kinds[usize::from(self.totals[0] == 0)].keep;
        #[allow(clippy::cast_precision_loss, reason = "it is at most 2^32")]
        self.is_known(moment).then(|| 1.0 - keep as f64 / ALL as f64)
    }

    /// Begins a tick; `whole` computes from what was offered, and by the first request, what it were in a whole one.
    pub(super) fn roll(&mut self, mut whole: impl FnMut(u64, u64) -> u64) {
        for kind in &mut self.kinds {
            kind.last = [whole(mem::take(&mut kind.offered), kind.first), kind.last[0]];
            kind.admitted = 0;
            kind.costs = [0, kind.costs[0]];
            // A list takes up to 4 kB.
            drop(kind.callers.take_if(|callers| callers.roll()));
        }
    }

    /// Begins the first tick of a task: what was offered before ratios were reported means nothing now.
    pub(super) fn begin(&mut self) {
        self.roll(|_, _| 0);
        self.roll(|_, _| 0);
    }

    /// Sets totals of all processes, in none of which this one had a part, and which were heard at that time: they hold
    /// for a life from then on, not from now.
    pub(super) fn hear_first(&mut self, totals: [u64; 2], heard: Instant) {
        let keeps = self.hear_totals(totals, heard);
        self.kinds.iter_mut().zip(keeps).for_each(|(kind, keep)| kind.keep = keep);
    }

    /// Sets the totals of all processes in the tick before the one that was just reported.
    pub(super) fn hear(&mut self, totals: [u64; 2], moment: &Moment) {
        let keeps = self.hear_totals(totals, moment.now);
        self.kinds.iter_mut().zip(keeps).for_each(|(kind, keep)| kind.hear(keep, moment));
    }

    fn hear_totals(&mut self, totals: [u64; 2], heard: Instant) -> [u64; 2] {
        self.heard = Some(heard);
        self.totals = totals.map(|units| units.min(MOST_TOTAL - 1));
        if 2 * (self.totals[0] + self.totals[1]) >= self.rate.units() {
            self.hot = Some(heard);
        }
        self.keeps()
    }
}

impl Kind {
    fn new() -> Self {
        Self {
            offered: 0,
            first: 0,
            costs: [0; 2],
            admitted: 0,
            last: [0; 2],
            keep: ALL,
            deviation: Deviation::default(),
            expected: 0,
            limited: None,
            most: 0,
            callers: None,
        }
    }

    fn count(&mut self, cost: u64) {
        self.first = if self.offered == 0 { cost } else { self.first };
        self.offered = self.offered.saturating_add(cost);
        self.costs[0] = self.costs[0].max(cost);
    }

    /// Returns by how much a sum of `units` may differ by chance, with requests of up to `cost` or those of late.
    fn slack(&self, units: u64, cost: u64) -> u64 {
        slack(units, self.largest().max(cost))
    }

    /// Returns the largest cost of this tick and the last one.
    fn largest(&self) -> u64 {
        self.costs[0].max(self.costs[1])
    }

    /// Whether significantly fewer units were admitted than expected: then nothing is dropped.
    fn is_low(&self, cost: u64, moment: &Moment) -> bool {
        let expected = moment.of_elapsed(self.expected, 0).min(self.expected);
        self.admitted.saturating_add(cost) <= expected.saturating_sub(self.slack(self.expected, cost))
    }

    /// Sets the keep of new totals.
    fn hear(&mut self, keep: u64, moment: &Moment) {
        self.set(keep, moment.now);
        if keep >= ALL
            && let Some((_, before)) = self.limited
        {
            self.most = self.last[0].max(before);
        }
    }

    /// Sets the keep of another quota by the same totals, which were heard at that time.
    fn change(&mut self, keep: u64, heard: Instant) {
        if self.last == [0; 2] {
            // Of what this process is offered nothing is known.
            self.keep = keep;
            return;
        }
        self.limited = None;
        self.set(keep, heard);
    }

    fn set(&mut self, keep: u64, heard: Instant) {
        let [now, then] = self.last;
        self.keep = keep;
        self.expected = if keep < ALL { kept(keep, then) } else { 0 };
        if keep < ALL {
            self.most = kept(keep, now.max(then));
            self.limited = Some((heard, self.most));
        }
        if let Some(callers) = &mut self.callers {
            if keep < ALL { callers.divide(keep) } else { callers.forget() }
        }
    }
}
