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
//! | file | what it has |
//! | --- | --- |
//! | `store` | [`RatioStore`] and its builder |
//! | `bounds` | which settings and policies it accepts |
//! | `law` | the arithmetic, in integers |
//! | `entry`, `callers` | the numbers of one counter; of its callers |
//! | `shared` | what clones share: the bounded map, the last totals |
//! | `decide` | a request |
//! | `choose` | what is reported, and what totals change |
//! | `ticking`, `phase` | the task that reports; when it does, by the tally's clock |
//! | `tally`, `memory` | the trait [`Tally`]; one in this process |
//!
//! Invariants: a request never waits; a report is sent once; no lock is held while the tally is called; what comes from
//! a tally only sets ratios, which are from 0 to 1 whatever it is, and none holds for longer than a life.

mod bounds;
mod callers;
mod choose;
mod decide;
mod entry;
mod law;
mod memory;
mod phase;
mod shared;
mod store;
mod tally;
mod ticking;

#[cfg(feature = "config")]
pub(crate) use bounds::{check_life, check_policy, check_report, check_shards, check_tick};
pub use memory::MemoryTally;
pub use store::{RatioStore, RatioStoreBuilder};
pub use tally::{CounterId, Offered, Report, Tally, Totals};
#[cfg(feature = "redis")]
pub(crate) use tally::{MOST_REPORT, MOST_SHARDS, MOST_TOTAL, MOST_UNITS};
