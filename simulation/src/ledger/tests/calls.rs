//! The calls of a random history.

use super::history::{History, KEYS};
use crate::server::{Call, Entry};

impl History<'_> {
    fn time(&self) -> Vec<u8> {
        let now_us = self.server.data.lock().unwrap().now_us;
        if self.gives_time { now_us.to_string().into_bytes() } else { Vec::new() }
    }

    /// A call for so many plain checks of one key each.
    pub(super) fn singles(&mut self, count: usize) -> Call {
        let mut places = [0, 1, 2, 3];
        self.rng.shuffle(&mut places);
        let keys: Vec<&[u8]> = places[..count].iter().map(|place| KEYS[*place].as_bytes()).collect();
        let checks = places[..count].iter().flat_map(|place| {
            let mut rule = self.shapes[*place].check(&mut self.rng, 0);
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
        let (mut keys, mut rules, mut checks): (Vec<usize>, Vec<Vec<u8>>, Vec<u8>) = Default::default();
        for _ in 0..self.rng.usize(1..=3) {
            let count = if self.rng.u8(..3) == 0 { 0 } else { self.rng.usize(1..=4) };
            let mut own: Vec<usize> = Vec::new();
            checks.push(u8::try_from(count.max(1)).unwrap());
            for _ in 0..count.max(1) {
                let place = self.rng.usize(..4);
                let repeats = own.contains(&place);
                own.push(place);
                let whole = if self.shapes[place].algorithm == 4 && self.rng.bool() { 4 } else { 0 };
                let stamps = self.stamps.get(&place).map_or(&[][..], |stamps| stamps);
                rules.push(match count {
                    0 => self.shapes[place].change(&mut self.rng, stamps),
                    _ => self.shapes[place].check(&mut self.rng, whole | if repeats { 64 } else { 0 }),
                });
                let key = keys.iter().position(|key| *key == place).unwrap_or_else(|| {
                    keys.push(place);
                    keys.len() - 1
                });
                checks.extend([u8::try_from(key + 1).unwrap(), u8::try_from(rules.len()).unwrap()]);
            }
        }
        let packed = [vec![u8::try_from(rules.len()).unwrap()], rules.concat(), checks].concat();
        let keys: Vec<&[u8]> = keys.into_iter().map(|place| KEYS[place].as_bytes()).collect();
        let args = [self.time(), packed];
        self.server.run(Entry::Batch, &keys, args)
    }
}
