//! Other crates, each as its documentation recommends, keyed by the same header, with a limit no key
//! comes near.

#[cfg(feature = "peers")]
mod cell;
#[cfg(feature = "peers")]
mod linked;

use super::build;
use super::sides::{Counters, Server, Side};
use crate::work::IETF;

pub(super) fn all() -> Vec<Side> {
    let built = Server::Other(build::tower_rate_limiter);
    let built = Side::served("tower-rate-limiter", "tower-rate-limiter, Redis", built)
        .counters(Counters::Redis(None))
        .headers(IETF);
    #[cfg(feature = "peers")]
    let linked = linked::all();
    #[cfg(not(feature = "peers"))]
    let linked = Vec::new();
    std::iter::once(built).chain(linked).collect()
}
