//! What clients see of a server with limits while things happen to its Redis: each request is
//! answered in time, none with an error, and limits hold.
//!
//! Alone in its program, as it judges times for minutes: by name only, on a machine that does nothing else. Of the rows
//! of `shed` and `ratios`, what does not depend on times is judged on any machine.
//! `cargo test -p tollgate-tests --test chaos -- --nocapture` prints the tables of `docs/reliability.md`; with the variable
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
mod ratios;
mod report;
mod rig;
mod sample;
mod shed;
mod table;

use app::serve;
use case::Case;
use rig::Rig;
use table::Report;

#[test]
fn requests_are_answered_in_time_and_within_their_limits_whatever_happens_to_redis() {
    rig::run(&Case::all(), attempt);
}

fn attempt(case: &Case) -> Report {
    let (mut rig, ()) = Rig::start(case, async |store| (serve(store).await, ()));
    let (times, samples) = rig.measure(case);
    rig.stop();
    report::report(case, times, &samples)
}
