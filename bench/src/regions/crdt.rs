//! Counters that regions replicate among each other, on paper: the crate has none.
//!
//! Each of R regions has a grow-only counter of each region for each window. It admits while the sum of those that it
//! knows is below the limit, and sends its own to the others every τ, over links that take δ. So it lacks what the
//! others admitted in the last τ + δ, at most.

use std::time::Duration;

use super::REGIONS;
use super::load::Load;

/// Between two messages of a region to another.
const EVERY: Duration = Duration::from_millis(100);

/// What they may admit beyond the limit in each window of a second, at most, over the limit. A region whose part of the
/// load is p stops (1 − p) (τ + δ) too late, so it is offered × (τ + δ) × Σ p (1 − p): of even parts, (R − 1) / R of
/// what is offered in τ + δ.
pub(super) fn excess(load: Load, way: Duration) -> f64 {
    load.times * (EVERY + way).as_secs_f64() * load.parts.map(|part| part * (1.0 - part)).iter().sum::<f64>()
}

/// Messages a second of all regions: R (R − 1) / τ.
pub(super) fn messages() -> f64 {
    f64::from(REGIONS * (REGIONS - 1)) / EVERY.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::super::load::LOADS;
    use super::*;

    #[test]
    fn what_is_written_on_paper_is_computed() {
        let [even, skewed, below] = LOADS.map(|load| excess(load, Duration::from_millis(80)));
        assert!((even - 3.0 * 0.18 * 2.0 / 3.0).abs() < 1e-9, "{even}");
        assert!(below < skewed && skewed < even, "{below} {skewed} {even}");
        assert!((messages() - 60.0).abs() < 1e-6);
    }
}
