//! The numbers of one counter, and the law: which share of its requests is admitted.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;
use tollgate::Quota;
use tollgate::store::{Check, Counter};

use crate::tally::{CounterId, MAX_TOTAL, MAX_UNITS, Offered};

/// The callers of a key that are counted in a tick. Requests of further ones are dropped alike.
const MAX_CALLERS: usize = 64;

/// One counter.
#[derive(Debug)]
pub(super) struct RatioCounter {
    /// The hash that it is found by.
    pub(super) hash: u64,
    pub(super) counter: Counter,
    pub(super) id: CounterId,
    /// The units that a tick admits.
    rate: f64,
    /// The units that only critical requests may use; 0 without a reserve.
    floor: u64,
    /// Requests that may not use the reserve, and those that may.
    kinds: [Kind; 2],
    /// What all processes were offered of each kind in a tick.
    totals: [u64; 2],
    /// Until when these totals hold; `None` before there are some.
    until: Option<Instant>,
    /// Whether this process admits its share, for want of room in a report or in the tally.
    pub(super) by_share: bool,
}

/// The requests that may not use the reserve, or those that may.
#[derive(Debug)]
struct Kind {
    /// Units offered since the tick began.
    offered: u64,
    /// Units admitted since then.
    admitted: u64,
    /// Units offered in the last tick.
    last: u64,
    /// The share of requests that is admitted: 1 less the drop ratio.
    keep: f64,
    /// By how many requests fewer passed than that share.
    behind: f64,
    callers: Option<Box<Callers>>,
}

/// The callers of one kind of requests, so that small ones are not dropped for a large one.
#[derive(Debug, Default)]
struct Callers {
    /// The hash of each, and its units in this tick.
    listed: Vec<(u64, u64)>,
    /// The units of each in the last tick, in ascending order.
    last: Vec<u64>,
    /// Up to how many units in a tick each is admitted; `None` before it was computed, or if nothing is dropped.
    level: Option<f64>,
}

impl RatioCounter {
    pub(super) fn new(hash: u64, counter: &Counter, tick: Duration) -> Self {
        let kind = || Kind { offered: 0, admitted: 0, last: 0, keep: 1.0, behind: 0.0, callers: None };
        Self {
            hash,
            counter: counter.clone(),
            id: CounterId::new(counter),
            rate: rate(counter.quota(), tick),
            floor: 0,
            kinds: [kind(), kind()],
            totals: [0; 2],
            until: None,
            by_share: false,
        }
    }

    pub(super) fn is_of(&self, counter: &Counter) -> bool {
        self.counter.policy() == counter.policy() && self.counter.key() == counter.key()
    }

    /// Sets the quota and the floor of a check, where they have changed: tiers that share a key are each dropped by
    /// their own limit.
    pub(super) fn follow(&mut self, check: &Check, tick: Duration) {
        self.floor = if check.floor > 0 { check.floor } else { self.floor };
        if self.counter.quota() != check.counter.quota() {
            self.counter = check.counter.clone();
            self.rate = rate(check.counter.quota(), tick);
            self.set_keeps();
        }
    }

    /// Sets the totals of all processes in a tick, which hold until then.
    pub(super) fn hear(&mut self, totals: [u64; 2], until: Instant) {
        self.totals = totals.map(|units| units.min(MAX_TOTAL - 1));
        self.until = Some(until);
        self.set_keeps();
    }

    /// Critical requests are dropped only if they alone exceed the rate. Others have what these leave, and at most what
    /// is outside of the reserve.
    fn set_keeps(&mut self) {
        let ([ordinary, critical], capacity) = (self.totals.map(float), float(self.counter.quota().capacity().max(1)));
        let outside = self.rate * (1.0 - float(self.floor) / capacity).max(0.0);
        let part = |room: f64, offered: f64| if room < offered { room / offered } else { 1.0 };
        let keeps = [part(outside.min((self.rate - critical).max(0.0)), ordinary), part(self.rate, critical)];
        for (kind, keep) in self.kinds.iter_mut().zip(keeps) {
            kind.keep = keep;
            if let Some(callers) = &mut kind.callers {
                callers.divide(keep);
            }
        }
    }

    /// Counts what is offered, and returns whether its ratio passes it, by a random number from 0 to 1.
    pub(super) fn offer(&mut self, check: &Check, caller: Option<u64>, now: Instant, drawn: f64) -> bool {
        let is_known = self.is_known(now);
        let kind = &mut self.kinds[usize::from(check.floor == 0)];
        kind.offered = kind.offered.saturating_add(check.cost);
        let keep = if is_known { kind.keep } else { 1.0 };
        if let Some(hash) = caller {
            return drawn < kind.callers.get_or_insert_default().offer(hash, check.cost, keep);
        }
        // By chance alone sums would drift, and by the error alone clients whose requests alternate would be dropped all
        // or never.
        let passes = keep >= 1.0 || drawn < keep + kind.behind / 4.0;
        kind.behind += keep - f64::from(passes);
        passes
    }

    /// Takes units, if this process alone may admit them: no more than the limit, or the burst if that is larger, in a
    /// tick, of which `ticks` have passed since it began.
    pub(super) fn takes(&mut self, check: &Check, ticks: f64) -> bool {
        let most = self.rate.max(float(check.counter.quota().capacity())) * ticks.clamp(1.0, 2.0);
        let (all, cost) = (float(self.admitted()), float(check.cost));
        let kind = &mut self.kinds[usize::from(check.floor == 0)];
        let fits = all + cost <= most && float(kind.admitted + check.floor) + cost <= most;
        kind.admitted += if fits { check.cost } else { 0 };
        fits
    }

