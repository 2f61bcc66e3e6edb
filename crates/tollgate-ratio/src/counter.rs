//! Numbers of one counter, and the law: the share of its requests that is allowed.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;
use tollgate::Quota;
use tollgate::store::{Check, Counter};

use crate::tally::{CounterId, MAX_TOTAL, MAX_UNITS, Offered};

const MAX_CALLERS: usize = 64;

#[derive(Debug)]
pub(super) struct RatioCounter {
    pub(super) hash: u64,
    pub(super) counter: Counter,
    pub(super) id: CounterId,
    rate: f64,
    /// 0 without a reserve.
    floor: u64,
    kinds: [Kind; 2],
    totals: [u64; 2],
    until: Option<Instant>,
    pub(super) by_share: bool,
}

#[derive(Debug)]
struct Kind {
    offered: u64,
    admitted: u64,
    last: u64,
    keep: f64,
    /// Requests that should have been allowed, but were not.
    behind: f64,
    callers: Option<Box<Callers>>,
}

#[derive(Debug, Default)]
struct Callers {
    listed: Vec<(u64, u64)>,
    /// Units of each caller in the last tick, ascending.
    last: Vec<u64>,
    /// Units in a tick up to which each caller is allowed, or `None` before it was computed, or if nothing is dropped.
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

    /// Adopts the quota and floor of a check, because tiers that share a key are each dropped by their own limit.
    pub(super) fn follow(&mut self, check: &Check, tick: Duration) {
        self.floor = if check.floor > 0 { check.floor } else { self.floor };
        if self.counter.quota() != check.counter.quota() {
            self.counter = check.counter.clone();
            self.rate = rate(check.counter.quota(), tick);
            self.set_keeps();
        }
    }

    pub(super) fn hear(&mut self, totals: [u64; 2], until: Instant) {
        self.totals = totals.map(|units| units.min(MAX_TOTAL - 1));
        self.until = Some(until);
        self.set_keeps();
    }

    /// Critical requests are dropped only if they alone exceed the rate. Other requests share the rest, and at most the
    /// units outside of the reserve.
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

    /// `drawn` is a random number from 0 to 1.
    pub(super) fn offer(&mut self, check: &Check, caller: Option<u64>, now: Instant, drawn: f64) -> bool {
        let is_known = self.is_known(now);
        let kind = &mut self.kinds[usize::from(check.floor == 0)];
        kind.offered = kind.offered.saturating_add(check.cost);
        let keep = if is_known { kind.keep } else { 1.0 };
        if let Some(hash) = caller {
            return drawn < kind.callers.get_or_insert_default().offer(hash, check.cost, keep);
        }
        // With chance alone the sums would drift, and with the error alone clients whose requests alternate could
        // always or never be dropped.
        let passes = keep >= 1.0 || drawn < keep + kind.behind / 4.0;
        kind.behind += keep - f64::from(passes);
        passes
    }

    /// Per tick, allows at most the limit, or the burst if it is larger. `ticks` have passed since the tick began.
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

    fn is_known(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now <= until)
    }

    /// Units left for all processes together, as far as this process knows.
    pub(super) fn remaining(&self, check: &Check, now: Instant) -> u64 {
        let (quota, is_known) = (check.counter.quota(), self.is_known(now));
        if is_known && self.kinds[usize::from(check.floor == 0)].keep < 1.0 {
            return 0;
        }
        // The window may be longer or shorter than a tick.
        let total = if is_known { self.totals[0] + self.totals[1] } else { 0 };
        let used = whole(float(total) * float(quota.limit()) / self.rate);
        quota
            .limit()
            .saturating_sub(used)
            .min(quota.capacity())
            .saturating_sub(check.floor.saturating_add(self.admitted()))
    }

    pub(super) fn ratio(&self, now: Instant) -> Option<f64> {
        self.is_known(now).then(|| 1.0 - self.kinds[usize::from(self.totals[0] == 0)].keep)
    }

    pub(super) fn roll(&mut self, scale: f64) {
        self.by_share = false;
        for kind in &mut self.kinds {
            kind.last = whole(float(mem::take(&mut kind.offered)) * scale).min(MAX_UNITS);
            kind.admitted = 0;
            drop(kind.callers.take_if(|callers| !callers.roll()));
        }
    }

    /// Returns `true` if one of `live` processes must report this counter exactly instead of sampling it.
    pub(super) fn is_exact(&self, live: u64, now: Instant) -> bool {
        let is_hot = self.is_known(now) && 2.0 * float(self.totals[0] + self.totals[1]) >= self.rate;
        is_hot || float(self.last()) > self.threshold(live)
    }

    /// 0 is an unknown number of processes, for which samples would be too few.
    fn threshold(&self, live: u64) -> f64 {
        if live > 0 { self.rate / (2.0 * float(live)) } else { 0.0 }
    }

    /// Samples counters below the threshold, so that sums are right on average and most keys are never sent.
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

    pub(super) fn weight(&self) -> f64 {
        float(self.last()) / self.rate
    }

    fn last(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.last).sum()
    }
}

impl Callers {
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

    fn roll(&mut self) -> bool {
        self.last = self.listed.drain(..).map(|(_, units)| units).collect();
        self.last.sort_unstable();
        !self.last.is_empty()
    }
}

fn rate(quota: &Quota, tick: Duration) -> f64 {
    float(quota.limit()) * tick.div_duration_f64(quota.window())
}

/// Ratios need at most the 53 bits of a float.
#[allow(clippy::cast_precision_loss, reason = "ratios need no more than 53 bits")]
pub(super) fn float(units: u64) -> f64 {
    units as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is cut to the bounds of the integer")]
pub(super) fn whole(units: f64) -> u64 {
    units.round() as u64
}

/// splitmix64: from 0 to below 1, and repeats with the seed.
pub(super) fn draw(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    float((mixed ^ (mixed >> 31)) >> 11) / float(1 << 53)
}

#[cfg(test)]
mod tests;
