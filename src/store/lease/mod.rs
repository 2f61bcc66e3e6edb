//! Units taken in advance, so that hot keys are admitted without a call to the inner store.
//!
//! The checks of a request come in. If leases held here cover all of them, or an overdraft of those on their way, an
//! admitted decision goes out at once, with [`Source::Lease`](crate::Source::Lease); else the inner store decides. A
//! key's way is:
//!
//! | state | becomes | when |
//! | --- | --- | --- |
//! | cold: a count in a shared cell | hot | the 8th request in one lifetime (a second, with an overdraft), if a place is free |
//! | hot, no lease | a lease call is in flight | a request whose rate is worth one |
//! | a call in flight | holding a lot of units | the inner store admits the call |
//! | a call in flight after a granted one | in debt as well | no lot covers a request, and the overdraft does |
//! | in debt | free of debt | the lease comes and pays; if more was owed meanwhile, the next one is requested at once |
//! | a call in flight | quiet for a lifetime | it refuses, or fails: what is owed is charged, and no more until a grant |
//! | holding lots | lots are returned | their lifetime or window ends, or the key is idle for half a lifetime |
//! | hot | forgotten | without lots, a call or a debt, and idle for two lifetimes (or a minute, with payments) |
//!
//! A lifetime is τ = min(1 s, window / 10); times are microseconds of the store's clock.
//!
//! | file | what it has |
//! | --- | --- |
//! | `store` | [`LeaseStore`] and its builder |
//! | `leases` | what clones share; how leases are returned and settled |
//! | `admit` | a request that leases cover |
//! | `call` | requesting a lease from the inner store, and returning unspent units in time and at the end |
//! | `hot_keys`, `hot_key` | the map, with what became of all units; one key and its lots |
//! | `demand` | a key's rate, what it owes, and how it was paid |
//! | `lot` | one lease |
//!
//! Invariants: every unit spent was charged in the inner store before, or is owed, of each key no more than the
//! overdraft; a lot is spent only within its lifetime and its window; and a unit is held, spent, returned or lost, and
//! counted as one of these only. No lock is held while the inner store is called.

mod hot_key;
mod hot_keys;
mod store;

pub use hot_keys::LeaseCounts;
pub use store::{LeaseStore, LeaseStoreBuilder};
