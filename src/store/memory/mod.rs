//! State in the memory of this process.

mod clock;
mod entry;
mod fingerprint;
mod kept;
mod locked;
mod shard;
mod store;

pub(crate) use clock::micros;
pub use clock::{Clock, SystemClock};
pub(in crate::store) use fingerprint::{Fingerprint, Fingerprints};
pub use store::{MemoryStore, MemoryStoreBuilder};
