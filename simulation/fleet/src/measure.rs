//! Numbers of a run.

use crate::fleet::{Plan, Run};

/// The seconds that a new load may take.
pub(crate) const LAG: usize = 3;

/// The length of a mean, in seconds.
const MEAN: usize = 10;

/// What is measured; all but the last two as multiples of the limit.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// What was admitted in each second.
    pub(crate) seconds: Vec<f64>,
    /// The lowest and the highest mean over 10 s, from the fourth second on.
    pub(crate) means: [f64; 2],
    /// The standard deviation of single seconds from then on.
    pub(crate) deviation: f64,
    /// The share of what was offered that was dropped, from the fifth second on.
    pub(crate) dropped: f64,
    /// Calls of the tally in a second, of one process.
    pub(crate) calls: f64,
    /// Bytes in a second, of all processes.
    pub(crate) bytes: f64,
}

#[allow(clippy::cast_precision_loss, reason = "counts are small")]
impl Measured {
    /// Measures a run.
    pub(crate) fn new(plan: &Plan, run: &Run) -> Self {
        let limit = plan.limit as f64;
        let seconds: Vec<f64> = run.admitted.iter().map(|units| *units as f64 / limit).collect();
        let steady = &seconds[LAG.min(seconds.len())..];
        let means = steady.windows(MEAN).map(|seconds| seconds.iter().sum::<f64>() / MEAN as f64);
        let bounds = means.fold([f64::MAX, 0.0], |[low, high]: [f64; 2], mean| [low.min(mean), high.max(mean)]);
        let mean = steady.iter().sum::<f64>() / steady.len() as f64;
        let variance = steady.iter().map(|second| (second - mean).powi(2)).sum::<f64>() / steady.len() as f64;
        let sum = |units: &[u64]| units.iter().skip(LAG + 1).sum::<u64>() as f64;
        let time = f64::from(plan.seconds);
        Self {
            means: bounds,
            deviation: variance.sqrt(),
            dropped: 1.0 - sum(&run.admitted) / sum(&run.offered).max(1.0),
            calls: run.calls as f64 / time / plan.processes as f64,
            bytes: run.bytes as f64 / time,
            seconds,
        }
    }

    /// Joins it with one of another seed: the widest bounds, and the first one's seconds.
    #[must_use]
    pub(crate) fn or_worse(self, other: &Self) -> Self {
        let means = [self.means[0].min(other.means[0]), self.means[1].max(other.means[1])];
        let (deviation, dropped) = (self.deviation.max(other.deviation), self.dropped.max(other.dropped));
        Self { means, deviation, dropped, ..self }
    }
}

/// Returns Jain's index of fairness: 1 if all are equal, and 1/n if one has all.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    #[allow(clippy::cast_precision_loss, reason = "there are few")]
    let count = shares.len() as f64;
    sum * sum / (count * squares)
}
