//! Requests that no server reads: what applications see, beside the keys.

use std::env;
use std::thread;

use super::check::{Choices, Kind, Ledger, kinds};
use crate::support::slow::many;

/// Requests of a kind in which an application sees a client.
const REQUESTS: [usize; 2] = [1_500, 100_000];

pub(crate) fn seed() -> u64 {
    env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("SEED is a number"))
}

/// The bytes of a request by its number.
pub(crate) fn bytes(seed: u64, number: usize) -> [u8; 64] {
    let mut bytes = [0; 64];
    fastrand::Rng::with_seed(seed.wrapping_add(number as u64)).fill(&mut bytes);
    bytes
}

/// Checks that the clients of a kind have one counter each, and are told apart in spite of it.
fn prove(kind: &Kind, seed: u64) {
    let wanted = many(REQUESTS);
    let mut ledger = Ledger::new(kind, 1);
    for number in 0..wanted * 20 {
        let found = ledger.next(&mut Choices::new(&bytes(seed, number)));
        found.unwrap_or_else(|error| panic!("SEED={seed}, request {number}: {error}"));
        if ledger.tally.requests == wanted {
            break;
        }
    }
    let tally = ledger.tally;
    assert!(tally.requests >= wanted, "{}: too few requests name a client: {tally:?} (SEED={seed})", kind.name);
    assert!(tally.certain * 5 > tally.keys, "{}: too few keys are certain: {tally:?} (SEED={seed})", kind.name);
}

#[test]
fn a_client_of_each_kind_of_keys_is_one_counter() {
    let (kinds, seed) = (kinds(), seed());
    thread::scope(|scope| {
        for kind in &kinds {
            scope.spawn(move || prove(kind, seed));
        }
    });
}
