//! The conformance suite, on every store there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::store::{DenyCache, LeaseStore, RedisStoreBuilder};
use tollgate::test_util::ManualClock;
use tollgate::{MemoryStore, RedisStore};
use tollgate_test::{Conformance, Report, conformance};

use crate::support::server::RedisServer;
use crate::watched::Watched;

const BUDGET: Duration = Duration::from_secs(10);

/// Checks a report of which some results are expected, and prints it.
#[track_caller]
fn assert_whole(report: &Report) {
    println!("{report}");
    report.assert_passed();
    assert!(report.compared() > 3_000 && report.left_out().next().is_none(), "{report}");
}

fn memory(clock: ManualClock) -> MemoryStore {
    MemoryStore::builder().clock(clock).build()
}

fn on_redis(clock: ManualClock) -> RedisStoreBuilder {
    RedisStore::builder().without_deny_cache().clock(clock).timeout(BUDGET)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_in_memory_conforms() {
    assert_whole(&Conformance::new(async |clock| memory(clock)).expires_by_clock().run().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_on_redis_conforms_and_writes_what_it_should() {
    let (server, looked) = (RedisServer::start(), Arc::new(AtomicUsize::new(0)));
    let make = async |clock| {
        let _: String = server.ask(&["FLUSHALL"]);
        let store = on_redis(clock).connect(&server.url()).await.expect("the server was started");
        Watched::new(store, &server, &looked)
    };
    assert_whole(&conformance(make).await);
    assert!(looked.load(Ordering::SeqCst) > 500, "{looked:?} decisions were looked at");
}

/// What a report says was expected of a call, and what was found.
fn both(difference: &str) -> (String, String) {
    let (expected, found) = difference.split_once(", found ").expect("both are printed");
    let (_, expected) = expected.rsplit_once("expected ").expect("both are printed");
    let (found, _) = found.split_once(", after: ").unwrap_or((found, ""));
    (expected.to_owned(), found.to_owned())
}

/// What is said of an outcome without what remains.
fn without_remaining(text: &str) -> String {
    let parts = text.split("remaining: ").map(|part| part.trim_start_matches(|char: char| char.is_ascii_digit()));
    parts.collect()
}

/// The seconds of the first time to retry.
fn wait(text: &str) -> Option<f64> {
    text.split_once("retry_after: Some(")?.1.split_once("s)")?.0.parse().ok()
}

/// `remaining` is that of the cached refusal, as its documentation says: more may remain meanwhile, and of other policies
/// nothing is known. Times are counted in whole ticks from when it was cached. Nothing is admitted that memory refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deny_cache_conforms_but_for_what_remains_of_a_cached_refusal() {
    let make = async |clock: ManualClock| DenyCache::builder(memory(clock.clone())).clock(clock).build();
    let report = Conformance::new(make).expires_by_clock().run().await;
    println!("{report}");
    for (case, difference) in report.differences() {
        let (expected, found) = both(difference);
        let is_of_several = case == "tables::requests_are_admitted_as_a_whole" || case.starts_with("histories::");
        assert!(is_of_several && found.starts_with("(allowed: false, "), "{case}: {difference}");
        if let (false, Some(one), Some(two)) = (case.contains("bans"), wait(&expected), wait(&found)) {
            assert!((one - two).abs() < 0.001_1, "{case}: {difference}");
        }
    }
    assert!(report.compared() > 3_000 && report.left_out().next().is_none(), "{report}");
}

/// What is left of a large limit is less by what was taken in advance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_conform_but_for_what_remains_of_large_limits() {
    let make = async |clock: ManualClock| LeaseStore::builder(memory(clock.clone())).clock(clock).build();
    let report = Conformance::new(make).run().await;
    println!("{report}");
    for (case, difference) in report.differences() {
        let (expected, found) = both(difference);
        assert!(case.starts_with("histories::"), "{case}: {difference}");
        assert_eq!(without_remaining(&expected), without_remaining(&found), "{case}: {difference}");
    }
    assert!(report.compared() > 3_000 && report.left_out().next().is_none(), "{report}");
}
