//! The script that adds reports to a tally.

use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;
use tollgate_simulation::server::Entry;

use super::pair::Pair;
use super::sources::{hash, ratio};

const KEYS: [&str; 3] = ["{ratio}:0", "{ratio}:1", "{ratio}:2"];

/// The length of most ticks, and one that does not end in a test, in µs.
const TICKS: [u64; 2] = [20_000, 60_000_000];

fn bytes(number: u64, size: usize) -> Vec<u8> {
    number.to_be_bytes()[8 - size..].to_vec()
}

fn name(counter: u64) -> Vec<u8> {
    [bytes(counter, 8), bytes(counter, 8)].concat()
}

/// A report of some counters, for a tick near that of a time.
fn report(rng: &mut Rng, tick_us: u64, at_us: u64, counters: &[u64]) -> [Vec<u8>; 2] {
    let tick = at_us / tick_us;
    let target = [0, tick, tick, tick - 1, tick - 2, tick + 1][rng.usize(..6)];
    let units = [0, 0, 1, 5, 1 << 40];
    let mut packed = Vec::new();
    for counter in counters {
        packed.extend(name(*counter));
        for number in [units[rng.usize(..5)], units[rng.usize(..5)], [0, 1, 8, 1 << 40][rng.usize(..4)]] {
            packed.extend(bytes(number, 6));
        }
    }
    [[bytes(tick_us, 7), bytes(target, 7), vec![u8::from(rng.u8(..3) > 0)]].concat(), packed]
}

/// Reports to both at one time, that of the real one; returns it, and the answer.
#[track_caller]
fn compare(pair: &mut Pair, head: &[u8], packed: &[u8], before_us: u64) -> (u64, Vec<u8>) {
    let source = hash(&ratio());
    let words = [b"EVALSHA", source.as_bytes(), b"3"].map(<[u8]>::to_vec).into_iter();
    let words = words.chain(KEYS.map(|key| key.as_bytes().to_vec()));
    let words: Vec<Vec<u8>> = words.chain([head.to_vec(), packed.to_vec()]).collect();
    let (real, mut answer) = (pair.real.ask(&words), Vec::new());
    let at_us = if real.starts_with(b"$") { time_of(&real) } else { before_us };
    pair.node.execute(&mut pair.session, &words, at_us).write(&mut answer);
    let shown = || [real.escape_ascii().to_string(), answer.escape_ascii().to_string()].join("\nsimulated: ");
    assert!(real == answer, "{} {}\n     real: {}", head.escape_ascii(), packed.escape_ascii(), shown());
    (at_us, real)
}

/// The time in an answer, which begins with it.
fn time_of(answer: &[u8]) -> u64 {
    let start = answer.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
    answer[start..start + 7].iter().fold(0, |time, byte| time << 8 | u64::from(*byte))
}

/// Both have the same fields.
fn assert_same_hashes(pair: &mut Pair, counters: u64) {
    for key in KEYS {
        pair.ask(["HLEN", key]);
        let fields = (0..counters).flat_map(|counter| [name(counter), [name(counter), b"c".to_vec()].concat()]);
        let fields: Vec<Vec<u8>> = ["tick", "live", "hot", "list"].map(Into::into).into_iter().chain(fields).collect();
        pair.ask([b"HMGET".to_vec(), key.into()].into_iter().chain(fields));
    }
}

#[test]
fn thousands_of_reports_are_answered_alike() {
    let (mut pair, mut rng) = (Pair::start(&[]), Rng::with_seed(1));
    pair.ask(["SCRIPT", "LOAD", &ratio()]);
    let mut at_us = super::pair::now_us();
    let (mut answered, mut hot) = (0, 0);
    for _ in 0..4_000 {
        match rng.u8(..200) {
            // All of them, as an error does not tell the tick.
            0 => KEYS.iter().for_each(|key| drop(pair.ask(["SET", key, "text"]))),
            1..4 => drop(pair.line("FLUSHALL")),
            4..10 => sleep(Duration::from_millis(rng.u64(..90))),
            _ => {}
        }
        let counters: Vec<u64> = (0..rng.u64(..6)).map(|_| rng.u64(..8)).collect();
        let [head, packed] = report(&mut rng, TICKS[0], at_us, &counters);
        let (now_us, answer) = compare(&mut pair, &head, &packed, at_us);
        at_us = now_us;
        answered += usize::from(answer.starts_with(b"$"));
        hot += usize::from(answer.len() > 48 + 14 * counters.len());
    }
    assert!(answered > 2_000 && hot > 500, "{answered} answers, {hot} with hot counters");
    let calls = pair.node.take_calls();
    assert_eq!((calls.len(), calls.iter().filter(|call| call.entry == Entry::Ratio).count()), (answered, answered));
}

#[test]
fn a_tick_that_is_full_is_full_in_both() {
    let (mut pair, mut rng) = (Pair::start(&[]), Rng::with_seed(2));
    pair.ask(["SCRIPT", "LOAD", &ratio()]);
    let mut at_us = super::pair::now_us();
    let mut full = 0;
    for _ in 0..20 {
        let counters: Vec<u64> = (0..200).map(|_| rng.u64(..2_500)).collect();
        let [head, packed] = report(&mut rng, TICKS[1], at_us, &counters);
        let (now_us, answer) = compare(&mut pair, &head, &packed, at_us);
        at_us = now_us;
        full += usize::from(answer.windows(7).any(|units| units == bytes(1 << 52, 7)));
    }
    assert!(full > 3, "{full} answers say that there is no room");
    assert_same_hashes(&mut pair, 2_500);
}
