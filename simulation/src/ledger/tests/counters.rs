//! What answers are right, and which are not.

use super::bytes::{NEVER, Rule, S, START, batch, digest, fixed, level, number, single, sliding};
use crate::ledger::{Event, Ledger, What};

/// Flags of an answer: the check fits, and what was found.
const KEPT: u8 = 1;
const FRESH: u8 = 3;
const REFUSED: u8 = 0;

/// An enforced check of this cost, at 2 a minute.
const fn rule(algorithm: u8, cost: u64) -> Rule {
    (algorithm, 1, [60 * S, 2, 2, cost, 0])
}

const fn change(algorithm: u8, flag: u8, units: u64, stamp: u64) -> Rule {
    (algorithm, flag, [60 * S, 2, 2, units, stamp])
}

#[track_caller]
fn right(ledger: &mut Ledger, call: &crate::server::Call) -> Event {
    ledger.ran(call).expect("it is right").pop().expect("something was asked")
}

#[track_caller]
fn wrong(ledger: &mut Ledger, call: &crate::server::Call, because: &str) {
    let error = ledger.ran(call).expect_err("it is wrong");
    assert!(error.contains(because), "{error}");
}

#[test]
fn what_is_taken_is_known() {
    let mut ledger = Ledger::default();
    let event = right(&mut ledger, &single(START, "a", rule(1, 1), FRESH, &[]));
    let what = What::Take { cost: 1, floor: 0, enforced: true, fits: true, admitted: true };
    assert_eq!((event.what, event.remaining), (what, Some(1)));
    right(&mut ledger, &single(START, "a", rule(1, 1), KEPT, &fixed(START, 1)));
    right(&mut ledger, &single(START, "a", rule(1, 1), REFUSED, &fixed(START, 2)));
    assert_eq!((ledger.net(b"a"), ledger.remaining(b"a", START)), (2, Some(0)));
    assert_eq!(ledger.remaining(b"a", START + 60 * S), Some(2));
}

#[test]
fn a_third_unit_of_two_is_found() {
    let views: [(u8, Vec<u8>); 5] = [
        (1, fixed(START, 2)),
        (2, level(START, 120 * S)),
        (3, sliding(START, 2, 0)),
        (4, digest(START, 2, START, START)),
        (5, level(START, 120 * S)),
    ];
    for (algorithm, view) in views {
        let mut ledger = Ledger::default();
        right(&mut ledger, &single(START, "a", rule(algorithm, 2), FRESH, &[]));
        right(&mut ledger, &single(START, "a", rule(algorithm, 0), KEPT, &view));
        wrong(&mut ledger, &single(START, "a", rule(algorithm, 1), KEPT, &view), "is admitted, and does not fit");
    }
}

#[test]
fn a_refusal_of_what_fits_is_found() {
    let mut ledger = Ledger::default();
    right(&mut ledger, &single(START, "a", rule(2, 1), FRESH, &[]));
    wrong(&mut ledger, &single(START, "a", rule(2, 1), REFUSED, &level(START, 60 * S)), "is refused, and fits");
}

#[test]
fn a_counter_that_is_lost_too_early_is_found() {
    let mut ledger = Ledger::default();
    right(&mut ledger, &single(START, "a", rule(5, 1), FRESH, &[]));
    wrong(&mut ledger, &single(START + 29 * S, "a", rule(5, 1), FRESH, &[]), "finds Fresh");
    right(&mut ledger, &single(START + 30 * S, "a", rule(5, 1), FRESH, &[]));
    ledger.forgot(b"a");
    right(&mut ledger, &single(START + 30 * S, "a", rule(5, 1), FRESH, &[]));
    assert_eq!(ledger.net(b"a"), 3);
}

#[test]
fn a_counter_may_be_lost_by_a_clock_that_ran_ahead() {
    let mut ledger = Ledger::default();
    right(&mut ledger, &single(START, "a", rule(1, 1), FRESH, &[]));
    ledger.clock(START + 60 * S);
    right(&mut ledger, &single(START + 1, "a", rule(1, 1), FRESH, &[]));
    wrong(&mut ledger, &single(START + 1, "a", rule(1, 1), FRESH, &[]), "finds Fresh");
}

#[test]
fn a_clock_that_steps_back_neither_refills_nor_rewinds() {
    let mut ledger = Ledger::default();
    right(&mut ledger, &single(START, "a", rule(2, 1), FRESH, &[]));
    right(&mut ledger, &single(START - 20 * S, "a", rule(2, 1), KEPT, &level(START, 60 * S)));
    right(&mut ledger, &single(START - 20 * S, "a", rule(2, 1), REFUSED, &level(START, 120 * S)));
    wrong(&mut ledger, &single(START - 61 * S, "a", rule(2, 1), KEPT, &level(START, 120 * S)), "finds Kept");
    right(&mut ledger, &single(START - 61 * S, "a", rule(2, 1), 2 * 2 + 1, &[]));
}

