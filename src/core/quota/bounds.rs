//! Bounds of quotas within which every decision is exact, and the errors beyond them.

use std::num::NonZeroU32;
use std::time::Duration;

use super::message::Message;
use super::{Quota, Tick};
use crate::core::algorithm::{Algorithm, Capacity};
use crate::core::{Calendar, Error};

const FINE_WINDOW: Duration = Duration::from_secs(60);

/// Some stored times are kept modulo twice this many ticks, so no state may matter for longer.
const MAX_TICKS: u64 = 1 << 43;

const MILLIS_A_DAY: u64 = 86_400_000;

const MAX_AT_ONCE: u64 = 1 << 32;

const MAX_LONG_LOG: u64 = 1_000_000;

/// Seconds for which a request holds its slots by default.
const HOLD: u32 = 3_600;

const ZERO_LIMIT: Fault = Fault::plain("limit 0 admits nothing: at least 1 is needed");

impl Quota {
    pub(crate) const fn with_units(self, limit: u64, capacity: u64) -> Self {
        Self { limit, capacity, ..self }
    }

    /// Multiplies limit and capacity, within the bounds of the algorithm. Those of a long sliding log stay as they are.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "bounded")]
    pub(crate) fn scaled(self, factor: f64) -> Self {
        let scale = |units: u64, most: u64| ((units as f64 * factor).round() as u64).clamp(1, most);
        // A long sliding log is longer than others.
        let limit = scale(self.limit, self.algorithm.most_units(self.window).max(self.limit));
        let scaled = self.with_units(limit, limit);
        match self.facts().capacity {
            Capacity::Burst => scaled.with_units(limit, scale(self.capacity, scaled.most_capacity())),
            Capacity::Queue => {
                let capacity = scale(self.capacity, scaled.most_capacity());
                let extra = self.extra.min(u32::try_from(capacity - 1).unwrap_or(u32::MAX));
                Self { extra, ..scaled.with_units(limit, capacity) }
            }
            Capacity::Limit => scaled,
        }
    }

    /// Returns `true` if the quota is a long sliding log: no other has more units than its algorithm allows.
    pub(crate) const fn is_long_log(&self) -> bool {
        self.limit > self.algorithm.most_units(self.window)
    }

    pub(super) const fn checked(algorithm: Algorithm, limit: u64, window: Duration) -> Result<Self, Fault> {
        match Self::within_bounds(algorithm, limit, window) {
            Err(fault) => Err(fault.algorithm(algorithm).window(window)),
            quota => quota,
        }
    }

    const fn within_bounds(algorithm: Algorithm, limit: u64, window: Duration) -> Result<Self, Fault> {
        let facts = algorithm.facts();
        let tick = if window.as_micros() <= FINE_WINDOW.as_micros() { Tick::Micro } else { Tick::Milli };
        let tick_nanos = tick.micros() as u128 * 1_000;
        let ticks = window.as_nanos() / tick_nanos;
        if limit == 0 {
            return Err(ZERO_LIMIT);
        }
        if window.is_zero() {
            return Err(Fault::plain("window 0s is no period: it must be at least 1us"));
        }
        if ticks >= (MAX_TICKS / 4) as u128 {
            return Err(Fault::plain("window {window} is too long: it must be less than 69 years"));
        }
        if !window.as_nanos().is_multiple_of(tick_nanos) {
            return Err(Fault::plain(
                "window {window} is not a whole number of ticks: use whole microseconds up to 60s, whole milliseconds \
                 above",
            ));
        }
        let given = window.as_nanos();
        #[allow(clippy::cast_possible_truncation, reason = "ticks are below 2^41")]
        let window = ticks as u64;
        if let Some(longest) = facts.longest_window
            && window > longest
        {
            return Err(Fault::plain("window {window} is too long for a {name}: it must be less than {bound} days")
                .bound(longest / MILLIS_A_DAY));
        }
        if given < facts.shortest_window.as_nanos() {
            return Err(Fault::plain("slot_ttl {window} is shorter than two heartbeats: it must be at least {bound}s")
                .bound(facts.shortest_window.as_secs()));
        }
        let most = algorithm.most_units(window);
        if limit > most {
            return Err(Fault::large_limit(algorithm, limit, most));
        }
        let (capacity, extra) = (facts.capacity.for_limit(limit), if facts.held { HOLD } else { 0 });
        Ok(Self { algorithm, limit, window, tick, capacity, extra, calendar: None })
    }

    pub(super) const fn checked_long(algorithm: Algorithm, limit: u64, window: Duration) -> Result<Self, Fault> {
        match Self::checked(algorithm, 1, window) {
            Ok(_) if limit == 0 => Err(ZERO_LIMIT),
            Ok(_) if limit > MAX_LONG_LOG => {
                Err(Fault::large_limit(algorithm, limit, MAX_LONG_LOG).algorithm(algorithm).window(window))
            }
            Ok(quota) => Ok(quota.with_units(limit, limit)),
            Err(fault) => Err(fault),
        }
    }

