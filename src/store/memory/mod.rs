//! Counters in the memory of this process.
//!
//! A request is decided at once, without a future, a runtime or a thread. `core/algorithm/` decides each check on the
//! state kept here, by this store's clock.
//!
//! Invariants: there are never more entries than the capacity. A denied request changes no state but a ban's, only a
//! rank. The clock is read under the lock, so that a request that waited for it does not bring an older time.
//!
//! `store/failure/` also uses it, while a shared store is unavailable.

mod counters;
mod store;

pub use store::{MemoryStore, MemoryStoreBuilder};
