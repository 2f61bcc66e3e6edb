//! Requests of several checks.

use std::time::Duration;

use tollgate::store::{Check, Settles};
use tollgate::{Decision, Quota};

use super::rig::Rig;
use crate::support::checks::check;

const WIDE: Quota = Quota::fixed_window(100, Duration::from_secs(3_600));
const NARROW: Quota = Quota::token_bucket(2, Duration::from_secs(20));

fn of(names: &[(&str, Quota)]) -> Vec<Check> {
    names.iter().map(|&(name, quota)| check(name, quota, 1)).collect()
}

fn violated(decision: &Decision) -> Vec<bool> {
    decision.outcomes().iter().map(|outcome| !outcome.is_allowed()).collect()
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