    fn admitted(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.admitted).sum()
    }

    /// Whether its last totals still hold.
    fn is_known(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now <= until)
    }

    /// Returns the units that are left to take, of all processes together, as far as this one knows.
    pub(super) fn remaining(&self, check: &Check, now: Instant) -> u64 {
        let (quota, is_known) = (check.counter.quota(), self.is_known(now));
        if is_known && self.kinds[usize::from(check.floor == 0)].keep < 1.0 {
            return 0;
        }
        // Of a window, which has more or fewer ticks than one.
        let total = if is_known { self.totals[0] + self.totals[1] } else { 0 };
        let used = whole(float(total) * float(quota.limit()) / self.rate);
        quota
            .limit()
            .saturating_sub(used)
            .min(quota.capacity())
            .saturating_sub(check.floor.saturating_add(self.admitted()))
    }

    /// Returns the drop ratio of requests that may not use the reserve; of the others, if there were none.
    pub(super) fn ratio(&self, now: Instant) -> Option<f64> {
        self.is_known(now).then(|| 1.0 - self.kinds[usize::from(self.totals[0] == 0)].keep)
    }

    /// Begins a tick. What was offered in the last one is multiplied by `scale`.
    pub(super) fn roll(&mut self, scale: f64) {
        self.by_share = false;
        for kind in &mut self.kinds {
            kind.last = whole(float(mem::take(&mut kind.offered)) * scale).min(MAX_UNITS);
            kind.admitted = 0;
            drop(kind.callers.take_if(|callers| !callers.roll()));
        }
    }

    /// Returns whether it is reported exactly by one of `live` processes: if the last totals were half of the rate, or
    /// with half of a fair share of it.
    pub(super) fn is_exact(&self, live: u64, now: Instant) -> bool {
        let is_hot = self.is_known(now) && 2.0 * float(self.totals[0] + self.totals[1]) >= self.rate;
        is_hot || float(self.last()) > self.threshold(live)
    }

    /// Of an unknown number of processes, which is 0, samples would be too few.
    fn threshold(&self, live: u64) -> f64 {
        if live > 0 { self.rate / (2.0 * float(live)) } else { 0.0 }
    }

    /// Returns what is reported, if it is. What is below the threshold is sampled, so that sums are right on average and
    /// most keys are never sent.
    pub(super) fn offered(&self, live: u64, now: Instant, mut draw: impl FnMut() -> f64) -> Option<Offered> {
        let (all, threshold) = (float(self.last()), self.threshold(live));
        let scale = if self.is_exact(live, now) {
            1.0
        } else if draw() * threshold < all {
            threshold / all
        } else {
            return None;
        };
        let rounding = draw() - 0.5;
        let [ordinary, critical] = [0, 1].map(|kind: usize| whole(float(self.kinds[kind].last) * scale + rounding));
        Some(Offered::new(self.id, ordinary, critical, whole(self.rate).max(1)))
    }

    /// Returns which part of the rate was offered in the last tick.
    pub(super) fn weight(&self) -> f64 {
        float(self.last()) / self.rate
    }

    fn last(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.last).sum()
    }
}

impl Callers {
    /// Counts units of a caller, and returns which share of them is admitted, if `keep` is that of all.
    fn offer(&mut self, hash: u64, cost: u64, keep: f64) -> f64 {
        let place = match self.listed.iter().position(|(caller, _)| *caller == hash) {
            Some(place) => place,
            None if self.listed.len() == MAX_CALLERS => return keep,
            None => {
                self.listed.push((hash, 0));
                self.listed.len() - 1
            }
        };
        let units = &mut self.listed[place].1;
        let before = float(*units);
        *units = units.saturating_add(cost);
        match self.level {
            Some(level) if keep < 1.0 => ((level - before) / float(cost)).clamp(0.0, 1.0),
            _ => keep,
        }
    }

    /// Computes the level up to which all are admitted what `keep` admits of their units of the last tick.
    fn divide(&mut self, keep: f64) {
        let mut left = keep * self.last.iter().map(|units| float(*units)).sum::<f64>();
        let mut callers = float(self.last.len() as u64);
        self.level = None;
        for units in self.last.iter().map(|units| float(*units)) {
            // All that follow have at least as much.
            if units > left / callers {
                self.level = Some(left / callers);
                return;
            }
            left -= units;
            callers -= 1.0;
        }
    }

    /// Begins a tick, and returns whether there were callers in the last one.
    fn roll(&mut self) -> bool {
        self.last = self.listed.drain(..).map(|(_, units)| units).collect();
        self.last.sort_unstable();
        !self.last.is_empty()
    }
}

/// Returns the units that a quota admits in a tick.
fn rate(quota: &Quota, tick: Duration) -> f64 {
    float(quota.limit()) * tick.div_duration_f64(quota.window())
}

/// Ratios need no more than the 53 bits of a float.
#[allow(clippy::cast_precision_loss, reason = "ratios need no more than 53 bits")]
pub(super) fn float(units: u64) -> f64 {
    units as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is cut to the bounds of the integer")]
pub(super) fn whole(units: f64) -> u64 {
    units.round() as u64
}

/// Returns a random number from 0 to below 1, which repeats with the seed: splitmix64.
pub(super) fn draw(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    float((mixed ^ (mixed >> 31)) >> 11) / float(1 << 53)
}

#[cfg(test)]
mod tests;
