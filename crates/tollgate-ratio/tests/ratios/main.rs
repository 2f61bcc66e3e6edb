//! Ratios: what several processes admit together, on simulated time.

mod keys;
mod outages;
mod policies;
#[cfg(feature = "redis")]
mod redis;
mod runtimes;
mod steady;
mod support;

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tollgate::store::{Ask, Check, Counter, MaybeFuture, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Error, Key, Quota};
use tollgate_ratio::{MemoryTally, RatioStore, RatioStoreBuilder, Report, Tally, Totals};

const TICK: Duration = Duration::from_secs(1);

/// Of all processes together, in a second.
const LIMIT: u64 = 400;

/// A tally that a test can switch off, with the reports that it received.
#[derive(Clone)]
struct Switch {
    tally: MemoryTally,
    is_off: Arc<AtomicBool>,
    /// By how many microseconds its clock is ahead.
    ahead: Arc<AtomicU64>,
    reports: Arc<Mutex<Vec<Report>>>,
}

impl Switch {
    /// A tally on the paused time of the test's runtime.
    fn new() -> Self {
        let (clock, ahead) = (ManualClock::paused(), Arc::<AtomicU64>::default());
        let by = Arc::clone(&ahead);
        let clock = move || clock.now() + Duration::from_micros(by.load(Ordering::Relaxed));
        Self { tally: MemoryTally::with_clock(clock), is_off: Arc::default(), ahead, reports: Arc::default() }
    }

    fn set_off(&self, is_off: bool) {
        self.is_off.store(is_off, Ordering::Relaxed);
    }

    /// Sets its clock, to be so much ahead of the time of the test.
    fn set_ahead(&self, by: Duration) {
        self.ahead.store(u64::try_from(by.as_micros()).expect("it is short"), Ordering::Relaxed);
    }

    fn reports(&self) -> Vec<Report> {
        self.reports.lock().expect("no test panicked").clone()
    }

    fn store(&self, seed: u64) -> RatioStoreBuilder {
        RatioStore::builder(self.clone()).seed(seed)
    }

    fn stores(&self, count: u64) -> Vec<RatioStore> {
        (0..count).map(|seed| self.store(seed).build()).collect()
    }
}

impl Tally for Switch {
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
        if self.is_off.load(Ordering::Relaxed) {
            let error = Error::connection("it is off", io::Error::from(io::ErrorKind::ConnectionRefused));
            return Box::pin(std::future::ready(Err(error)));
        }
        self.reports.lock().expect("no test panicked").push(report.clone());
        self.tally.report(report)
    }
}

/// A tally of a closure.
struct TallyFn<F>(F);

impl<F, R> Tally for TallyFn<F>
where
    F: Fn(Report) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Totals, Error>> + Send + 'static,
{
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
        Box::pin((self.0)(report))
    }
}

fn counter(policy: &str, key: &str, quota: Quota) -> Counter {
    Counter::new(policy.try_into().expect("a valid name"), Key::new("k", key), quota)
}

/// The counter of all requests.
fn all() -> Counter {
    counter("all", "all", Quota::per_second(LIMIT))
}

fn decide(store: &RatioStore, checks: &[Check]) -> Decision {
    let MaybeFuture::Ready(decided) = store.decide(checks, Ask::default()) else { panic!("a request waits") };
    decided.expect("it decides").decision
}

/// How many requests over these checks are admitted, of one.
fn admits(store: &RatioStore, checks: &[Check]) -> u64 {
    u64::from(decide(store, checks).is_allowed())
}

/// Makes a step fifty times a second, and returns the sums of what was admitted in it, of each second.
async fn each_second<const N: usize>(seconds: u64, mut step: impl FnMut(u64) -> [u64; N]) -> Vec<[u64; N]> {
    let (start, mut sums) = (Instant::now(), Vec::new());
    for number in 0..50 * seconds {
        if number % 50 == 0 {
            sums.push([0; N]);
        }
        let sum = sums.last_mut().expect("one was pushed");
        sum.iter_mut().zip(step(number)).for_each(|(sum, admitted)| *sum += admitted);
        // It does not drift.
        sleep_until(start + TICK * u32::try_from(number + 1).expect("few") / 50).await;
    }
    sums
}

/// The same, in a part of the seconds together.
async fn offered<const N: usize>(counted: Range<usize>, step: impl FnMut(u64) -> [u64; N]) -> [u64; N] {
    let seconds = each_second(counted.end as u64, step).await;
    std::array::from_fn(|place| seconds[counted.clone()].iter().map(|sums| sums[place]).sum())
}

/// Sends requests of one unit evenly to all stores, for some seconds; returns what was admitted in each.
async fn load(stores: &[RatioStore], check: &Check, each: u64, seconds: u64) -> Vec<u64> {
    let requests = || stores.iter().flat_map(|store| (0..each / 50).map(move |_| store));
    let step = |_| [requests().map(|store| admits(store, std::slice::from_ref(check))).sum()];
    each_second(seconds, step).await.concat()
}

/// Processes that report to one tally, and a check of a unit of all requests.
struct Fleet {
    tally: Switch,
    stores: Vec<RatioStore>,
    check: Check,
}

impl Fleet {
    fn new(processes: u64) -> Self {
        let tally = Switch::new();
        let stores = tally.stores(processes);
        Self { tally, stores, check: Check::new(all(), 1) }
    }

    /// Sends requests evenly to all stores, for some seconds; returns how many were admitted in each.
    async fn load(&self, each: u64, seconds: u64) -> Vec<u64> {
        load(&self.stores, &self.check, each, seconds).await
    }

    fn ratio(&self) -> Option<f64> {
        self.stores[0].ratio(&all())
    }
}
