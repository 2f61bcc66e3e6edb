//! Bytes per key: what the process grows by, each side in a process of its own.

use std::fs;
use std::process::Command;

use governor::RateLimiter;
use tollgate::policy::PolicyName;
use tollgate::store::{Check, Counter};
use tollgate::{Key, MemoryStore, Quota};

use super::sides::{address, allows};
use crate::table::print;

const KEYS: usize = 1_000_000;
const PAGE: usize = 4_096;

pub(super) fn run() {
    println!("Bytes of resident memory per key ({KEYS} keys such as `ip:10.1.2.3`, each side in a fresh process):\n");
    let program = std::env::current_exe().expect("the program has a path");
    let bytes = |side: &str| -> f64 {
        let output = Command::new(&program).args(["memory", "size", side]).output().expect("the program runs");
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number of bytes")
    };
    let (theirs, ours) = (bytes("governor"), bytes("tollgate"));
    print(
        &["governor", "tollgate", "ratio"],
        &[vec![format!("{theirs:.0}"), format!("{ours:.0}"), format!("{:.2}", ours / theirs)]],
    );
}

/// Prints one side's bytes per key.
pub(super) fn print_of(side: &str) {
    let before = resident();
    let grown = if side == "governor" {
        let limiter = RateLimiter::keyed(governor::Quota::per_hour(100.try_into().expect("not zero")));
        (0..KEYS).for_each(|key| assert!(limiter.check_key(&format!("ip:{}", address(key))).is_ok()));
        resident() - before
    } else {
        // Each of the 64 shards has a 64th of the room, and chance gives some more keys than others.
        let store = MemoryStore::builder().capacity(2 * KEYS).build();
        let policy: PolicyName = "bench".try_into().expect("a valid name");
        for key in 0..KEYS {
            let key = Key::new("ip", address(key));
            let counter = Counter::new(policy.clone(), key, Quota::per_hour(100));
            assert!(allows(&store, &Check::new(counter, 1)));
        }
        resident() - before
    };
    println!("{}", grown as f64 / KEYS as f64);
}

/// Bytes of memory the process has in use.
pub(crate) fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").expect("Linux tells the size of a process");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages") * PAGE
}
