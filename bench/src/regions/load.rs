//! What is offered: the same to each side, at times that do not depend on what is admitted.

use std::time::Duration;

use fastrand::Rng;

use super::{INSTANCES, LIMIT, REGIONS};

#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) name: &'static str,
    /// What is offered, over the limit.
    pub(super) times: f64,
    /// The part of each region.
    pub(super) parts: [f64; REGIONS as usize],
}

const EVEN: [f64; 3] = [1.0 / 3.0; 3];
const SKEWED: [f64; 3] = [0.8, 0.15, 0.05];

/// All of them, in the order of the figures.
pub(super) const LOADS: [Load; 3] = [
    Load { name: "even × 3", times: 3.0, parts: EVEN },
    Load { name: "80/15/5 × 3", times: 3.0, parts: SKEWED },
    Load { name: "80/15/5 × 0.9", times: 0.9, parts: SKEWED },
];

impl Load {
    /// Requests a second of one process of a region.
    pub(super) fn rate(self, region: u32) -> f64 {
        LIMIT as f64 * self.times * self.parts[region as usize] / f64::from(INSTANCES)
    }
}

/// Random arrivals at a rate, from 0.
pub(super) struct Arrivals {
    rng: Rng,
    rate: f64,
    at: f64,
}

impl Arrivals {
    /// The same seed is the same arrivals.
    pub(super) fn new(rate: f64, seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), rate, at: 0.0 }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.at -= (1.0 - self.rng.f64()).ln() / self.rate;
        Some(Duration::from_secs_f64(self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_together_offer_what_a_load_says() {
        for load in LOADS {
            let rates: f64 = (0..REGIONS).map(|region| load.rate(region) * f64::from(INSTANCES)).sum();
            assert!((rates - load.times * LIMIT as f64).abs() < 1e-6, "{}: {rates}", load.name);
        }
    }

    #[test]
    fn arrivals_are_those_of_their_rate_and_seed() {
        let arrivals = |seed| Arrivals::new(500.0, seed).take_while(|at| at.as_secs() < 20).collect::<Vec<_>>();
        let count = arrivals(7).len();
        assert!((9_700..10_300).contains(&count), "{count}");
        assert_eq!(arrivals(7), arrivals(7));
        assert_ne!(arrivals(7), arrivals(8));
    }
}
