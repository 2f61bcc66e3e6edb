//! Millions of keys, each seen once: the store's bound, and the price of one insert.

use std::time::Instant;

use tollgate::policy::PolicyName;
use tollgate::store::{Check, Counter};
use tollgate::{Key, MemoryStore, Quota};

use super::sides::{address, allows};
use super::size::resident;
use crate::table::print;

const CAPACITY: usize = 1_000_000;

pub(super) fn run(keys: usize) {
    println!(
        "A flood of {keys} distinct keys into a `MemoryStore` of the default capacity, every key active for half an \
         hour. The time includes making the key.\n"
    );
    let (store, policy): (_, PolicyName) = (MemoryStore::new(), "bench".try_into().expect("a valid name"));
    let (mut most, mut slowest) = (0, 0.0_f64);
    let mut first = None;
    let begun = Instant::now();
    for step in 0..keys / CAPACITY {
        let of_step = Instant::now();
        for key in step * CAPACITY..(step + 1) * CAPACITY {
            let counter = Counter::new(policy.clone(), Key::new("ip", address(key)), Quota::per_hour(2));
            assert!(allows(&store, &Check::new(counter, 1)), "a new key has its limit");
        }
        let nanos = of_step.elapsed().as_nanos() as f64 / CAPACITY as f64;
        first.get_or_insert(nanos);
        (most, slowest) = (most.max(store.len()), slowest.max(nanos));
        assert!(store.len() <= CAPACITY, "{} keys are kept", store.len());
    }
    let nanos = begun.elapsed().as_nanos() as f64 / keys as f64;
    print(
        &["keys kept at most", "resident MB", "ns per insert", "first million", "slowest million"],
        &[vec![
            most.to_string(),
            format!("{:.0}", resident() as f64 / 1e6),
            format!("{nanos:.0}"),
            format!("{:.0}", first.unwrap_or_default()),
            format!("{slowest:.0}"),
        ]],
    );
}
