//! Bans of counters, and what is asked of them.

use fastrand::Rng;

use super::bytes::number;

/// Times in ms.
const TIMES: [u64; 6] = [1, 3, 40, 1_000, 7_000, 60_000];

/// A ban.
#[derive(Clone, Copy, Debug)]
pub(super) struct BanShape {
    pub(super) after: u64,
    pub(super) within: u64,
    pub(super) time: u64,
    pub(super) growth: u64,
    pub(super) most: u64,
    pub(super) extends: bool,
}

impl BanShape {
    pub(super) fn random(rng: &mut Rng) -> Self {
        let time = TIMES[rng.usize(..TIMES.len())];
        let (growth, most) = match rng.u8(..3) {
            0 => (1_000, time),
            1 => (1_000 + rng.u64(..2_000), 3 * time),
            _ => (2_000, rng.u64(time..=10 * time)),
        };
        let within = TIMES[rng.usize(..TIMES.len())];
        Self { after: rng.u64(1..=4), within, time, growth, most, extends: rng.bool() }
    }

    /// The bytes of its rule.
    fn rule(self, flags: u8, units: u64) -> Vec<u8> {
        let limit = self.time * (1 << 18) + 2 * self.after + u64::from(self.extends);
        let numbers = [self.within, limit, self.growth * (1 << 35) + self.most, units, 0];
        [7, 2 | flags].into_iter().chain(numbers.into_iter().flat_map(|n| number(7, n))).collect()
    }

    /// That of a check. A look is mostly no strike, and else stands for a check of one unit.
    pub(super) fn of_check(self, rng: &mut Rng, flags: u8, is_look: bool) -> Vec<u8> {
        let counts = rng.u8(..8) > if is_look { 4 } else { 0 };
        self.rule(flags, counts.into())
    }

    /// A strike, or that all is forgotten.
    pub(super) fn change(self, rng: &mut Rng) -> Vec<u8> {
        if rng.u8(..4) == 0 {
            return self.rule(32, 0);
        }
        self.rule(16, 1)
    }
}
