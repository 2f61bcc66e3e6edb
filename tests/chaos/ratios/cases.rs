//! What happens to the Redis that has the tally.

use crate::case::Case;

/// Requests a second.
const RATE: u32 = 700;

pub(super) fn all() -> Vec<Case> {
    let cases = Case::named([
        "nothing",
        "is paused (SIGSTOP)",
        "is killed, and started again",
        "is unavailable when the server starts",
        "replies 300 ms late",
        "is not reached: bytes are lost",
        "is cut off within replies",
        "replies with garbage",
        "replies to other calls",
        "forgets all (FLUSHALL, 5 times)",
        "works, and a handler blocks 150 ms, again and again",
    ]);
    cases.into_iter().map(|case| Case { rate: RATE, ..case }).collect()
}
