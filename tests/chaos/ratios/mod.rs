//! Drop ratios over Redis: no request waits for it, and the last ratios hold for their life, then the share of this
//! process.

mod app;
mod cases;
mod report;

use self::report::Report;
use crate::case::Case;
use crate::rig::{self, Rig};

#[test]
fn no_request_waits_for_redis_and_limits_hold_by_the_last_ratio_and_then_by_the_share() {
    rig::run(&cases::all(), attempt);
}

fn attempt(case: &Case) -> Report {
    let (mut rig, ()) = Rig::start(case, async |store| (app::serve(store).await, ()));
    let (times, samples) = rig.measure(case);
    rig.stop();
    Report::new(case, times, &samples)
}
