//! Requests that no server reads: what applications see, beside the keys.

use std::env;

use super::check::{Choices, Ledger, Tally, kinds};
use crate::support::slow::many;

/// Requests of a kind in which an application sees a client.
const REQUESTS: [usize; 2] = [5_000, 100_000];

/// Applications that read each of them, in turn.
const READERS: usize = 1;

/// Bytes that choose what a request is.
const BYTES: usize = 64;

pub(crate) fn number(variable: &str, otherwise: usize) -> usize {
    let Ok(text) = env::var(variable) else { return otherwise };
    text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, and has to be a number"))
}

pub(crate) fn seed() -> u64 {
    let made = usize::try_from(fastrand::u64(..) >> 1).expect("a number of 63 bits");
    number("SEED", made) as u64
}

/// The bytes of a request by its number.
pub(crate) fn bytes(seed: u64, number: usize) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    fastrand::Rng::with_seed(seed.wrapping_add(number as u64)).fill(&mut bytes);
    bytes
}

#[track_caller]
fn row(name: &str) -> Tally {
    let (seed, wanted) = (seed(), number("REQUESTS", many(REQUESTS)));
    let kinds = kinds();
    let kind = kinds.iter().find(|kind| kind.name == name).expect("there is such a kind");
    let mut ledger = Ledger::new(kind, number("READERS", READERS));
    for number in 0..wanted * 10 {
        let found = ledger.next(&mut Choices::new(&bytes(seed, number)));
        found.unwrap_or_else(|error| panic!("SEED={seed}, request {number}: {error}"));
        if ledger.tally.requests == wanted {
            break;
        }
    }
    println!("{name}: {} (SEED={seed})", ledger.tally);
    ledger.tally
}

/// Checks that clients are told apart in spite of it, and that most requests are of some client.
#[track_caller]
fn prove(name: &str) {
    let tally = row(name);
    assert!(tally.requests >= number("REQUESTS", many(REQUESTS)), "too few requests name a client: {tally}");
    assert!(tally.certain * 5 > tally.keys, "too few keys are certain: {tally}");
}

#[test]
fn a_header_of_one_client_is_one_counter() {
    prove("header");
}

#[test]
fn a_token_of_one_client_is_one_counter() {
    prove("bearer");
}

#[test]
fn a_user_is_one_counter() {
    prove("basic_user");
}

#[test]
fn a_cookie_of_one_client_is_one_counter() {
    prove("cookie");
}

#[test]
fn a_parameter_of_the_query_is_one_counter() {
    prove("query");
}

#[test]
fn a_host_is_one_counter() {
    prove("host");
}

#[test]
fn a_path_is_one_counter() {
    prove("path");
}

#[test]
fn a_parameter_of_the_route_is_one_counter() {
    prove("path_param");
}

#[test]
fn a_method_is_one_counter() {
    prove("method");
}

#[test]
fn an_address_behind_proxies_is_one_counter() {
    prove("client_ip");
}

#[test]
fn an_address_in_a_header_of_its_own_is_one_counter() {
    prove("client_ip of one header");
}
