//! Load by tasks that check one after the other, on several sides in turn.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

use crate::effort::Effort;
use crate::table::median_of;

/// Tasks that walk over all keys before anything is measured.
const WALKERS: usize = 256;

/// The numbers of a check's keys; a check of one key takes the first.
pub(crate) type Keys = [usize; 3];

/// One way to check.
pub(crate) trait Side: Clone + Send + Sync + 'static {
    /// Makes one check and tests its answer.
    fn check(&self, keys: Keys) -> impl Future<Output = ()> + Send;
}

type Running = Pin<Box<dyn Future<Output = Sample>>>;

/// A side by name, in a list with others.
pub(crate) struct Entrant {
    pub(crate) name: String,
    run: Box<dyn Fn(Load) -> Running>,
}

impl Entrant {
    pub(crate) fn new(name: impl Into<String>, side: impl Side) -> Self {
        Self { name: name.into(), run: Box::new(move |load| Box::pin(load.run(side.clone()))) }
    }

    /// Checks every key once, so that each is known to the server.
    pub(crate) async fn warm(&self, effort: Effort) {
        self.walk(effort.keys, WALKERS).await;
    }

    /// Checks the first keys once, by so many tasks.
    pub(crate) async fn walk(&self, keys: usize, walkers: usize) {
        let next = Arc::default();
        let draw = (0..walkers).map(|_| Draw::Walk { next: Arc::clone(&next), keys }).collect();
        (self.run)(Load { draw, span: Duration::MAX }).await;
    }

    /// One round, on the same keys as every other side in this round.
    pub(crate) async fn measure(&self, effort: Effort, in_flight: usize, round: usize) -> Sample {
        let seed = |task: usize| (round << 16 | task) as u64;
        let drawn = |task| Draw::Random { rng: Rng::with_seed(seed(task)), keys: effort.keys };
        (self.run)(Load { draw: (0..in_flight).map(drawn).collect(), span: effort.span }).await
    }
}

/// Lets the sides take turns; returns the samples of each, by round.
pub(crate) async fn interleave(effort: Effort, in_flight: usize, entrants: &[Entrant]) -> Vec<Vec<Sample>> {
    let mut samples = vec![Vec::new(); entrants.len()];
    for round in 0..effort.rounds {
        for (entrant, samples) in entrants.iter().zip(&mut samples) {
            samples.push(entrant.measure(effort, in_flight, round).await);
        }
    }
    samples
}

/// What one side did in one round.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// Checks.
    pub(crate) count: usize,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Processor time of this process.
    pub(crate) cpu_us: f64,
}

impl Sample {
    fn new(mut nanos: Vec<u64>, took: Duration, cpu: Duration) -> Self {
        nanos.sort_unstable();
        let count = nanos.len();
        let at = |percent: usize| nanos[(count * percent / 100).min(count - 1)] as f64 / 1e3;
        let cpu_us = cpu.as_secs_f64() * 1e6 / count as f64;
        Self { count, per_second: count as f64 / took.as_secs_f64(), p50_us: at(50), p99_us: at(99), cpu_us }
    }
}

/// The median of one figure over the rounds.
pub(crate) fn typical(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> f64 {
    median_of(samples.iter().map(figure))
}

/// The ratio of one figure between two sides, round by round.
pub(crate) fn ratios(ours: &[Sample], theirs: &[Sample], figure: impl Fn(&Sample) -> f64) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| figure(ours) / figure(theirs)).collect()
}

/// The load of one side for one span: a task for each draw.
struct Load {
    draw: Vec<Draw>,
    span: Duration,
}

impl Load {
    async fn run(self, side: impl Side) -> Sample {
        let (start, cpu) = (Instant::now(), cpu_time());
        let deadline = start.checked_add(self.span);
        let mut tasks = JoinSet::new();
        for draw in self.draw {
            tasks.spawn(work(side.clone(), draw, deadline));
        }
        let nanos = tasks.join_all().await.concat();
        Sample::new(nanos, start.elapsed(), cpu_time().saturating_sub(cpu))
    }
}

/// Checks until the deadline or the end of the keys; returns what each check took.
async fn work(side: impl Side, mut draw: Draw, deadline: Option<Instant>) -> Vec<u64> {
    let mut nanos = Vec::new();
    let mut start = Instant::now();
    while let Some(keys) = draw.next()
        && deadline.is_none_or(|deadline| start < deadline)
    {
        side.check(keys).await;
        let end = Instant::now();
        nanos.push(u64::try_from((end - start).as_nanos()).expect("a check ends within its timeout"));
        start = end;
    }
    nanos
}

/// Where a task's keys come from.
enum Draw {
    Walk { next: Arc<AtomicUsize>, keys: usize },
    Random { rng: Rng, keys: usize },
}

impl Draw {
    fn next(&mut self) -> Option<Keys> {
        match self {
            Draw::Walk { next, keys } => {
                let number = next.fetch_add(1, Ordering::Relaxed);
                (number < *keys).then_some([number; 3])
            }
            Draw::Random { rng, keys } => Some([(); 3].map(|()| rng.usize(..*keys))),
        }
    }
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("processor time is not negative")
}
