//! Counters, and what is asked of them.

use fastrand::Rng;

use super::bytes::{NEVER, S, number};

/// Windows in µs; those above 60 s are counted in ms.
const WINDOWS: [u64; 9] = [1, 3, 10, 1_000, 7_000, S, 60 * S, 61 * S, 86_400 * S];

/// How a key's counter counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) algorithm: u8,
    pub(super) window_us: u64,
    pub(super) limit: u64,
    pub(super) capacity: u64,
}

impl Shape {
    pub(super) fn random(rng: &mut Rng) -> Self {
        let (algorithm, limit) = (rng.u8(1..=7), rng.u64(1..=7));
        if algorithm == 7 {
            // Windows of a calendar.
            return Self { algorithm: 33, window_us: 3_600 * S, limit, capacity: limit };
        }
        let capacity = if matches!(algorithm, 2 | 5) { rng.u64(1..=9) } else { limit };
        Self { algorithm, window_us: WINDOWS[rng.usize(..WINDOWS.len())], limit, capacity }
    }

    fn tick_us(self) -> u64 {
        if self.window_us > 60 * S { 1_000 } else { 1 }
    }

    /// The bytes of a rule: with flags, units, and the floor or stamp.
    pub(super) fn rule(self, flags: u8, units: u64, last: u64) -> Vec<u8> {
        let flags = flags | if self.tick_us() > 1 { 2 } else { 0 };
        let window = self.window_us / self.tick_us();
        let numbers = [window, self.limit, self.capacity, units, last].into_iter().flat_map(|n| number(7, n));
        [self.algorithm, flags].into_iter().chain(numbers).collect()
    }

    /// The start of the window that a process names, which has that of the server's time for one of its three, or none.
    fn named(rng: &mut Rng, now_us: u64) -> [u64; 2] {
        let hour = now_us / 3_600 / S;
        let hour = [hour, hour, hour, hour - 1, hour + 1, hour + rng.u64(2..4), hour - rng.u64(2..4)][rng.usize(..7)];
        [hour * 3_600_000, (60 << 32) + (60 << 16) + 60]
    }

    /// The bytes of its rule at a time by the server's clock: of a calendar with windows.
    pub(super) fn at(self, rng: &mut Rng, now_us: u64, rule: Vec<u8>) -> Vec<u8> {
        if self.algorithm != 33 || rule[1] & 32 != 0 {
            return rule;
        }
        let named = Self::named(rng, now_us);
        Self::with(&rule, named)
    }

    /// The same with the windows around that time.
    pub(super) fn now(self, now_us: u64, rule: Vec<u8>) -> Vec<u8> {
        let start = now_us / 3_600 / S * 3_600_000;
        if self.algorithm == 33 { Self::with(&rule, [start, (60 << 32) + (60 << 16) + 60]) } else { rule }
    }

    fn with(rule: &[u8], [start, lengths]: [u64; 2]) -> Vec<u8> {
        [&rule[..2], &number(7, start), &rule[9..16], &number(7, lengths), &rule[23..]].concat()
    }

    pub(super) fn check(self, rng: &mut Rng, flags: u8) -> Vec<u8> {
        let enforced = u8::from(rng.u8(..4) > 0);
        let cost = [0, 1, 1, 1, 1, 2, 3, self.capacity, self.capacity + 1, 1 << 40];
        let floor = [0, 0, 0, 0, 1, self.capacity];
        self.rule(flags | enforced, cost[rng.usize(..cost.len())], floor[rng.usize(..floor.len())])
    }

    pub(super) fn change(self, rng: &mut Rng, stamps: &[u64]) -> Vec<u8> {
        let units = [1, 1, 2, self.capacity, 3 * self.capacity, 1 << 40][rng.usize(..6)];
        let whole = 4 * u8::from(self.algorithm == 4 && rng.bool());
        match rng.u8(..10) {
            1 | 6 if self.algorithm == 6 => self.rule(24, units, rng.choice(stamps).copied().unwrap_or(NEVER)),
            0 => self.rule(32, 0, 0),
            1..=3 => self.rule(16 | whole, units, NEVER),
            4 | 5 => self.rule(8 | whole, units, NEVER),
            _ => self.rule(8 | whole, units, rng.choice(stamps).copied().unwrap_or(NEVER)),
        }
    }
}
