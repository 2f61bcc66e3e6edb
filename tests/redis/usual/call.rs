//! Random calls, as `lua/wire.lua` reads them, and states of their keys.

use fastrand::Rng;

const NEVER: u64 = 1 << 52;

/// A rule: algorithm, flags, and window, limit, capacity, cost, floor.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    algorithm: u8,
    flags: u8,
    numbers: [u64; 5],
}

/// A key, whose name says algorithm, window and tick, and rules by which it is decided or changed.
#[derive(Debug)]
pub(super) struct Key {
    tick_us: u64,
    rules: Vec<Rule>,
}

/// The keys of a call by their places, from 0, and what a script is given with them.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) keys: Vec<usize>,
    pub(super) packed: Vec<u8>,
    checks: usize,
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

impl Rule {
    fn any(rng: &mut Rng, algorithm: u8, [tick_us, window]: [u64; 2]) -> Self {
        let (limit, capacity) = (pick(rng, &[1, 3, 7, 40, 1_000]), pick(rng, &[1, 2, 5, 40, 1_000]));
        let cost = pick(rng, &[1, 1, 1, 1, 2, 3, 0, capacity, capacity + 1, NEVER - 1]);
        let floor = pick(rng, &[0, 0, 0, 0, 1, 3, capacity, NEVER - 1]);
        let flags = u8::from(rng.u32(..5) > 0) + if tick_us == 1_000 { 2 } else { 0 };
        Self { algorithm, flags, numbers: [window, limit, capacity, cost, floor] }
    }

    /// A refund, a charge or a reset by the same numbers.
    fn change(&self, rng: &mut Rng) -> Self {
        let mut rule = self.clone();
        rule.flags = self.flags & 2 | pick(rng, &[8, 8, 16, 16, 32]);
        rule.numbers[3] = rng.u64(..4);
        rule.numbers[4] = NEVER;
        rule
    }

    /// A state of a falling level.
    fn level(&self, rng: &mut Rng, now: u64) -> Vec<u8> {
        let [window, limit, capacity, cost, floor] = self.numbers;
        let away = pick(rng, &[0, 0, 1, 2, window / 7, window, window + 1, 2 * window]);
        let time = if rng.u32(..5) == 0 { now + away } else { now - away };
        let fallen = now.saturating_sub(time) * limit;
        let room = capacity.saturating_sub(floor).saturating_sub(cost) * window;
        let some = rng.u64(..=capacity * window);
        let left = pick(rng, &[0, 1, room, room + 1, room.saturating_sub(1), some]);
        let level = pick(rng, &[left, left + fallen, left + fallen, left + fallen, NEVER - 1, NEVER]);
        let after = level.saturating_sub(fallen) + cost.min(capacity) * window;
        let need = now + after.div_ceil(limit);
        let ends = [need - 1, need, need + window / 2, need + window, need + window + 1, now, 0];
        let expiry = pick(rng, &ends);
        [time, level, expiry].iter().flat_map(|number| number.to_be_bytes()[1..].to_vec()).collect()
    }

    /// A state of a fixed window.
    fn count(&self, rng: &mut Rng, now: u64) -> Vec<u8> {
        let [window, limit, _, cost, floor] = self.numbers;
        let current = now - now % window;
        let start = pick(rng, &[current, current, current, current - window, current + window, current + 2 * window]);
        let room = limit.saturating_sub(cost).saturating_sub(floor);
        let some = rng.u64(..=limit);
        let count = pick(rng, &[0, 1, room, room + 1, some, 1 << 48, NEVER - 1]);
        let (high, low) = ((start % (1 << 44)) << 4 | count >> 48, count % (1 << 48));
        [high, low].iter().flat_map(|number| number.to_be_bytes()[2..].to_vec()).collect()
    }

    fn bytes(&self) -> Vec<u8> {
        let numbers = self.numbers.iter().flat_map(|number| number.to_be_bytes()[1..].to_vec());
        [self.algorithm, self.flags].into_iter().chain(numbers).collect()
    }
}

impl Key {
    pub(super) fn any(rng: &mut Rng) -> Self {
        let algorithm = pick(rng, &[2, 2, 2, 5, 5, 1]);
        Self::of(rng, algorithm)
    }

    pub(super) fn of(rng: &mut Rng, algorithm: u8) -> Self {
        let shape = pick(rng, &[[1, 30_000_000], [1, 60_000_000], [1_000, 600_000], [1_000, 2_592_000_000]]);
        Self { tick_us: shape[0], rules: (0..3).map(|_| Rule::any(rng, algorithm, shape)).collect() }
    }

    /// A value that the key may have at this time, often one at the edge of what is usual.
    pub(super) fn value(&self, rng: &mut Rng, now_us: u64) -> Option<Vec<u8>> {
        let rule = &self.rules[rng.usize(..self.rules.len())];
        let now = now_us / self.tick_us;
        let mut state = if rule.algorithm == 1 { rule.count(rng, now) } else { rule.level(rng, now) };
        let size = state.len();
        pick(rng, &[Some(size), Some(size), Some(size), Some(size), Some(size - 1), Some(29), Some(0), None]).map(
            |size| {
                state.resize(size, 255);
                state
            },
        )
    }
}

impl Call {
    /// Requests of one to three checks each, and changes.
    pub(super) fn batch(rng: &mut Rng, all: &[Key]) -> Self {
        let (mut keys, mut rules, mut places, mut count) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for _ in 0..rng.usize(1..6) {
            let checks = pick(rng, &[1, 2, 2, 3, 3, 0]);
            let asked: Vec<usize> = (0..checks.max(1)).map(|_| rng.usize(..all.len())).collect();
            places.push(u8::try_from(asked.len()).expect("few"));
            for &key in &asked {
                let mut rule = all[key].rules[rng.usize(..3)].clone();
                if checks == 0 {
                    rule = rule.change(rng);
                } else if asked.iter().filter(|other| **other == key).count() > 1 {
                    rule.flags |= 64;
                }
                places.extend([place_of(&mut keys, key), place_of(&mut rules, rule)]);
                count += 1;
            }
        }
        let packed = [u8::try_from(rules.len()).expect("few")].into_iter();
        let packed = packed.chain(rules.iter().flat_map(Rule::bytes)).chain(places).collect();
        Self { keys, packed, checks: count }
    }

    /// Requests of one check each, one for each key.
    pub(super) fn singles(rng: &mut Rng, all: &[Key]) -> Self {
        let runs = all.iter().flat_map(|key| [key.rules[rng.usize(..3)].bytes(), vec![1]].concat());
        let packed = [u8::try_from(all.len()).expect("few")].into_iter().chain(runs).collect();
        Self { keys: (0..all.len()).collect(), packed, checks: all.len() }
    }

    pub(super) fn checks(&self) -> usize {
        self.checks
    }
}

/// The place of an item, from 1.
fn place_of<T: PartialEq>(items: &mut Vec<T>, item: T) -> u8 {
    let place = items.iter().position(|other| *other == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    });
    u8::try_from(place + 1).expect("few")
}
