//! How many requests come to each process.

use fastrand::Rng;

/// Load, as a multiple of the limit.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// The same to each process.
    Even(f64),
    /// To the process of rank *i* as much as 1/*i* of that to the first.
    Zipf(f64),
    /// All to one process.
    One(f64),
    /// To each process another part every second: gamma with a shape of 1/2.
    Bursty(f64),
    /// Even, for some seconds, and then nothing for as many.
    OnOff(f64, u32),
    /// Even, each for some seconds; the last one for good.
    Steps(Vec<(u32, f64)>),
}

/// The parts of the limit that come to each process in a second.
#[derive(Debug)]
pub(crate) struct Parts {
    load: Load,
    processes: usize,
    /// What a process has of all load, if it is uneven.
    weights: Vec<f64>,
}

#[allow(clippy::cast_precision_loss, reason = "there are at most 10,000 processes")]
impl Parts {
    /// Load on so many processes.
    pub(crate) fn new(load: Load, processes: usize) -> Self {
        let mut weights: Vec<f64> = match load {
            Load::Zipf(_) => (1..=processes).map(|rank| 1.0 / rank as f64).collect(),
            Load::One(_) => (0..processes).map(|process| f64::from(u8::from(process == 0))).collect(),
            _ => vec![1.0; processes],
        };
        let sum: f64 = weights.iter().sum();
        for weight in &mut weights {
            *weight /= sum;
        }
        Self { load, processes, weights }
    }

    /// Begins a second.
    pub(crate) fn begin(&mut self, random: &mut Rng) {
        if matches!(self.load, Load::Bursty(_)) {
            // A gamma of shape 1/2 is half the square of a normal.
            self.weights = (0..self.processes).map(|_| normal(random).powi(2) / self.processes as f64).collect();
        }
    }

    /// Returns what comes to a process in this second, as a part of the limit.
    pub(crate) fn of(&self, process: usize, second: u32) -> f64 {
        self.weights[process] * self.all(second)
    }

    /// Returns what comes to all in this second, as a multiple of the limit.
    fn all(&self, second: u32) -> f64 {
        match &self.load {
            Load::Even(times) | Load::Zipf(times) | Load::One(times) | Load::Bursty(times) => *times,
            Load::OnOff(times, seconds) => f64::from(u8::from((second / seconds).is_multiple_of(2))) * times,
            Load::Steps(steps) => {
                let mut left = second;
                for (seconds, times) in steps {
                    if left < *seconds {
                        return *times;
                    }
                    left -= seconds;
                }
                steps.last().map_or(0.0, |(_, times)| *times)
            }
        }
    }
}

/// Returns a number of the Poisson distribution.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is rounded and at least 0")]
pub(crate) fn poisson(mean: f64, random: &mut Rng) -> u64 {
    if mean > 50.0 {
        return (mean + mean.sqrt() * normal(random)).round().max(0.0) as u64;
    }
    let (end, mut product, mut count) = ((-mean).exp(), random.f64(), 0);
    while product > end {
        product *= random.f64();
        count += 1;
    }
    count
}

/// Returns a number of the standard normal distribution.
fn normal(random: &mut Rng) -> f64 {
    let (radius, angle) = ((-2.0 * (1.0 - random.f64()).ln()).sqrt(), std::f64::consts::TAU * random.f64());
    radius * angle.cos()
}
