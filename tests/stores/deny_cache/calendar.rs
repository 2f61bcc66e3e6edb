//! Windows of a calendar, which are not all as long.

use std::time::Duration;

use tollgate::policy::Calendar;
use tollgate::store::Ask;
use tollgate::{Quota, Source};

use super::rig::{MS, Rig, S};
use crate::support::checks::check;
use crate::support::time::at;

const HOURLY: Quota = Quota::token_bucket(4, Duration::from_secs(3_600));

const DAY: u64 = 86_400;

/// Midnight at the end of January 2024, in microseconds since the clock's first. That month has 31 days, and the next
/// one 29.
const END: u64 = 14 * DAY * S;

fn monthly() -> Quota {
    Quota::calendar_window(5, Calendar::monthly("UTC").expect("it is always there"))
}

#[test]
fn a_refusal_that_no_wait_ends_is_of_the_window_it_tells_of() {
    let rig = Rig::new();
    let request = [check("ada", monthly(), 6)];
    rig.clock.set(at(END - 100 * MS));
    assert_eq!(rig.asks(&request).outcomes()[0].window(), Duration::from_secs(31 * DAY));
    rig.clock.set(at(END - 1));
    assert_eq!(rig.remembers(&request).outcomes()[0].window(), Duration::from_secs(31 * DAY));
    rig.clock.set(at(END));
    assert_eq!(rig.asks(&request).outcomes()[0].window(), Duration::from_secs(29 * DAY));
}

#[test]
fn a_refusal_by_another_policy_tells_of_the_window_it_is_in() {
    let rig = Rig::new();
    let request = [check("ada", HOURLY, 1), check("bob", monthly(), 1)];
    rig.clock.set(at(END - 100 * MS));
    rig.exhaust("ada", HOURLY);
    assert_eq!(rig.asks(&request).outcomes()[1].window(), Duration::from_secs(31 * DAY));
    assert_eq!(rig.remembers(&request).outcomes()[1].window(), Duration::from_secs(31 * DAY));
    rig.clock.set(at(END));
    let decision = rig.decide(&request, Ask::default());
    assert_eq!(decision.outcomes()[1].window(), Duration::from_secs(29 * DAY));
    assert_eq!((decision.source(), decision.outcomes()[1].remaining()), (Source::Store, 5));
}
