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

    /// The bytes of its rule, of which `part` is of the request.
    fn rule(self, flags: u8, part: u64) -> Vec<u8> {
        let (share, code) = (1 << 35, part + u64::from(self.extends));
        let limit = code * (1 << 20) + self.after;
        let numbers = [self.within, limit, self.most, self.growth * share + self.time, 0];
        [64, 2 | flags].into_iter().chain(numbers.into_iter().flat_map(|n| number(7, n))).collect()
    }

    /// That of a check with this place in its request, from 1.
    pub(super) fn of_check(self, rng: &mut Rng, place: u64, enforced: bool, is_look: bool) -> Vec<u8> {
        let counts = match (rng.u8(..8), is_look) {
            (0, _) => 0,
            (1..4, true) => 6,
            _ => 4,
        };
        self.rule(u8::from(enforced), 8 * place + counts)
    }

    /// A strike, or that all is forgotten.
    pub(super) fn change(self, rng: &mut Rng) -> Vec<u8> {
        if rng.u8(..4) == 0 {
            return [64, 32].into_iter().chain([1; 5].into_iter().flat_map(|n| number(7, n))).collect();
        }
        self.rule(16, 0)
    }
}
