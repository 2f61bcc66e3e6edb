//! Units taken in advance, so that hot keys are decided without a call to the inner store.
//!
//! If leases held here cover all checks of a request, or an overdraft covers them while leases are requested, the
//! request is allowed at once, with [`Source::Lease`](crate::Source::Lease). Otherwise the inner store decides. The
//! states of a key:
//!
//! | state | next state | when |
//! | --- | --- | --- |
//! | cold: a count in a shared cell | hot | the 8th request in one lifetime (a second, with an overdraft), if the table has space |
//! | hot, no lease | a lease call is in flight | a request whose rate is worth one |
//! | a call in flight | holding a lot of units | the inner store grants the lease |
//! | a call in flight after a granted one | in debt as well | no lot covers a request, and the overdraft does |
//! | in debt | free of debt | the lease arrives and pays; if more was owed by then, the next one is requested at once |
//! | a call in flight | quiet for a lifetime | it is denied or fails: the debt is charged, and grows no more until a grant |
//! | holding lots | lots are returned | their lifetime or window ends, or the key is idle for half a lifetime |
//! | hot | removed | without lots, a call or a debt, and idle for two lifetimes (or a minute, with payments) |
//!
//! A lifetime is τ = min(1 s, window / 10). Times are microseconds of the store's clock.
//!
//! | file | contents |
//! | --- | --- |
//! | `store` | [`LeaseStore`], the state that its clones share, and how leases are returned and settled |
//! | `store/builder` | the settings |
//! | `store/admit` | a request that leases cover |
//! | `store/call` | requesting leases, and returning unspent units in time and at the end |
//! | `hot_keys` | the map, with the counts of all units |
//! | `hot_key` | one key: its lots, its debt and payments, its rate |
//!
//! Invariants: every spent unit was charged in the inner store before, or is owed, up to the overdraft per key. A lot
//! is spent only within its lifetime and its window. Each unit counts as exactly one of these: held, spent, returned or
//! lost. No lock is held while the inner store is called.

mod hot_key;
mod hot_keys;
mod store;

pub use hot_keys::LeaseCounts;
pub use store::{LeaseStore, LeaseStoreBuilder};
