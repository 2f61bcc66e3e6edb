//! A run: requests come to all processes in steps of 1/20 of a tick.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep_until};
use tollgate::policy::PolicyName;
use tollgate::store::{Ask, Check, Counter, MaybeFuture, Store};
use tollgate::{Key, Quota};
use tollgate_ratio::{MemoryTally, RatioStore};

use crate::faulty::{Calls, Faults, Faulty};
use crate::load::{Load, Parts, poisson};

/// Steps of a second, which is a tick.
const STEPS: u32 = 20;

/// The callers of a fair run: the first one sends as much as all others and the load together.
pub(crate) const CALLERS: u64 = 21;

/// What is run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How many processes there are.
    pub(crate) processes: usize,
    /// The limit of all together, per second.
    pub(crate) limit: u64,
    /// What each request costs.
    pub(crate) cost: u64,
    /// The load on them.
    pub(crate) load: Load,
    /// For how long.
    pub(crate) seconds: u32,
    /// The share of processes that are replaced in each second.
    pub(crate) churn: f64,
    /// What the network loses.
    pub(crate) faults: Faults,
    /// Whether drops are divided among callers: of 6 parts of the load, 20 callers have 1/50 of one part each (0.4 of
    /// one together), and one caller has the rest.
    pub(crate) fair: bool,
    /// Of everything random.
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// Units of requests in each second.
    pub(crate) offered: Vec<u64>,
    /// Of these, those that were admitted.
    pub(crate) admitted: Vec<u64>,
    /// By caller from the fifth second on, requests and those that were admitted.
    pub(crate) callers: Vec<[u64; 2]>,
    /// Calls of the tally.
    pub(crate) calls: u64,
    /// Bytes in all of them.
    pub(crate) bytes: u64,
}

/// The processes, and what they share.
struct Fleet<'a> {
    plan: &'a Plan,
    tally: MemoryTally,
    calls: Arc<Calls>,
    start: Instant,
    random: Rng,
    stores: Vec<RatioStore>,
    all: Counter,
    callers: Vec<Counter>,
}

impl Plan {
    /// Load without faults of requests that cost 1, for 23 s.
    pub(crate) fn new(processes: usize, limit: u64, load: Load, seed: u64) -> Self {
        let faults = Faults::default();
        Self { processes, limit, cost: 1, load, seconds: 23, churn: 0.0, faults, fair: false, seed }
    }

    /// Runs it on simulated time.
    ///
    /// # Panics
    ///
    /// If the runtime does not start.
    pub(crate) fn run(&self) -> Run {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(async { Fleet::new(self).run().await })
    }
}

impl<'a> Fleet<'a> {
    fn new(plan: &'a Plan) -> Self {
        let (start, mut random) = (Instant::now(), Rng::with_seed(plan.seed));
        // Load begins somewhere within a tick.
        let epoch = Duration::from_secs(1_700_000_000) + Duration::from_millis(random.u64(0..1_000));
        let tally = MemoryTally::with_clock(move || epoch + start.elapsed());
        let counter = |policy: &str, key: String, quota| {
            Counter::new(PolicyName::try_from(policy).expect("a valid name"), Key::new("key", &key), quota)
        };
        let callers = (0..CALLERS).map(|caller| counter("caller", caller.to_string(), Quota::per_second(1 << 30)));
        let all = counter("all", "all".to_owned(), Quota::per_second(plan.limit));
        let calls = Arc::default();
        let mut fleet = Self { plan, tally, calls, start, random, stores: Vec::new(), all, callers: callers.collect() };
        fleet.stores = (0..plan.processes).map(|_| fleet.process()).collect();
        fleet
    }

    /// Starts a process.
    fn process(&mut self) -> RatioStore {
        let (faults, calls, random) = (self.plan.faults.clone(), Arc::clone(&self.calls), self.random.fork());
        let tally = Faulty::new(self.tally.clone(), faults, calls, self.start, random);
        let builder = RatioStore::builder(tally).capacity(32).seed(self.random.u64(..));
        let builder = if self.plan.fair { builder.fair("all", "caller") } else { builder };
        builder.build()
    }

    async fn run(mut self) -> Run {
        let mut run = Run { callers: vec![[0; 2]; self.callers.len()], ..Run::default() };
        let mut parts = Parts::new(self.plan.load.clone(), self.plan.processes);
        for second in 0..self.plan.seconds {
            parts.begin(&mut self.random);
            self.replace(second);
            run.offered.push(0);
            run.admitted.push(0);
            for step in 0..STEPS {
                self.step(&parts, second, &mut run);
                sleep_until(self.start + Duration::from_secs(1) * (second * STEPS + step + 1) / STEPS).await;
            }
        }
        run.calls = self.calls.calls.load(Ordering::Relaxed);
        run.bytes = self.calls.bytes.load(Ordering::Relaxed);
        run
    }

    /// Replaces some processes by new ones.
    #[allow(clippy::cast_precision_loss, reason = "there are at most 10,000 processes")]
    fn replace(&mut self, second: u32) {
        let mean = self.plan.churn * self.plan.processes as f64;
        let replaced = if second > 0 { poisson(mean, &mut self.random) } else { 0 };
        for _ in 0..replaced {
            let place = self.random.usize(..self.stores.len());
            self.stores[place] = self.process();
        }
    }

    /// Sends the requests of one step to each process.
    #[allow(clippy::cast_precision_loss, reason = "limits are small")]
    fn step(&mut self, parts: &Parts, second: u32, run: &mut Run) {
        let at = run.offered.len() - 1;
        for process in 0..self.stores.len() {
            let requests = self.plan.limit as f64 / self.plan.cost as f64;
            let mean = parts.of(process, second) * requests / f64::from(STEPS);
            for _ in 0..poisson(mean, &mut self.random) {
                let caller = if self.random.f64() < 0.4 / 5.4 { self.random.u64(1..CALLERS) } else { 0 };
                let admitted = self.is_admitted(process, caller);
                run.offered[at] += self.plan.cost;
                run.admitted[at] += u64::from(admitted) * self.plan.cost;
                if second >= 5 {
                    let [offered, kept] = &mut run.callers[usize::try_from(caller).unwrap_or_default()];
                    *offered += 1;
                    *kept += u64::from(admitted);
                }
            }
        }
    }

    fn is_admitted(&self, process: usize, caller: u64) -> bool {
        let mut checks = vec![Check::new(self.all.clone(), self.plan.cost)];
        if self.plan.fair {
            checks.push(Check::new(self.callers[usize::try_from(caller).unwrap_or_default()].clone(), 1));
        }
        match self.stores[process].decide(&checks, Ask::default()) {
            MaybeFuture::Ready(Ok(decided)) => decided.decision.is_allowed(),
            _ => unreachable!("a ratio store decides at once"),
        }
    }
}
