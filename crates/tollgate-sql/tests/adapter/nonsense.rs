//! A database that returns nonsense.

use std::slice;
use std::sync::Mutex;
use std::time::Duration;

use fastrand::Rng;
use tollgate::store::{Ask, Change, MaybeFuture, StateId, StateWrite, Store};
use tollgate::{Error, Quota};
use tollgate_sql::{BackendStore, Committed, Loaded, StateBackend, StateTx};

use crate::support::check;

const NOW: u64 = 1_800_000_000_000_000;

/// Commits nothing.
struct Nothing;

impl StateTx for Nothing {
    async fn commit(self, _: Vec<StateWrite>) -> Result<Committed, Error> {
        Ok(Committed::Written)
    }
}

/// Returns states of the right form, with any numbers in them, at any time.
struct Nonsense(Mutex<Rng>);

impl StateBackend for Nonsense {
    type Tx = Nothing;

    async fn load(&self, ids: &[StateId]) -> Result<Loaded<Nothing>, Error> {
        let mut rng = self.0.lock().expect("no panic");
        let now = Duration::from_micros(if rng.bool() { NOW } else { number(&mut rng) });
        Ok(Loaded::new(now, ids.iter().map(|_| Some(state(&mut rng))).collect(), Nothing))
    }
}

/// A number that may be a count, a time of this day, or neither.
fn number(rng: &mut Rng) -> u64 {
    match rng.u8(..5) {
        0 => rng.u64(..10),
        1 => NOW - 100_000_000 + rng.u64(..200_000_000),
        2 => (NOW - 100_000_000 + rng.u64(..200_000_000)) / 1_000,
        3 => (1 << 52) - 1 - rng.u64(..3),
        _ => rng.u64(..1 << 52),
    }
}

fn state(rng: &mut Rng) -> Vec<u8> {
    let (shape, numbers) = [(b'l', 2), (b'w', 3), (b'g', 1)][rng.usize(..3)];
    let mut bytes = vec![1, shape];
    bytes.extend((0..numbers).flat_map(|_| number(rng).to_be_bytes()));
    if shape == b'g' {
        let units = rng.usize(..20);
        bytes.extend((0..units).flat_map(|_| number(rng).to_be_bytes()[4..].to_vec()));
    }
    bytes
}

fn quota(rng: &mut Rng) -> Quota {
    let (limit, window) = (rng.u64(1..20), Duration::from_secs(rng.u64(1..90)));
    match rng.u8(..5) {
        0 => Quota::fixed_window(limit, window),
        1 => Quota::sliding_window(limit, window),
        2 => Quota::sliding_log(limit, window),
        3 => Quota::token_bucket(limit, window).burst(rng.u64(1..30)),
        _ => Quota::leaky_bucket(limit, window).queue(rng.u64(..10)),
    }
}

#[test]
fn states_of_any_numbers_are_decided_on_or_are_errors_of_the_store() {
    let mut rng = Rng::with_seed(1);
    let store = BackendStore::new(Nonsense(Mutex::new(rng.fork())));
    let (mut decided, mut failed) = (0, 0);
    for _ in 0..20_000 {
        let one = check("ada", quota(&mut rng), rng.u64(..6)).floor(rng.u64(..3));
        let change = if rng.bool() { Change::Refund(rng.u64(..9)) } else { Change::Charge(rng.u64(..9)) };
        drop(store.adjust(&one.counter, change));
        match store.decide(slice::from_ref(&one), Ask::default()) {
            MaybeFuture::Ready(Ok(_)) => decided += 1,
            MaybeFuture::Ready(Err(error)) => {
                assert!(error.is_store(), "{error}");
                failed += 1;
            }
            MaybeFuture::Pending(_) => unreachable!("it does not wait"),
        }
    }
    assert!(decided > 2_000 && failed > 2_000, "{decided} and {failed}");
}
