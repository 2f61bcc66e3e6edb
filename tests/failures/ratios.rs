//! A tally that does not reply: what is logged, once for each change.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::sleep;
use tollgate::store::{Ask, BreakerState, Check, Counter, DenyCache, MaybeFuture, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Error, Key, OnFailure, Policy, Quota, RateLimitLayer, key};
use tollgate_ratio::{MemoryTally, RatioStore, Report, Tally, Totals};
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

use crate::support::log::Log;

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

#[tokio::test]
async fn an_outage_of_the_tally_is_one_line_when_it_begins_one_when_the_life_ends_and_one_on_return() {
    const HOLD: &str = "the last ratios hold";
    const SHARES: &str = "this process admits its share";
    const BACK: &str = "code=\"tally_available\"";
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let (tally, all) = (Switch::new(), [counter("all", "all")]);
    let store = tally.store();
    load(&store, &all, 500, 4).await;
    assert_eq!(log.text(), "");
    for outage in 1..=2 {
        let logged = || [HOLD, SHARES, BACK].map(|line| log.count(line));
        tally.set_off(true);
        load(&store, &all, 500, 2).await;
        assert_eq!(logged(), [outage, outage - 1, outage - 1], "{}", log.text());
        load(&store, &all, 500, 8).await;
        assert_eq!(logged(), [outage, outage, outage - 1], "{}", log.text());
        tally.set_off(false);
        load(&store, &all, 500, 5).await;
        assert_eq!(logged(), [outage; 3], "{}", log.text());
    }
    assert_eq!(log.count(""), 2 * 3, "{}", log.text());
    assert_eq!(log.count("it is off"), 2 * 2, "the reason is logged: {}", log.text());
    assert_eq!(log.count("life=4s"), 2, "{}", log.text());
    assert_eq!(log.count("failed_for="), 2, "{}", log.text());
}

#[tokio::test]
async fn a_layer_that_denies_without_its_store_denies_nothing_without_the_tally() {
    let tally = Switch::new();
    let store = tally.store();
    let policy = Policy::new("all", Quota::per_second(100)).key(key::global());
    let layer = RateLimitLayer::new(store.clone(), policy).on_failure(OnFailure::Deny);
    for is_off in [true, false, true] {
        tally.set_off(is_off);
        let mut statuses = BTreeMap::<u16, u64>::new();
        for step in 0..400 {
            let hello = |_: Request<String>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) };
            let response =
                layer.layer(service_fn(hello)).oneshot(Request::new(String::new())).await.expect("a response");
            *statuses.entry(response.status().as_u16()).or_default() += 1;
            if step % 5 == 4 {
                sleep(TICK / 10).await;
            }
        }
        assert!(statuses.keys().all(|status| matches!(status, 200 | 429)), "{statuses:?}, off: {is_off}");
        assert!(statuses[&200] >= 300, "{statuses:?}, off: {is_off}");
    }
    assert_eq!(layer.clone().live().breaker_state(), BreakerState::Closed);
}

#[tokio::test]
async fn what_a_ratio_or_a_share_refuses_is_cached_nowhere() {
    let tally = Switch::new();
    let cache = DenyCache::new(tally.store());
    let checks = [Check::new(counter("all", "all"), 1)];
    for is_off in [false, true] {
        tally.set_off(is_off);
        let mut refused = 0;
        for _ in 0..50 * 8 {
            for _ in 0..10 {
                let MaybeFuture::Ready(decided) = cache.decide(&checks, Ask::default()) else {
                    panic!("a request waits")
                };
                refused += u64::from(!decided.expect("it decides").decision.is_allowed());
            }
            sleep(TICK / 50).await;
        }
        assert!(refused > 50 * 8 * 5, "{refused}, off: {is_off}");
        assert_eq!((cache.denied_from_cache(), cache.len()), (0, 0), "off: {is_off}");
    }
}
