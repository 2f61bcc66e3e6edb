//! Nanoseconds of a request in memory.

use std::time::Instant;

use tollgate::MemoryStore;

use super::{Requests, kinds};
use crate::effort::Effort;
use crate::table::{median, print};

const CLIENTS: usize = 1_000;

pub(super) async fn run(Effort { rounds, calls, .. }: Effort) {
    let requests = calls * 100;
    println!(
        "Nanoseconds of a request with one policy in a `MemoryStore`, begun by `Limiter::acquire` and ended at once \
         (medians of {rounds} rounds of {requests} requests, interleaved; {CLIENTS} keys, one thread):\n"
    );
    let sides: Vec<_> =
        kinds().into_iter().map(|(name, rule)| (name, Requests::new(MemoryStore::new(), rule, CLIENTS))).collect();
    let mut nanos = vec![Vec::new(); sides.len()];
    for _ in 0..rounds {
        for ((_, side), nanos) in sides.iter().zip(&mut nanos) {
            let start = Instant::now();
            for number in 0..requests {
                side.one(number % CLIENTS).await;
            }
            nanos.push(start.elapsed().as_nanos() as f64 / requests as f64);
        }
    }
    let first = nanos[0].clone();
    let row = |((name, _), nanos): (&(&str, _), Vec<f64>)| {
        let ratio = median(nanos.iter().zip(&first).map(|(ours, first)| ours / first).collect());
        vec![(*name).to_owned(), format!("{:.0}", median(nanos)), format!("{ratio:.2}")]
    };
    let rows: Vec<_> = sides.iter().zip(nanos).map(row).collect();
    print(&["quota", "ns a request", "over the token bucket"], &rows);
}
