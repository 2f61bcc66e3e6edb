//! Requests of several checks.

use std::time::Duration;

use tollgate::store::{Ask, Check, Mode, Settles};
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
fn nothing_is_taken_from_the_others() {
    let rig = Rig::new();
    let request = of(&[("ip", WIDE), ("user", NARROW)]);
    for _ in 0..50 {
        let _ = rig.decide(&request, Ask::default());
    }
    assert_eq!(rig.plain(&[check("ip", WIDE, 0)]).outcomes()[0].remaining(), 98);
    assert_eq!(rig.calls(), 3);
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
fn a_look_beside_a_refused_check_is_not_taken_for_refused() {
    let rig = Rig::new();
    rig.refuse("a", NARROW);
    rig.refuse("b", NARROW);
    let decision = rig.remembers(&[check("a", NARROW, 0), check("b", NARROW, 1)]);
    assert_eq!(violated(&decision), [false, true]);
}

#[test]
fn two_checks_of_one_counter_are_refused_for_their_sum_and_so_not_remembered() {
    let rig = Rig::new();
    let _ = rig.decide(&[check("a", NARROW, 1)], Ask::default());
    let twice = of(&[("a", NARROW), ("a", NARROW)]);
    let _ = rig.asks(&twice);
    let _ = rig.asks(&twice);
    assert!(rig.asks(&[check("a", NARROW, 1)]).is_allowed(), "one fits");
}

#[test]
fn what_is_settled_by_outcome_is_asked_of_the_store_each_time() {
    let rig = Rig::new();
    rig.exhaust("a", NARROW);
    let settled = check("a", NARROW, 1).settles(Settles::ByOutcome);
    let _ = rig.asks(std::slice::from_ref(&settled));
    let _ = rig.asks(std::slice::from_ref(&settled));
    let _ = rig.asks(&[check("a", NARROW, 1)]);
    let _ = rig.remembers(&[check("a", NARROW, 1)]);
    let _ = rig.asks(std::slice::from_ref(&settled));
    let beside = [settled, check("b", WIDE, 1)];
    let _ = rig.asks(&beside);
    let _ = rig.asks(&beside);
}

#[test]
fn a_refusal_by_another_policy_refuses_what_is_settled_by_outcome_too() {
    let rig = Rig::new();
    rig.refuse("user", NARROW);
    let settled = check("login", WIDE, 1).settles(Settles::ByOutcome);
    assert_eq!(violated(&rig.remembers(&[settled, check("user", NARROW, 1)])), [false, true]);
}

#[test]
fn no_request_with_a_shadow_is_answered_nor_remembered() {
    let rig = Rig::new();
    rig.exhaust("a", NARROW);
    let request = [check("a", NARROW, 1), check("b", WIDE, 1).mode(Mode::Shadow)];
    let _ = rig.asks(&request);
    let _ = rig.asks(&request);
    let _ = rig.asks(&[check("a", NARROW, 1)]);
    let _ = rig.remembers(&[check("a", NARROW, 1)]);
    let _ = rig.asks(&request);
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
