//! Several requests of one kind, made of bytes: whom an application sees in two of them has one counter.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/keys/one_client/check/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod check;

use check::{Choices, Kind, Ledger, kinds};

static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(kinds);

/// Requests of one input, at most.
const REQUESTS: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let mut ledger = Ledger::new(&KINDS[choices.below(KINDS.len())], usize::MAX);
    for _ in 0..REQUESTS {
        if choices.is_empty() {
            break;
        }
        if let Err(found) = ledger.next(&mut choices) {
            panic!("{found}");
        }
    }
});
