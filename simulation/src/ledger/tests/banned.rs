//! What answers about bans are right, and which are not.

use super::bytes::{Rule, S, START, batch, fixed, number};
use crate::ledger::{Event, Ledger, What};

/// Flags of an answer: the check fits, and what was found.
const KEPT: u8 = 1;
const FRESH: u8 = 3;
const REFUSED: u8 = 0;

const MS: u64 = START / 1_000;

/// An enforced check of this cost, at 2 a minute, and its ban: after 2 in 10 s, for 5 s, then 10 s at most.
fn rules(cost: u64, last: u64) -> [Rule; 2] {
    let (limit, capacity) = (5_000 * (1 << 18) + 2 * 2, 2_000 * (1 << 35) + 10_000);
    [(7, 3, [10_000, limit, capacity, 1, last]), (1, 1, [60 * S, 2, 2, cost, 0])]
}

fn ban(ends: u64, length: u64, start: u64, strikes: u64) -> Vec<u8> {
    [ends, length, start, strikes].into_iter().flat_map(|n| number(7, n)).collect()
}

/// A request of 2 units, of which this was found.
fn asks(ledger: &mut Ledger, at_us: u64, flags: [u8; 2], views: &[&[u8]]) -> Result<Vec<Event>, String> {
    brings(ledger, at_us, 0, flags, views)
}

fn brings(ledger: &mut Ledger, at_us: u64, last: u64, flags: [u8; 2], views: &[&[u8]]) -> Result<Vec<Event>, String> {
    ledger.ran(&batch(at_us, &["a:1b", "a:1f"], &rules(2, last), &[2, 1, 1, 2, 2], &flags, views))
}

/// A ledger of a key that was refused twice, and is banned from the start on.
fn banned() -> Ledger {
    let mut ledger = Ledger::default();
    asks(&mut ledger, START, [FRESH, FRESH], &[]).expect("it fits");
    let full = fixed(START, 2);
    asks(&mut ledger, START, [FRESH, REFUSED], &[&full]).expect("it is a strike");
    let events = asks(&mut ledger, START, [KEPT, REFUSED], &[&ban(0, 0, MS, 1), &full]).expect("it is the last");
    let what = What::Ban { cost: 2, enforced: true, banned: false, strikes: 1, began: true };
    assert_eq!((events[0].what, events[0].remaining, events[1].what.taken()), (what, Some(0), 0));
    ledger
}

#[track_caller]
fn wrong(done: Result<Vec<Event>, String>, because: &str) {
    let error = done.expect_err("it is wrong");
    assert!(error.contains(because), "{error}");
}

#[test]
fn who_is_banned_takes_nothing_until_the_end() {
    let (mut ledger, view, full) = (banned(), ban(MS + 5_000, 5_000, 0, 0), fixed(START, 2));
    let (before, end) = (START + 5 * S - 1, START + 5 * S);
    asks(&mut ledger, before, [REFUSED, REFUSED], &[&view, &full]).expect("it is banned");
    wrong(asks(&mut ledger, before, [KEPT, REFUSED], &[&view, &full]), "it is banned, and let in");
    wrong(asks(&mut ledger, end, [REFUSED, REFUSED], &[&view, &full]), "it is not banned, and refused");
    asks(&mut ledger, end, [KEPT, REFUSED], &[&view, &full]).expect("it is over");
    assert_eq!(ledger.remaining(b"a:1b", end), Some(1));
}

#[test]
fn what_fits_is_not_taken_by_who_is_banned() {
    let mut ledger = banned();
    ledger.forgot(b"a:1f");
    let view = ban(MS + 5_000, 5_000, 0, 0);
    let events = asks(&mut ledger, START, [REFUSED, FRESH], &[&view]).expect("it is banned");
    assert_eq!((events[1].what.taken(), ledger.net(b"a:1f")), (0, 2));
    wrong(asks(&mut ledger, START, [REFUSED, KEPT], &[&view, &fixed(START, 2)]), "finds Kept");
}

#[test]
fn strikes_that_were_not_made_are_found() {
    let (mut ledger, full) = (Ledger::default(), fixed(START, 2));
    asks(&mut ledger, START, [FRESH, FRESH], &[]).expect("it fits");
    asks(&mut ledger, START, [FRESH, REFUSED], &[&full]).expect("it is a strike");
    wrong(asks(&mut ledger, START + S, [KEPT, REFUSED], &[&ban(0, 0, MS, 2), &full]), "it tells");
    wrong(asks(&mut ledger, START + S, [REFUSED, REFUSED], &[&ban(MS + 5_000, 5_000, 0, 0), &full]), "it tells");
    // The window is over: this is the first of another one.
    asks(&mut ledger, START + 10 * S, [KEPT, REFUSED], &[&ban(0, 0, MS, 1), &full]).expect("it is a strike");
    assert_eq!(ledger.remaining(b"a:1b", START + 10 * S), Some(1));
}

#[test]
fn the_last_number_of_a_ban_is_0() {
    let mut ledger = Ledger::default();
    wrong(brings(&mut ledger, START, 1, [FRESH, FRESH], &[]), "the last number of a ban is 1");
}

#[test]
fn a_ban_that_grows_is_found_by_its_length() {
    let (mut ledger, first, full) = (banned(), ban(MS + 5_000, 5_000, 0, 0), fixed(START, 2));
    let then = START + 6 * S;
    asks(&mut ledger, then, [KEPT, REFUSED], &[&first, &full]).expect("it is a strike");
    let strike = ban(MS + 5_000, 5_000, MS + 6_000, 1);
    asks(&mut ledger, then, [KEPT, REFUSED], &[&strike, &full]).expect("it is the last");
    wrong(asks(&mut ledger, then, [REFUSED, REFUSED], &[&ban(MS + 11_000, 5_000, 0, 0), &full]), "it tells");
    asks(&mut ledger, then, [REFUSED, REFUSED], &[&ban(MS + 16_000, 10_000, 0, 0), &full])
        .expect("it is twice as long");
}

#[test]
fn a_ban_of_another_key_is_found() {
    let mut ledger = Ledger::default();
    let call = batch(START, &["b:1b", "a:1f"], &rules(2, 0), &[2, 1, 1, 2, 2], &[FRESH, FRESH], &[]);
    wrong(ledger.ran(&call), "is not the ban of");
}
