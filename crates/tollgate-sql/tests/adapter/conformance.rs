//! The conformance suite on a table.

use std::time::Duration;

use tollgate::test_util::ManualClock;
use tollgate_sql::BackendStore;
use tollgate_test::{Conformance, Report, conformance};

use crate::support::table::Table;

const BUDGET: Duration = Duration::from_secs(10);

/// Checks a report of which some results are expected, and prints it.
#[track_caller]
fn assert_whole(report: &Report) {
    println!("{report}");
    report.assert_passed();
    assert!(report.compared() > 3_000 && report.left_out().next().is_none(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_on_a_database_conforms_at_once() {
    let make = async |clock: ManualClock| {
        let table = Table::new(move || clock.now(), Duration::ZERO);
        BackendStore::builder(table).timeout(BUDGET).build()
    };
    assert_whole(&Conformance::new(make).expires_by_clock().run().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_on_a_database_that_waits_conforms() {
    let make = async |clock: ManualClock| {
        let table = Table::new(move || clock.now(), Duration::from_micros(1));
        BackendStore::builder(table).timeout(BUDGET).build()
    };
    assert_whole(&conformance(make).await);
}
