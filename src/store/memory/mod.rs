//! Counters in the memory of this process.
//!
//! The checks of a request come in; a decision goes out at once, without a future, a runtime or a thread. A check is
//! decided by `core/algorithm/` on the state that is kept here, on this store's own clock.
//!
//! | file | what it has |
//! | --- | --- |
//! | `store` | [`MemoryStore`], and deciding on what clones share: all or nothing of a request is taken |
//! | `counters` | one part: finding, deciding, keeping and evicting under one lock; its entries, 32 bytes each |
//!
//! Invariants: there are never more entries than the capacity; a refused request changes no state but
//! that of a ban, only a rank; and the clock is read under the lock, so that a request that waited for it does not come
//! with an older time.
//!
//! The store is one of those that users choose, and `store/failure/` uses it while a shared store is unavailable.

mod counters;
mod store;

pub use store::{MemoryStore, MemoryStoreBuilder};
