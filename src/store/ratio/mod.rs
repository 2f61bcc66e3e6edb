//! Ratios: each process drops the same share of a key's requests, without calling a server for any of them.
//!
//! Requests are counted by key, whether they are admitted or not. Once in a tick each process reports these counts to a
//! [`Tally`] and receives the totals of all processes in the last complete tick. From them it computes which share of
//! the requests fits the limit. As it is computed from what was *offered*, dropping does not change it: nothing
//! feeds back.
//!
//! A store is in one of these states:
//!
//! | state | decides by | ends |
//! | --- | --- | --- |
//! | unknown | this process's share of each limit | with the first totals of at least one process |
//! | known | ratios; a key without one is admitted, up to the whole limit | a life after the last totals: unknown |
//!
//! Invariants: a request never waits; a report is sent once; no lock is held while the tally is called; what comes from
//! a tally only sets ratios, which are from 0 to 1 whatever it is, and none holds for longer than a life.

mod builder;
mod counter;
mod memory;
mod shared;
mod store;
mod tally;
mod ticking;

pub use builder::RatioStoreBuilder;
pub use memory::MemoryTally;
pub use store::RatioStore;
pub use tally::{CounterId, Offered, Report, Tally, Totals};
#[cfg(feature = "redis")]
pub(crate) use tally::{MOST_REPORT, MOST_SHARDS, MOST_TOTAL, MOST_UNITS};
