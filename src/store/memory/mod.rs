//! State in the memory of this process.

mod clock;
mod locked;
mod shard;
mod store;

pub(crate) use clock::micros;
pub use clock::{Clock, SystemClock};
pub use store::{MemoryStore, MemoryStoreBuilder};
