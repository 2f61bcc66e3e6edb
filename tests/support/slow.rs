//! How much is tried.

use std::env;
use std::time::UNIX_EPOCH;

/// How much of two: the first in `scripts/test`, and all in `scripts/slow`, which sets `SLOW`.
pub(crate) fn many<T>([some, all]: [T; 2]) -> T {
    if env::var_os("SLOW").is_some() { all } else { some }
}

/// The seeds of so many histories, of those from 0 to all: others each day, so that all have their turn; `SEED` is the
/// only one, if it is set.
pub(crate) fn seeds([some, all]: [u64; 2]) -> Vec<u64> {
    if let Ok(seed) = env::var("SEED") {
        return vec![seed.parse().expect("SEED is a number")];
    }
    let day = UNIX_EPOCH.elapsed().expect("it is after 1970").as_secs() / (24 * 3_600);
    (0..many([some, all])).map(|place| (day * some + place) % all).collect()
}