    pub(super) fn checked_calendar(algorithm: Algorithm, limit: u64, calendar: Calendar) -> Result<Self, Fault> {
        let quota = Self::checked(algorithm, limit, Duration::from_millis(calendar.usual_ms()))?;
        Ok(Self { calendar: Some(calendar), ..quota })
    }

    pub(super) const fn checked_queue(self, places: u64) -> Result<Self, Fault> {
        if !matches!(self.facts().capacity, Capacity::Queue) {
            return Err(Fault::new(places, "queue {given} is for a leaky bucket only"));
        }
        let most = self.most_capacity() - 1;
        if places > most {
            return Err(Fault::new(places, "queue {given} is too large: it must be at most {bound}").bound(most));
        }
        let least = self.extra as u64;
        if places < least {
            return Err(Fault::new(
                places,
                "queue {given} is too short for the requests that start at once: it must be at least {bound}",
            )
            .bound(least));
        }
        Ok(Self { capacity: places + 1, ..self })
    }

    pub(super) const fn checked_at_once(self, requests: u64) -> Result<Self, Fault> {
        if !matches!(self.facts().capacity, Capacity::Queue) {
            return Err(Fault::new(requests, "nodelay {given} is for a leaky bucket only"));
        }
        if requests == 0 {
            return Err(Fault::plain("nodelay 0 lets nothing start: it must be at least 1"));
        }
        if requests > self.capacity && self.capacity < MAX_AT_ONCE {
            return Err(Fault::new(
                requests,
                "nodelay {given} is more than the queue holds: it must be at most {bound}, or a longer queue",
            )
            .bound(self.capacity));
        }
        if requests > MAX_AT_ONCE {
            return Err(Fault::new(requests, "nodelay {given} is too large: it must be at most 2^32"));
        }
        #[allow(clippy::cast_possible_truncation, reason = "it was compared")]
        let extra = (requests - 1) as u32;
        Ok(Self { extra, ..self })
    }

    pub(super) const fn checked_burst(self, burst: u64) -> Result<Self, Fault> {
        if !matches!(self.facts().capacity, Capacity::Burst) {
            return Err(Fault::new(burst, "burst {given} is for a token bucket only"));
        }
        if burst == 0 {
            return Err(Fault::plain("burst 0 admits nothing: at least 1 is needed"));
        }
        let most = self.most_capacity();
        if burst > most {
            return Err(Fault::new(burst, "burst {given} is too large: it must be at most {bound}").bound(most));
        }
        Ok(Self { capacity: burst, ..self })
    }

    pub(super) const fn checked_life(self, life: Duration) -> Result<Self, Fault> {
        if !self.facts().held {
            return Err(Fault::plain("slot_ttl {window} is for a concurrency only").window(life));
        }
        match Self::checked(self.algorithm, self.limit, life) {
            Ok(quota) => Ok(Self { extra: self.extra, ..quota }),
            Err(fault) => Err(fault),
        }
    }

    pub(super) const fn checked_hold(self, longest: Duration) -> Result<Self, Fault> {
        if !self.facts().held {
            return Err(Fault::plain("max_hold {window} is for a concurrency only").window(longest));
        }
        if longest.as_secs() == 0 {
            return Err(Fault::plain("max_hold {window} is too short: it must be at least 1s").window(longest));
        }
        let seconds = longest.as_nanos().div_ceil(1_000_000_000);
        if seconds > u32::MAX as u128 {
            return Err(Fault::plain("max_hold {window} is too long: it must be less than 136 years").window(longest));
        }
        #[allow(clippy::cast_possible_truncation, reason = "it was compared")]
        let extra = seconds as u32;
        Ok(Self { extra, ..self })
    }

    pub(super) const fn checked_share(self, index: u32, of: NonZeroU32) -> Result<Self, Fault> {
        let parts = of.get() as u64;
        if index >= of.get() {
            return Err(Fault::new(index as u64, "there is no part {given} of {bound}: count from 0").bound(parts));
        }
        if self.limit < parts {
            return Err(Fault::new(
                self.limit,
                "limit {given} leaves some of {bound} parts empty: it must be at least {bound}, over a longer window if need be",
            )
            .bound(parts));
        }
        let limit = part(self.limit, index, of);
        match self.facts().capacity {
            Capacity::Burst if self.capacity < parts => Err(Fault::new(
                self.capacity,
                "burst {given} leaves some of {bound} parts empty: it must be at least {bound}",
            )
            .bound(parts)),
            Capacity::Burst => self.with_units(limit, limit).checked_burst(part(self.capacity, index, of)),
            Capacity::Queue => {
                // At least one request starts immediately, and never more than the part allows.
                let at_once = part(self.starting_at_once(), index, of);
                let alone = Self { extra: 0, ..self.with_units(limit, 1) };
                match alone.checked_queue(part(self.capacity - 1, index, of)) {
                    Ok(queue) if at_once > 1 => queue.checked_at_once(at_once),
                    queue => queue,
                }
            }
            Capacity::Limit => Ok(self.with_units(limit, limit)),
        }
    }

