//! What clients see of a server with limits while things happen to its Redis: each request is
//! answered in time, none with an error, and limits hold.
//!
//! Alone in its program, as it judges times for minutes: by name only, on a machine that does nothing else.
//! `cargo test --test chaos -- --nocapture` prints the table of `docs/reliability.md`; with the variable
//! `CASES` only the rows whose names contain what it says.

#![expect(clippy::cast_precision_loss, reason = "counts are small here")]

#[allow(dead_code, reason = "other rooms use more of it")]
#[path = "../support/mod.rs"]
mod support;

mod app;
mod bounds;
mod case;
mod client;
mod load;
mod proxy;
mod report;
mod rig;
mod sample;
mod table;
mod vault;

use case::Case;
use report::Report;

#[test]
fn requests_are_answered_in_time_and_within_their_limits_whatever_happens_to_redis() {
    let chosen = std::env::var("CASES").unwrap_or_default();
    let reports: Vec<Report> = Case::all().iter().filter(|case| case.name.contains(&chosen)).map(rig::run).collect();
    assert!(!reports.is_empty(), "no case is named {chosen:?}");
    table::print(&reports);
    let faults: Vec<String> = reports.iter().flat_map(Report::faults).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
