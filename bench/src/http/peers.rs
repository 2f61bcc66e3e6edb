//! Other crates, each as its documentation recommends, keyed by the same header, with a limit no key
//! comes near.

#[cfg(feature = "peers")]
mod cell;
#[cfg(feature = "peers")]
mod linked;

use super::build;
use super::sides::Side;

pub(super) fn all() -> Vec<Side> {
    let built = Side::program("tower-rate-limiter", "tower-rate-limiter 0.1, Redis", build::tower_rate_limiter)
        .redis()
        .proof("ratelimit");
    #[cfg(feature = "peers")]
    let linked = linked::all();
    #[cfg(not(feature = "peers"))]
    let linked = Vec::new();
    std::iter::once(built).chain(linked).collect()
}
