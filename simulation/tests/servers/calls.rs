//! Random calls of the crate's scripts.

use fastrand::Rng;

use super::sources::{Script, scripts};

/// A call: its words, and which keys it may write.
pub(crate) struct Call {
    pub(crate) words: Vec<Vec<u8>>,
    pub(crate) keys: Vec<String>,
}

/// What can be called.
pub(crate) struct Calls {
    random: Rng,
    scripts: Vec<Script>,
    /// The time in µs since the epoch, of which calls have their own.
    now_us: u64,
}

impl Calls {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Rng::with_seed(seed), scripts: scripts(), now_us: 1_700_000_000_000_000 }
    }

    pub(crate) fn scripts(&self) -> &[Script] {
        &self.scripts
    }

    /// The next call, by a time of its own, or the server's.
    pub(crate) fn next(&mut self, own_time: bool) -> Call {
        self.pass_time();
        let time = if own_time { self.now_us.to_string() } else { String::new() };
        let place = self.random.usize(..self.scripts.len());
        let (entry, algorithms) = (self.scripts[place].entry, self.scripts[place].algorithms.clone());
        let algorithms: Vec<u8> = (0..4).map(|_| algorithms[self.random.usize(..algorithms.len())]).collect();
        let (keys, packed) = match entry {
            "single" => self.single(&algorithms),
            "singles" => self.singles(&algorithms),
            _ => self.batch(&algorithms),
        };
        let mut words = vec![b"EVALSHA".to_vec(), self.scripts[place].hash.clone().into_bytes()];
        words.push(keys.len().to_string().into_bytes());
        words.extend(keys.iter().map(|key| key.clone().into_bytes()));
        words.extend([time.into_bytes(), packed]);
        Call { words, keys }
    }

    /// Mostly some ms; at times back, or far.
    fn pass_time(&mut self) {
        match self.random.u8(..40) {
            0 => self.now_us -= self.random.u64(..100_000_000),
            1 => self.now_us += self.random.u64(..100_000_000_000),
            2 => self.now_us = (1 << 51) - self.random.u64(..1_000_000_000),
            3 => self.now_us = 1_700_000_000_000_000 + self.random.u64(..1_000_000),
            _ => self.now_us += self.random.u64(..400_000),
        }
    }

    fn single(&mut self, algorithms: &[u8]) -> (Vec<String>, Vec<u8>) {
        let key = self.keys(algorithms[0], 1);
        (key, [vec![1], self.rule(algorithms[0], 0)].concat())
    }

    fn singles(&mut self, algorithms: &[u8]) -> (Vec<String>, Vec<u8>) {
        let algorithms = &algorithms[..self.random.usize(1..=algorithms.len())];
        let (mut keys, mut packed) = (Vec::new(), vec![u8::try_from(algorithms.len()).unwrap()]);
        for (place, algorithm) in algorithms.iter().enumerate() {
            let count = self.random.u8(1..4);
            keys.extend(self.keys(*algorithm, count.into()).into_iter().map(|key| format!("{key}-{place}")));
            packed.extend(self.rule(*algorithm, 0));
            packed.push(count);
        }
        (keys, packed)
    }

    /// Some requests of some checks each, changes and resets among them.
    fn batch(&mut self, algorithms: &[u8]) -> (Vec<String>, Vec<u8>) {
        let rules = self.random.usize(1..=algorithms.len());
        let mut packed = vec![u8::try_from(rules).unwrap()];
        let mut changes = Vec::new();
        for algorithm in &algorithms[..rules] {
            // The sum of both is a renewal, of slots.
            let both = if *algorithm == 6 { 24 } else { 8 };
            let kind = [0, 0, 0, 0, 8, 16, both, 32][self.random.usize(..8)];
            changes.push(kind > 0);
            packed.extend(self.rule(*algorithm, kind));
        }
        let keys: Vec<String> = (0..self.random.usize(1..5)).map(|place| format!("batch-{place}")).collect();
        for _ in 0..self.random.u8(1..5) {
            self.request(&mut packed, &changes, keys.len());
        }
        (keys, packed)
    }

    /// A change is alone in its request.
    fn request(&mut self, packed: &mut Vec<u8>, changes: &[bool], keys: usize) {
        let mut rule = || self.random.usize(..changes.len());
        let first = rule();
        let others = (0..3).map(|_| rule()).filter(|rule| !changes[*rule]).collect::<Vec<_>>();
        let others = if changes[first] { &[][..] } else { &others[..] };
        packed.push(u8::try_from(others.len() + 1).unwrap());
        for rule in [first].iter().chain(others) {
            let key = self.random.usize(1..=keys);
            packed.extend([u8::try_from(key).unwrap(), u8::try_from(rule + 1).unwrap()]);
        }
    }

    fn keys(&mut self, algorithm: u8, count: usize) -> Vec<String> {
        let first = self.random.u8(..4);
        (0..count).map(|place| format!("key-{algorithm}-{}", usize::from(first) + place)).collect()
    }

    /// A rule as `lua/wire.lua` has it.
    fn rule(&mut self, algorithm: u8, kind: u8) -> Vec<u8> {
        let mut random = |numbers: &[u64]| numbers[self.random.usize(..numbers.len())];
        let millis = random(&[0, 0, 2]);
        let window = random(&[10_000_000, 60_000_000, 11_111_111, 3_600_000, 86_400_000]);
        let limit = random(&[1, 2, 5, 7, 10, 33]);
        let limit = if algorithm == 4 { limit } else { limit * random(&[1, 1, 1, 1_000, 100_000]) };
        let capacity = random(&[limit, limit, 1, 2 * limit, limit + 3]);
        let cost = random(&[0, 1, 1, 1, 1, 2, 3, limit, limit + 1]);
        let floor =
            if kind > 0 { random(&[1 << 52, 1 << 52, 0, 1_700_000_000_000_000]) } else { random(&[0, 0, 0, 1, 2]) };
        let flags = u8::try_from(
            millis + random(&[0, 1, 1, 1]) + random(&[0, 0, 0, 4]) + if kind > 0 { 0 } else { random(&[0, 0, 64]) },
        );
        let mut rule = vec![algorithm, flags.unwrap() | kind];
        for number in [window, limit, capacity, cost, floor] {
            rule.extend_from_slice(&number.to_be_bytes()[1..]);
        }
        rule
    }

    /// A value that scripts may find; at times one of a length that they take for their own.
    pub(crate) fn value(&mut self) -> Vec<u8> {
        let size = [0, 1, 5, 6, 10, 11, 12, 14, 19, 21, 22, 42][self.random.usize(..12)];
        let top = [0, 0, 1, 6, 255][self.random.usize(..5)];
        let mut bytes: Vec<u8> = (0..size).map(|_| self.random.u8(..)).collect();
        bytes.iter_mut().step_by(7).for_each(|byte| *byte = (*byte).min(top));
        bytes
    }

    pub(crate) fn chance(&mut self, of: u8) -> bool {
        self.random.u8(..of) == 0
    }
}
