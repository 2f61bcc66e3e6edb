//! Flows of units that pass one after the other, such as bytes and messages, taken from the store in portions.
//!
//! Flows of the same counters share a [`pool`]: its bookkeeping in `book.rs` and the size of portions in `portion.rs`
//! need no store and no runtime.
//!
//! Invariants: units that pass were allowed before; allowed units pass or are refunded, once; a pool has at most one
//! call in flight; when the last flow of a pool is dropped, no units are held and no task is left.

mod book;
mod error;
mod handle;
mod pool;
mod portion;
#[cfg(feature = "stream")]
mod stream;

pub(crate) use self::book::Waits;
pub use self::error::FlowError;
pub use self::handle::Flow;
pub(crate) use self::portion::refuses_frames;
#[cfg(feature = "stream")]
pub use self::stream::{Paced, PacedError};
