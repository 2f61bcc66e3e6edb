//! Bytes of a key with one request in progress, each side in a process of its own.

use std::process::Command;

use tollgate::MemoryStore;

use super::{Requests, kinds};
use crate::memory::size::resident;
use crate::table::print;

const KEYS: usize = 1_000_000;

pub(super) fn run() {
    println!(
        "Bytes of resident memory per key, each with one request in progress: its state in a `MemoryStore`, and the \
         slot that is held ({KEYS} keys such as `ip:10.1.2.3`, each side in a fresh process):\n"
    );
    let program = std::env::current_exe().expect("the program has a path");
    let bytes = |kind: &str| {
        let output = Command::new(&program).args(["quotas", "size", kind]).output().expect("the program runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let rows: Vec<_> = kinds().into_iter().map(|(kind, _)| vec![kind.to_owned(), bytes(kind)]).collect();
    print(&["quota", "bytes a key"], &rows);
}

/// Prints the bytes per key of one kind.
pub(super) async fn print_of(kind: &str) {
    let (_, rule) = kinds().into_iter().find(|(name, _)| *name == kind).expect("one of the kinds");
    // Each of the 64 shards has a 64th of the room, and chance gives some more keys than others.
    let requests = Requests::new(MemoryStore::builder().capacity(2 * KEYS).build(), rule, KEYS);
    let (before, mut slots) = (resident(), Vec::with_capacity(KEYS));
    for key in requests.keys.iter() {
        slots.push(requests.limiter.acquire(key).await.expect("the key is valid").1);
    }
    println!("{:.0}", (resident() - before) as f64 / KEYS as f64);
}
