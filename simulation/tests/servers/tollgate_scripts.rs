//! The crate's own scripts.

use std::time::Instant;

use super::calls::{Call, Calls};
use super::pair::{Pair, now_us};
use super::sources::{check, hash, library};

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// A pair that has all scripts.
fn pair(calls: &Calls) -> Pair {
    let mut pair = Pair::start(&[]);
    for script in calls.scripts() {
        pair.ask(["EVALSHA", &script.hash, "0"]);
        pair.ask(["SCRIPT", "LOAD", &script.source]);
        pair.ask(["SCRIPT", "EXISTS", &script.hash]);
    }
    pair
}

#[test]
fn the_check_of_a_server_returns_the_same() {
    let mut pair = Pair::start(&[]);
    pair.ask(["SCRIPT", "LOAD", &check()]);
    let answer = pair.ask(["EVALSHA", &hash(&check()), "0"]);
    assert!(answer.starts_with(b"$"), "{answer:?}");
}

/// Makes a call on both at one time, `at_us`, and compares what is there after it.
#[track_caller]
fn compare(pair: &mut Pair, call: &Call, real: &[u8], at_us: u64) {
    let mut answer = Vec::new();
    pair.node.execute(&mut pair.session, &call.words, at_us).write(&mut answer);
    assert!(
        real == answer,
        "{}\n     real: {}\nsimulated: {}",
        call.words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" "),
        real.escape_ascii(),
        answer.escape_ascii()
    );
}

/// How long keys are there, and that they now stay: so that no call depends on when it is made. The server was sent the
/// call after `begun`, so it has counted down for no longer than since then.
fn keep(pair: &mut Pair, call: &Call, at_us: u64, begun: Instant) {
    for key in &call.keys {
        let real = pair.real.answer();
        assert!(real.starts_with(b":"));
        let mut simulated = Vec::new();
        pair.node.execute(&mut pair.session, &words(&["PTTL", key]), at_us).write(&mut simulated);
        let number = |bytes: &[u8]| str::from_utf8(&bytes[1..bytes.len() - 2]).unwrap().parse::<i64>().unwrap();
        let (real, simulated) = (number(&real), number(&simulated));
        let most = 1 + i64::try_from(begun.elapsed().as_millis()).unwrap();
        assert!(
            real == simulated || (simulated - most..=simulated).contains(&real) && real > 0,
            "{key}: {real} {simulated}"
        );
        pair.real.answer();
        pair.node.execute(&mut pair.session, &words(&["PERSIST", key]), at_us);
    }
}

/// Makes a call on both, and has its keys stay: a server expires keys by the time at which a command begins, which is
/// some µs before the time in the answer.
#[track_caller]
fn compare_and_keep(pair: &mut Pair, call: &Call, at_us: impl FnOnce(&[u8]) -> u64) {
    let after: Vec<_> = call.keys.iter().flat_map(|key| [words(&["PTTL", key]), words(&["PERSIST", key])]).collect();
    let all: Vec<&[Vec<u8>]> = [&call.words].into_iter().chain(&after).map(|command| &**command).collect();
    let begun = Instant::now();
    pair.real.send(&all);
    let real = pair.real.answer();
    let at_us = at_us(&real);
    compare(pair, call, &real, at_us);
    keep(pair, call, at_us, begun);
}

#[test]
fn thousands_of_calls_with_a_time_of_their_own_are_answered_alike() {
    let mut calls = Calls::new(1);
    let mut pair = pair(&calls);
    for _ in 0..6_000 {
        let call = calls.next(true);
        if calls.chance(30) {
            let key = call.keys[0].as_bytes();
            pair.ask([b"SET", key, &calls.value()]);
        }
        compare_and_keep(&mut pair, &call, |_| now_us());
        pair.ask(["MGET".to_owned()].iter().chain(&call.keys));
    }
    let answered = pair.node.take_calls().len();
    assert!(answered > 5_500, "only {answered} calls were answered with a decision");
    assert_same_keys(&mut pair);
}

/// The time in the answer of a script, which begins with it.
fn time_of(answer: &[u8]) -> u64 {
    let start = answer.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
    answer[start..start + 7].iter().fold(0, |time, byte| time << 8 | u64::from(*byte))
}

#[test]
fn thousands_of_calls_by_the_servers_time_are_answered_alike() {
    let mut calls = Calls::new(2);
    let mut pair = pair(&calls);
    for _ in 0..6_000 {
        let call = calls.next(false);
        compare_and_keep(&mut pair, &call, |real| if real.starts_with(b"$") { time_of(real) } else { now_us() });
    }
    assert!(pair.node.take_calls().len() > 5_900);
    assert_same_keys(&mut pair);
}

/// Both have the same keys and values.
fn assert_same_keys(pair: &mut Pair) {
    let keys: Vec<Vec<u8>> = pair.node.keys().map(|(key, _)| key.to_vec()).collect();
    assert!(!keys.is_empty());
    pair.ask([b"MGET".to_vec()].into_iter().chain(keys));
}

#[test]
fn functions_are_answered_as_scripts_are() {
    let mut calls = Calls::new(3);
    let mut pair = Pair::start(&[]);
    pair.line("FCALL tg_check 0");
    pair.ask(["FUNCTION", "LOAD", &library("tg")]);
    pair.ask(["FUNCTION", "LOAD", &library("tg")]);
    pair.ask(["FUNCTION", "LOAD", "REPLACE", &library("tg")]);
    pair.line("FCALL tg_check 0");
    pair.line("FCALL tg_single 0");
    pair.line("FCALL tg_single x");
    pair.line("FCALL tg_batch 1 key 5 nothing");
    for _ in 0..500 {
        let mut call = calls.next(true);
        call.words[0] = b"FCALL".to_vec();
        let entry = entry_of(&calls, &call.words[1]);
        call.words[1] = format!("tg_{entry}").into_bytes();
        compare_and_keep(&mut pair, &call, |_| now_us());
    }
    pair.line("SCRIPT FLUSH");
    pair.line("FCALL tg_check 0");
    pair.line("FUNCTION FLUSH");
    pair.line("FCALL tg_check 0");
}

fn entry_of(calls: &Calls, hash: &[u8]) -> &'static str {
    let script = calls.scripts().iter().find(|script| script.hash.as_bytes() == hash).unwrap();
    script.entry
}

#[test]
fn a_call_of_the_wrong_form_ends_with_the_same_error() {
    let calls = Calls::new(4);
    let mut pair = pair(&calls);
    let hashes: Vec<String> = calls.scripts().iter().map(|script| script.hash.clone()).collect();
    for hash in hashes {
        for rest in [
            &["0"][..],
            &["1", "k"],
            &["1", "k", "5"],
            &["1", "k", "5", ""],
            &["1", "k", "x", "\u{1}\u{1}"],
            &["0", "5", "\u{1}"],
            &["1", "k", "5", "\u{1}\u{9}\u{1}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],
        ] {
            pair.ask(["EVALSHA", &hash].iter().chain(rest));
        }
    }
}
