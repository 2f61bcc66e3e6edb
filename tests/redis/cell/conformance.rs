//! The conformance suite on the module, as far as the module goes.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_test::Conformance;

use super::rig::{server, store};

#[tokio::test]
async fn the_store_on_redis_cell_conforms_as_far_as_it_goes() {
    let server = server();
    let make = async |_| {
        let _: String = server.ask(&["FLUSHALL"]);
        store(&server).await
    };
    // Its times are whole seconds, rounded up.
    let report = Conformance::new(make).own_clock(Duration::from_secs(2)).run().await;
    println!("{report}");
    // A changed limit keeps the time until the bucket is full, not the units used, as the store's documentation says.
    let differing: BTreeSet<&str> = report.differences().map(|(case, _)| case).collect();
    assert_eq!(differing, BTreeSet::from(["tables::limits_that_change", "histories::of_limits_that_change"]));
    assert!(report.passed() >= 8 && report.compared() > 250, "{report}");
}
