//! The conformance suite on a table.

use std::time::Duration;

use tollgate::test_util::ManualClock;
use tollgate_sql::BackendStore;
use tollgate_test::{Conformance, Report, conformance};

use crate::support::table::Table;

const BUDGET: Duration = Duration::from_secs(10);

/// A store by a clock, of whose table each load and each commit takes so long.
fn made(clock: ManualClock, trip: Duration) -> BackendStore<Table> {
    BackendStore::builder(Table::new(move || clock.now(), trip)).timeout(BUDGET).build()
}

#[track_caller]
fn assert_whole(report: &Report) {
    println!("{report}");
    report.assert_passed();
    assert!(report.compared() > 3_000 && report.left_out().next().is_none(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_on_a_database_conforms_at_once() {
    let suite = Conformance::new(async |clock| made(clock, Duration::ZERO)).expires_by_clock();
    assert_whole(&suite.run().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_on_a_database_that_waits_conforms() {
    assert_whole(&conformance(async |clock| made(clock, Duration::from_micros(1))).await);
}