    /// Largest capacity that is exact and whose deepest debt is repaid within [`MAX_TICKS`] ticks, but at least the
    /// default, whose debt is repaid in two windows.
    const fn most_capacity(&self) -> u64 {
        let repaid = (MAX_TICKS - self.window) as u128 * self.limit as u128 / (4 * self.window) as u128;
        let exact = self.algorithm.most_units(self.window);
        #[allow(clippy::cast_possible_truncation, reason = "the smaller one is below 2^52")]
        let most = if repaid < exact as u128 { repaid as u64 } else { exact };
        let default = self.facts().capacity.for_limit(self.limit);
        if most < default { default } else { most }
    }
}

const fn part(units: u64, index: u32, of: NonZeroU32) -> u64 {
    let of = of.get() as u64;
    units / of + if (index as u64) < units % of { 1 } else { 0 }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    /// Message with the placeholders `{given}`, `{bound}`, `{name}` and `{window}`.
    says: &'static str,
    given: u64,
    bound: u64,
    name: &'static str,
    window: Duration,
}

impl Fault {
    const fn plain(says: &'static str) -> Self {
        Self { says, given: 0, bound: 0, name: "", window: Duration::ZERO }
    }

    const fn new(given: u64, says: &'static str) -> Self {
        Self { given, ..Self::plain(says) }
    }

    const fn bound(self, bound: u64) -> Self {
        Self { bound, ..self }
    }

    const fn algorithm(self, algorithm: Algorithm) -> Self {
        Self { name: algorithm.as_str(), ..self }
    }

    const fn window(self, window: Duration) -> Self {
        Self { window, ..self }
    }

    const fn large_limit(algorithm: Algorithm, limit: u64, most: u64) -> Self {
        let says = if algorithm.facts().held {
            "limit {given} is too large for a {name}: it must be at most {bound}"
        } else {
            "limit {given} is too large for a {name} over {window}: it must be at most {bound}"
        };
        Self::new(limit, says).bound(most)
    }

    /// `const`, because the message of an invalid constant quota is shown by the compiler.
    const fn message(&self) -> Message {
        let (says, mut message, mut at) = (self.says.as_bytes(), Message::new(), 0);
        while at < says.len() {
            if says[at] != b'{' {
                message.push(says[at]);
                at += 1;
                continue;
            }
            match says[at + 1] {
                b'g' => message.number(self.given),
                b'b' => message.number(self.bound),
                b'n' => message.text(self.name),
                _ => message.time(self.window),
            }
            while says[at] != b'}' {
                at += 1;
            }
            at += 1;
        }
        message
    }

    pub(super) fn error(self) -> Error {
        Error::invalid(self.message().as_str())
    }
}

#[track_caller]
pub(super) const fn accept(quota: Result<Quota, Fault>) -> Quota {
    match quota {
        Ok(quota) => quota,
        Err(fault) => panic!("{}", fault.message().as_str()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn count(parts: u32) -> NonZeroU32 {
        NonZeroU32::new(parts).expect("not zero")
    }

    fn each(limit: u64, more: u64) -> Vec<Quota> {
        vec![
            Quota::fixed_window(limit, HOUR),
            Quota::sliding_window(limit, HOUR),
            Quota::token_bucket(limit, HOUR).burst(limit + more),
            Quota::leaky_bucket(limit, HOUR).queue(more).nodelay(more / 2 + 1),
            Quota::concurrency(limit),
        ]
    }

    proptest! {
        #[test]
        fn the_parts_of_regions_and_instances_are_the_quota(
            regions in 1..9_u32,
            instances in 1..9_u32,
            limit in 64..10_000_u64,
            more in 0..500_u64,
        ) {
            for quota in each(limit, more) {
                let (mut limits, mut capacities) = (0, 0);
                for region in 0..regions {
                    for instance in 0..instances {
                        let share = quota.share(region, count(regions)).share(instance, count(instances));
                        limits += share.limit();
                        let is_queue = matches!(quota.facts().capacity, Capacity::Queue);
                        capacities += share.capacity() - u64::from(is_queue);
                        prop_assert!(!is_queue || share.starting_at_once() <= share.capacity());
                        prop_assert_eq!((share.window(), share.algorithm()), (quota.window(), quota.algorithm()));
                    }
                }
                prop_assert_eq!(limits, limit);
                let is_queue = matches!(quota.facts().capacity, Capacity::Queue);
                prop_assert_eq!(capacities, quota.capacity() - u64::from(is_queue));
            }
        }
    }

    #[test]
    fn a_part_that_would_be_empty_or_is_none_is_an_error() {
        let of = |quota: Quota, index, parts| quota.try_share(index, count(parts)).expect_err("no part").to_string();
        let quota = Quota::per_hour(3);
        assert_eq!(of(quota, 3, 3), "there is no part 3 of 3: count from 0");
        assert_eq!(
            of(quota, 0, 8),
            "limit 3 leaves some of 8 parts empty: it must be at least 8, over a longer window if need be"
        );
        assert_eq!(
            of(Quota::per_hour(10).burst(3), 0, 8),
            "burst 3 leaves some of 8 parts empty: it must be at least 8"
        );
        assert!(quota.try_share(2, count(3)).is_ok());
    }
}
