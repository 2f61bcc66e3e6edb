//! The conformance suite, on every store there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::store::{BackendStore, RedisStoreBuilder};
use tollgate::test_util::{Conformance, ManualClock, Report, conformance};
use tollgate::{DenyCache, LeaseStore, MemoryStore, RedisStore};

use crate::support::server::RedisServer;
use crate::support::table::Table;
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
    MemoryStore::builder().with_clock(clock).build()
}

fn on_redis(clock: ManualClock) -> RedisStoreBuilder {
    RedisStore::builder().without_deny_cache().with_clock(clock).budget(BUDGET)
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_on_a_database_conforms_at_once() {
    let make = async |clock: ManualClock| {
        let table = Table::new(move || clock.now(), Duration::ZERO);
        BackendStore::builder(table).budget(BUDGET).build().expect("valid settings")
    };
    assert_whole(&Conformance::new(make).expires_by_clock().run().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_on_a_database_that_waits_conforms() {
    let make = async |clock: ManualClock| {
        let table = Table::new(move || clock.now(), Duration::from_micros(1));
        BackendStore::builder(table).budget(BUDGET).build().expect("valid settings")
    };
    assert_whole(&conformance(make).await);
}

/// `remaining` is that of the cached refusal, as its documentation says: in one row more remains meanwhile, and of other
/// policies nothing is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deny_cache_conforms_but_for_what_remains_of_a_cached_refusal() {
    let make = async |clock: ManualClock| {
        DenyCache::builder().with_clock(clock.clone()).build(memory(clock)).expect("valid settings")
    };
    let report = Conformance::new(make).expires_by_clock().run().await;
    println!("{report}");
    let rows = [
        ("sliding_window::a_quota_that_does_not_divide_its_window_waits_for_the_tick_that_admits", "remaining: 1"),
        ("requests::a_request_refused_by_one_limit_costs_nothing_on_the_others", "[9, 4, 0]"),
    ];
    for (case, difference) in report.differences() {
        let (_, remaining) = rows.iter().find(|(row, _)| case == *row).unwrap_or_else(|| panic!("{report}"));
        let (expected, found) = difference.split_once(", found ").expect("both are printed");
        let (_, expected) = expected.split_once("expected ").expect("both are printed");
        assert_eq!(expected.replace(remaining, &remaining.replace(['1', '4', '9'], "0")), found);
    }
    assert!(report.compared() > 3_000 && report.left_out().next().is_none(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_conform() {
    let make = async |clock: ManualClock| {
        LeaseStore::builder(memory(clock.clone())).with_clock(clock).build().expect("valid settings")
    };
    assert_whole(&Conformance::new(make).run().await);
}
