//! The calls of a random history.

use super::history::{BANS, History, KEYS};
use crate::server::{Call, Entry};

/// A call that is made up, one request after the other.
#[derive(Default)]
struct Packed {
    keys: Vec<&'static str>,
    rules: Vec<Vec<u8>>,
    checks: Vec<u8>,
}

impl Packed {
    /// Adds a check, a ban or a change.
    fn push(&mut self, key: &'static str, rule: Vec<u8>) {
        self.rules.push(rule);
        let place = self.keys.iter().position(|other| *other == key).unwrap_or_else(|| {
            self.keys.push(key);
            self.keys.len() - 1
        });
        self.checks.extend([place + 1, self.rules.len()].map(|place| u8::try_from(place).unwrap()));
    }
}

impl History<'_> {
    fn time(&self) -> Vec<u8> {
        let now_us = self.server.data.lock().unwrap().now_us;
        if self.gives_time { now_us.to_string().into_bytes() } else { Vec::new() }
    }

    /// A rule of a counter, which has windows if it counts by a calendar.
    fn rule(&mut self, place: usize, rule: Vec<u8>) -> Vec<u8> {
        let now_us = self.server.data.lock().unwrap().now_us;
        self.shapes[place].at(&mut self.rng, now_us, rule)
    }

    /// A call for so many plain checks of one key each.
    pub(super) fn singles(&mut self, count: usize) -> Call {
        let mut places = [0, 1, 2, 3];
        self.rng.shuffle(&mut places);
        let keys: Vec<&[u8]> = places[..count].iter().map(|place| KEYS[*place].as_bytes()).collect();
        let checks = places[..count].iter().flat_map(|place| {
            let rule = self.shapes[*place].check(&mut self.rng, 0);
            let mut rule = self.rule(*place, rule);
            rule.push(1);
            rule
        });
        let packed = [vec![u8::try_from(count).unwrap()], checks.collect()].concat();
        let entry = if count == 1 && self.rng.bool() { Entry::Single } else { Entry::Singles };
        let args = [self.time(), packed];
        self.server.run(entry, &keys, args)
    }

    /// A call for some requests, of several checks or one change.
    pub(super) fn batch(&mut self) -> Call {
        let mut packed = Packed::default();
        for _ in 0..self.rng.usize(1..=3) {
            if self.rng.u8(..3) == 0 {
                self.change(&mut packed);
            } else {
                self.request(&mut packed);
            }
        }
        let Packed { keys, rules, checks } = packed;
        let entry = if keys.iter().any(|key| BANS.contains(key)) { Entry::Bans } else { Entry::Batch };
        let packed = [vec![u8::try_from(rules.len()).unwrap()], rules.concat(), checks].concat();
        let keys: Vec<&[u8]> = keys.into_iter().map(str::as_bytes).collect();
        let args = [self.time(), packed];
        self.server.run(entry, &keys, args)
    }

    fn change(&mut self, packed: &mut Packed) {
        let place = self.rng.usize(..4);
        packed.checks.push(1);
        if let Some(ban) = self.bans[place].filter(|_| self.rng.bool()) {
            return packed.push(BANS[place], ban.change(&mut self.rng));
        }
        let stamps = self.stamps.get(&place).map_or(&[][..], |stamps| stamps);
        let rule = self.shapes[place].change(&mut self.rng, stamps);
        let rule = self.rule(place, rule);
        packed.push(KEYS[place], rule);
    }

    fn request(&mut self, packed: &mut Packed) {
        let mut checks: Vec<(usize, Vec<u8>)> = Vec::new();
        let places: Vec<usize> = (0..self.rng.usize(1..=4)).map(|_| self.rng.usize(..4)).collect();
        for &place in &places {
            let repeats = if places.iter().filter(|other| **other == place).count() > 1 { 64 } else { 0 };
            let whole = if self.shapes[place].algorithm == 4 && self.rng.bool() { 4 } else { 0 };
            let rule = self.shapes[place].check(&mut self.rng, whole | repeats);
            checks.push((place, self.rule(place, rule)));
        }
        let has_ban: Vec<bool> =
            checks.iter().map(|(place, _)| self.bans[*place].is_some() && self.rng.u8(..4) > 0).collect();
        let bans = has_ban.iter().filter(|has| **has).count();
        packed.checks.push(u8::try_from(bans + checks.len()).unwrap());
        let bans_of = |place| checks.iter().zip(&has_ban).filter(|((other, _), has)| **has && *other == place).count();
        let repeats = [0, 1, 2, 3].map(|place| if bans_of(place) > 1 { 64 } else { 0 });
        for ((place, rule), has_ban) in checks.into_iter().zip(has_ban) {
            if let Some(ban) = self.bans[place].filter(|_| has_ban) {
                let is_look = rule[23..30].iter().all(|byte| *byte == 0);
                packed.push(BANS[place], ban.of_check(&mut self.rng, rule[1] & 1 | repeats[place], is_look));
            }
            packed.push(KEYS[place], rule);
        }
    }
}
