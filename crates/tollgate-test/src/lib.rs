#![doc = include_str!("../README.md")]

mod conformance;
mod send;
mod stores;

pub use self::conformance::{Conformance, Report, conformance};
pub use self::send::{TestResponse, send};
pub use self::stores::{Recorded, RecordingStore, StoreFn};

/// Guide to testing limits.
#[doc = include_str!("../docs/testing.md")]
pub mod testing {}

/// Guide to writing and testing a store.
#[doc = include_str!("../docs/writing-a-store.md")]
pub mod writing_a_store {}