#[test]
fn no_more_is_given_back_than_was_taken_in_that_window() {
    let mut ledger = Ledger::default();
    right(&mut ledger, &single(START, "a", rule(1, 2), FRESH, &[]));
    let refund = |start: u64, asked, units: u64, count| {
        let view = [number(7, units), fixed(START, count)].concat();
        batch(START, &["a"], &[change(1, 8, asked, start)], &[1, 1, 1], &[u8::from(units > 0)], &[&view])
    };
    wrong(&mut ledger, &refund(START - 60 * S, 1, 1, 1), "should come to 0");
    right(&mut ledger, &refund(START - 60 * S, 1, 0, 2));
    right(&mut ledger, &refund(START, 1, 1, 1));
    wrong(&mut ledger, &refund(START, 2, 2, 0), "should come to 1");
    right(&mut ledger, &refund(NEVER, 2, 1, 0));
    assert_eq!((ledger.refunded(b"a"), ledger.net(b"a")), (2, 0));
}

#[test]
fn a_charge_goes_beyond_the_limit_by_as_much_at_most() {
    let mut ledger = Ledger::default();
    let charge = |units: u64, count| {
        let view = [number(7, units), fixed(START, count)].concat();
        batch(START, &["a"], &[change(1, 16, 9, NEVER)], &[1, 1, 1], &[1], &[&view])
    };
    wrong(&mut ledger, &charge(5, 5), "should come to 4");
    right(&mut ledger, &charge(4, 4));
    assert_eq!((ledger.charged(b"a"), ledger.net(b"a")), (4, 4));
}

#[test]
fn a_refused_request_takes_nothing_from_any_counter() {
    let mut ledger = Ledger::default();
    let rules = [rule(1, 1), (1, 1, [60 * S, 2, 2, 3, 0])];
    let events = ledger.ran(&batch(START, &["a", "b"], &rules, &[2, 1, 1, 2, 2], &[FRESH, 2], &[])).unwrap();
    assert!(events.iter().all(|event| event.what.taken() == 0 && event.remaining == Some(2)));
    wrong(&mut ledger, &single(START, "a", rule(1, 1), KEPT, &fixed(START, 1)), "finds Kept");
}

#[test]
fn a_shadow_check_refuses_nothing() {
    let mut ledger = Ledger::default();
    let rules = [rule(1, 1), (1, 0, [60 * S, 2, 2, 3, 0])];
    let events = ledger.ran(&batch(START, &["a", "b"], &rules, &[2, 1, 1, 2, 2], &[FRESH, 2], &[])).unwrap();
    assert_eq!(events.iter().map(|event| event.what.taken()).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn checks_of_one_counter_add_up_in_a_request() {
    let mut ledger = Ledger::default();
    let rules = [(2, 1 + 64, [60 * S, 2, 2, 1, 0]); 2];
    right(&mut ledger, &batch(START, &["a"], &rules, &[2, 1, 1, 1, 2], &[FRESH, FRESH], &[]));
    assert_eq!(ledger.net(b"a"), 2);
    let checks = [2, 1, 1, 1, 2];
    let view = level(START, 120 * S);
    let again = batch(START + 30 * S, &["a"], &rules, &checks, &[KEPT, KEPT], &[&view, &view]);
    wrong(&mut ledger, &again, "a cost of 2 is admitted");
}

#[test]
fn what_is_doubted_is_believed_once() {
    let mut ledger = Ledger::default();
    right(&mut ledger, &single(START, "a", rule(2, 1), FRESH, &[]));
    ledger.doubt_all();
    assert_eq!(ledger.remaining(b"a", START), None);
    let event = right(&mut ledger, &single(START, "a", rule(2, 0), KEPT, &level(START - 1, 120 * S)));
    assert_eq!((event.what, event.remaining), (What::Look { floor: 0, admitted: true }, Some(0)));
    wrong(&mut ledger, &single(START, "a", rule(2, 0), KEPT, &level(START, 60 * S)), "it tells");
    right(&mut ledger, &single(START, "b", rule(4, 0), KEPT, &digest(START, 2, START, START)));
    wrong(&mut ledger, &single(START, "b", rule(4, 1), KEPT, &digest(START, 3, START, START)), "does not fit");
    let event = right(&mut ledger, &single(START, "b", rule(4, 1), KEPT, &digest(START, 1, START, START)));
    assert_eq!(event.remaining, None);
}

#[test]
fn a_longer_answer_is_found() {
    let mut ledger = Ledger::default();
    wrong(&mut ledger, &single(START, "a", rule(1, 1), FRESH, &[0]), "1 bytes more");
}
