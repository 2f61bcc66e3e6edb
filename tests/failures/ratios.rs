//! A tally that a test can switch off, and a load on its store.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tollgate::store::{Ask, Check, Counter, MaybeFuture, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Error, Key, Quota};
use tollgate_ratio::{MemoryTally, RatioStore, Report, Tally, Totals};

pub(crate) const TICK: Duration = Duration::from_secs(1);

/// A tally that a test can switch off, on the paused time of its runtime.
#[derive(Clone)]
pub(crate) struct Switch(MemoryTally, Arc<AtomicBool>);

impl Switch {
    pub(crate) fn new() -> Self {
        Self(MemoryTally::with_clock(ManualClock::paused()), Arc::default())
    }

    pub(crate) fn set_off(&self, is_off: bool) {
        self.1.store(is_off, Ordering::Relaxed);
    }

    pub(crate) fn store(&self) -> RatioStore {
        RatioStore::builder(self.clone()).ttl(4 * TICK).seed(1).build()
    }
}

impl Tally for Switch {
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
        if self.1.load(Ordering::Relaxed) {
            let error = Error::connection("it is off", io::Error::from(io::ErrorKind::ConnectionRefused));
            return Box::pin(std::future::ready(Err(error)));
        }
        self.0.report(report)
    }
}

/// Of a policy with 100 units a second.
pub(crate) fn counter(policy: &str, key: &str) -> Counter {
    let policy = policy.try_into().expect("a valid name");
    Counter::new(policy, Key::new("tenant", key), Quota::per_second(100))
}

/// Sends requests of a unit evenly, each of all counters, for some seconds; returns how many were refused.
pub(crate) async fn load(store: &RatioStore, counters: &[Counter], each: u64, seconds: u64) -> u64 {
    let checks: Vec<Check> = counters.iter().map(|counter| Check::new(counter.clone(), 1)).collect();
    let mut refused = 0;
    for _ in 0..seconds * 50 {
        for _ in 0..each / 50 {
            let MaybeFuture::Ready(decided) = store.decide(&checks, Ask::default()) else { panic!("a request waits") };
            refused += u64::from(!decided.expect("it decides").decision.is_allowed());
        }
        sleep(TICK / 50).await;
    }
    refused
}
