//! Drop ratios over Redis: no request waits for it, and the last ratios hold for their life, then the share of this
//! process.

mod app;
mod report;

use crate::case::Case;
use crate::rig::{self, Rig};
use crate::table::Report;

/// Requests a second.
const RATE: u32 = 700;

fn cases() -> Vec<Case> {
    let cases = Case::named([
        "nothing",
        "is paused (SIGSTOP)",
        "is killed, and started again",
        "is unavailable when the server starts",
        "replies 300 ms late",
        "is not reached: bytes are lost",
        "is cut off within replies",
        "replies with garbage",
        "replies to other calls",
        "forgets all (FLUSHALL, 5 times)",
        "works, and a handler blocks 150 ms, again and again",
    ]);
    cases.into_iter().map(|case| Case { rate: RATE, ..case }).collect()
}

#[test]
fn no_request_waits_for_redis_and_limits_hold_by_the_last_ratio_and_then_by_the_share() {
    rig::run(&cases(), attempt);
}

fn attempt(case: &Case) -> Report {
    let (mut rig, ()) = Rig::start(case, async |store| (app::serve(store).await, ()));
    let (times, samples) = rig.measure(case);
    rig.stop();
    report::report(case, times, &samples)
}
