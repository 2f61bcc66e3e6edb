//! Requests of several checks.

use std::time::Duration;

use tollgate::store::{Ask, Check, Settles};
use tollgate::{Decision, Quota};

use super::rig::{MS, Rig};
use crate::support::checks::check;
use crate::support::time::at;

const WIDE: Quota = Quota::fixed_window(100, Duration::from_secs(3_600));
const NARROW: Quota = Quota::token_bucket(2, Duration::from_secs(20));
const NARROWER: Quota = Quota::token_bucket(1, Duration::from_secs(60));

fn of(names: &[(&str, Quota)]) -> Vec<Check> {
    names.iter().map(|&(name, quota)| check(name, quota, 1)).collect()
}

fn violated(decision: &Decision) -> Vec<bool> {
    decision.outcomes().iter().map(|outcome| !outcome.is_allowed()).collect()
}

#[test]
fn a_request_repeated_is_told_what_the_first_was_told_and_the_waits_count_down() {
    let rig = Rig::new();
    let request = of(&[("ip", WIDE), ("user", NARROW), ("route", WIDE)]);
    let _ = rig.decide(&request, Ask::default());
    let _ = rig.decide(&request, Ask::default());
    let first = rig.asks(&request);
    assert_eq!(rig.remembers(&request).outcomes()[1], first.outcomes()[1]);
    rig.clock.set(at(900 * MS));
    let later = rig.remembers(&request);
    assert_eq!(later.outcomes()[1], rig.plain(&request).outcomes()[1]);
    assert_eq!(violated(&later), [false, true, false]);
    assert_eq!(later.retry_after(), Some(Duration::from_millis(9_100)));
    assert_eq!(later.outcomes()[0].remaining(), 0, "of the others nothing is known");
}

#[test]
fn one_check_known_to_be_refused_refuses_any_request_that_has_it() {
    let rig = Rig::new();
    rig.refuse("user", NARROW);
    let other = rig.remembers(&of(&[("new", WIDE), ("user", NARROW)]));
    assert_eq!(violated(&other), [false, true], "only what is known to refuse is violated");
    assert_eq!(other.outcomes()[0].remaining(), 0, "of the other nothing is known");
    let _ = rig.asks(&of(&[("new", WIDE), ("other", NARROW)]));
}

#[test]
fn the_wait_is_the_largest_that_is_known() {
    let rig = Rig::new();
    rig.refuse("a", NARROW);
    rig.refuse("b", NARROWER);
    let both = rig.remembers(&of(&[("a", NARROW), ("b", NARROWER)]));
    assert_eq!(violated(&both), [true, true]);
    assert_eq!(both.retry_after(), Some(Duration::from_secs(60)));
    assert_eq!(both.binding().unwrap().quota(), &NARROWER);
}

#[test]
fn a_refusal_by_another_policy_refuses_what_is_settled_by_outcome_too() {
    let rig = Rig::new();
    rig.refuse("user", NARROW);
    let settled = check("login", WIDE, 1).settles(Settles::ByOutcome);
    assert_eq!(violated(&rig.remembers(&[settled, check("user", NARROW, 1)])), [false, true]);
}

#[test]
fn a_request_of_many_checks_is_remembered() {
    let rig = Rig::new();
    let names: Vec<String> = (0..128).map(|number| number.to_string()).collect();
    let mut request: Vec<Check> = names.iter().map(|name| check(name, WIDE, 1)).collect();
    request[127].cost = 101;
    let _ = rig.asks(&request);
    let told = rig.remembers(&request);
    assert_eq!(told.outcomes().len(), 128);
    assert_eq!(told.denied_by().count(), 1);
}
