//! Flows: units that pass one after the other, such as bytes and messages, taken from the store in portions.
//!
//! The counters of a key or a request come in; a [`Flow`] goes out, from which units are taken mostly without a call.
//! Flows of the same counters share a [`pool`].
//!
//! - `book.rs` is what a pool holds and who waits for it: no store, no runtime; `portion.rs` says how large portions are.
//! - `pool.rs` is what flows of one key share: it calls the store, and keeps the time.
//! - `handle.rs` is what users hold.
//! - `stream.rs` paces streams and sinks (feature `stream`).
//!
//! Invariants: what passes was admitted before; what was admitted passes or is refunded, once; at most one call is in
//! flight for a pool; when the last flow of a pool is dropped, nothing is held and no task is left.

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
