//! Counters in the memory of this process.

mod counter;
mod counters;
mod kept;
mod rank;
mod several;
mod shared;
mod store;

pub use store::{MemoryStore, MemoryStoreBuilder};
